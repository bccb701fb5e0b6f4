"""The suite on Spark: the input and the contenders of each query; no contender with a wrong answer is measured.

Rule of this module: a query is a row of ``QUERIES``, and nobody asks for one by name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.bench.flink.queries import FlinkQuery
from millpond.bench.nexmark import flink_queries, peers, queries
from millpond.bench.nexmark.answers import Oracle, final_rows
from millpond.bench.nexmark.events import BEGIN, Site
from millpond.bench.nexmark.files import AUCTIONS, BIDS, PERSONS, emitted_rows, write_events
from millpond.bench.nexmark.rows import Events, Verbs
from millpond.bench.nexmark.topics import topics_on
from millpond.bench.runs.asked import check_known
from millpond.bench.spark.contest import Contest
from millpond.bench.spark.inputs import Source
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import SPARK_JVM, TRANSFORM_WITH_STATE, VERBS, Peer, Workload
from millpond.errors import ConfigurationError

_WAITING_BATCHES: Final = 3
_WAITING_MILLIS: Final = 20_000
"""The micro-batches, and the milliseconds, before the end of the events up to which no row waits for others."""

OfSpark = Callable[[Site, Inputs, Scale], DataFrame]


@dataclass(frozen=True)
class Query:
    """A query, and its contenders.

    Attributes:
        verbs: it in verbs.
        flink: it in Flink SQL.
        reads: its events.
        peers: what Spark has for it, by the names of the contenders, each with its output mode.
    """

    verbs: Callable[[Verbs, Events], Any]
    flink: Callable[[], FlinkQuery]
    reads: tuple[Source, ...]
    peers: Mapping[str, tuple[OfSpark, str]] = field(default_factory=dict)


QUERIES: Final[Mapping[str, Query]] = {
    "q3": Query(queries.q3, flink_queries.q3, (PERSONS, AUCTIONS), {SPARK_JVM: (peers.jvm_q3, "append")}),
    "q4": Query(queries.q4, flink_queries.q4, (AUCTIONS, BIDS)),
    "q5": Query(queries.q5, flink_queries.q5, (BIDS,), {SPARK_JVM: (peers.jvm_q5, "append")}),
    "q7": Query(queries.q7, flink_queries.q7, (BIDS,), {SPARK_JVM: (peers.jvm_q7, "append")}),
    "q8": Query(queries.q8, flink_queries.q8, (PERSONS, AUCTIONS), {SPARK_JVM: (peers.jvm_q8, "append")}),
    "q9": Query(queries.q9, flink_queries.q9, (AUCTIONS, BIDS), {TRANSFORM_WITH_STATE: (peers.stateful_q9, "update")}),
    "q11": Query(queries.q11, flink_queries.q11, (BIDS,), {SPARK_JVM: (peers.jvm_q11, "append")}),
    "q12": Query(queries.q12, flink_queries.q12, (BIDS,), {SPARK_JVM: (peers.jvm_q12, "append")}),
    "q16": Query(queries.q16, flink_queries.q16, (BIDS,)),
    "q17": Query(queries.q17, flink_queries.q17, (BIDS,), {SPARK_JVM: (peers.jvm_q17, "update")}),
    "q18": Query(
        queries.q18,
        flink_queries.q18,
        (BIDS,),
        {SPARK_JVM: (peers.jvm_q18, "update"), TRANSFORM_WITH_STATE: (peers.stateful_q18, "update")},
    ),
    "q19": Query(queries.q19, flink_queries.q19, (BIDS,), {TRANSFORM_WITH_STATE: (peers.stateful_q19, "update")}),
    "q20": Query(queries.q20, flink_queries.q20, (AUCTIONS, BIDS), {SPARK_JVM: (peers.jvm_q20, "append")}),
}


@dataclass(frozen=True)
class NexmarkContest(Contest):
    """The contest for one query.

    Attributes:
        site: makes the events.
        kafka: brokers of Kafka, from whose topics contenders on Spark read the events, in micro-batches of
            ``even_rows``; None to read them from files.
        checked: by contender, how many rows of its answer have been compared, and were right.
    """

    more: ClassVar[str] = "--events"

    site: Site = field(default_factory=Site)
    kafka: str | None = None
    checked: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def work(self) -> Workload[Source]:
        check_known("query", [self.workload], QUERIES)
        query, site = QUERIES[self.workload], self.site
        return Workload(
            query.reads,
            verbs={VERBS: partial(_by_verbs, query.verbs, site)},
            peers={name: Peer(partial(job, site), mode) for name, (job, mode) in query.peers.items()},
            flink=partial(_in_flink, query.flink),
            write=partial(write_events, site),
            rows_of=emitted_rows,
            shows_costs=False,
        )

    @contextmanager
    def on_spark(self, spark: SparkSession) -> Iterator[Workload[Source]]:
        if self.kafka is None:
            yield self.work
            return
        with topics_on(spark, self.kafka) as topics:
            yield replace(self.work, read=topics.read)

    def check(self, place: Path, name: str, batches: int, answer: Callable[[], Sequence[pa.Table]]) -> None:
        """Compare what a contender answers with what DuckDB does.

        Raises:
            MillpondError: the answer is wrong.
            ConfigurationError: no row of it can be compared.
        """
        if name in self.checked:
            return
        given = answer()
        oracle = Oracle.of_files(place, [source.name for source in self.work.topics], batches)
        until = self._settled(batches)
        count = oracle.compared(self.workload, final_rows(self.workload, given), until)
        if not count:
            seconds = max(until - BEGIN, 0) / 1_000
            raise ConfigurationError(
                f"no window of {self.workload} is over by the end of the events, so no answer can be checked: of "
                f"{batches} micro-batches of {self.rows:,} events, results count until second {seconds:,.0f}; give "
                "more --events, or a lower --rate"
            )
        self.checked[name] = count

    def _settled(self, batches: int) -> int:
        """Return the time up to which rows wait for others no more, in milliseconds since 1970."""
        waiting = self.site.length(_WAITING_BATCHES * self.rows) + _WAITING_MILLIS
        return BEGIN + self.site.length(batches * self.rows) - waiting

    def figures(self, seconds: Mapping[str, list[float]], memory: Mapping[str, WorkerMemory]) -> dict[str, Any]:
        return {**super().figures(seconds, memory), "checked_rows": self.checked}

    def settings(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "rate": self.site.rate,
            "out_of_order": self.site.out_of_order,
            **self.of_spark(),
        }

    def of_spark(self) -> dict[str, Any]:
        found = super().of_spark()
        return found if self.kafka is None else {"source": "kafka", "partitions": found.pop("files"), **found}


def nexmark_contests(names: Sequence[str], *, contenders: Sequence[str] | None, **how: Any) -> list[NexmarkContest]:
    """Return a contest for each query, and no query twice.

    Args:
        names: of queries; all if there are none.
        contenders: only these, where a query has them; None for all.
        how: the other attributes of each.

    Raises:
        ConfigurationError: a query is unknown, or none has such a contender.
    """
    check_known("query", names, QUERIES)
    known = {name: NexmarkContest(name, keys=0, **how).known for name in QUERIES}
    check_known("contender", contenders or (), set().union(*known.values()))
    chosen = list(dict.fromkeys(names)) or list(QUERIES)
    found = []
    for name in chosen:
        only = None if contenders is None else [one for one in contenders if one in known[name]]
        if only is None or only:
            found.append(NexmarkContest(name, contenders=only, keys=0, **how))
    if not found:
        raise ConfigurationError(f"{' and '.join(chosen)} have none of the contenders; leave out --contender")
    return found


def _by_verbs(
    query: Callable[[Verbs, Events], Any], site: Site, pond: Millpond, inputs: Inputs, scale: Scale
) -> DataFrame:
    rows: dict[str, Any] = {name: inputs.get(name) for name in ("persons", "auctions", "bids")}
    made: DataFrame = query(pond, Events(**rows, col=F.col, tumbling=_tumbling, site=site))
    return made


def _in_flink(query: Callable[[], FlinkQuery], scale: Scale) -> FlinkQuery:
    return query()


def _tumbling(times: str, seconds: int) -> Column:
    return F.window(times, f"{seconds} seconds")["start"]

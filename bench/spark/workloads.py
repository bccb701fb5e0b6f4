"""The workloads, in one table: their input, and the jobs of Millpond, Spark and Flink for the same work.

Rule of this module: a workload is a row, and nobody asks for one by name. All contenders of a workload read the same
rows and give the same answers, but for those that only show what Spark's exchange with Python costs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.bench.flink.queries import FlinkQuery
from millpond.bench.flink.settings import STATE_BACKENDS
from millpond.bench.runs.asked import check_known
from millpond.bench.runs.labels import told_apart
from millpond.bench.spark import flink_queries, inputs, peers, topologies, verbs
from millpond.bench.spark.inputs import Source, Topic, read_inputs, rows_of, write_inputs
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.errors import ConfigurationError
from millpond.masking import masked
from millpond.processors import Topology

BACKENDS: Final = ("lmdb", "rocksdb", "memory")
VERBS: Final = "verbs"
"""The work by a verb on DataFrames, on the first backend."""

TWO_VERBS: Final = "two_verbs"
THREE_VERBS: Final = "three_verbs"
"""The same in more steps."""

ONE_BY_ONE: Final = "one_by_one"
"""The same with rows that are not combined before they travel."""

TRANSFORM_WITH_STATE: Final = "transform_with_state"
TRANSFORM_IN_PANDAS: Final = "transform_with_state_in_pandas"
SPARK_JVM: Final = "spark_jvm"
SPARK_JVM_FORMAT_4: Final = "spark_jvm_format_4"
"""The same with the newest form of its state, which Spark does not choose by itself."""

STATIC_SQL: Final = "static_sql"
"""Spark's SQL with a static right side, which is no substitute: no row of it may come later."""

TWO_SPARK_JVM: Final = "two_spark_jvm"
MAP_IN_ARROW: Final = "map_in_arrow"
EMPTY: Final = "empty_transform_with_state"

Verb = Callable[[Millpond, Inputs, Scale], DataFrame]

Read = TypeVar("Read", bound=Source, covariant=True)
"""The sources that a workload reads."""


class Answer(Enum):
    """The part of the answers that is the same for all contenders."""

    ROWS = "every row"
    SETTLED = "the rows whose time is over; when the input ends, the newest still wait for time to go on"
    TABLE = "the last row of each key; of the changes within a micro-batch, the earlier ones may be left out"
    UNTIMED_TABLE = "the same, but not its time: changes within a micro-batch that cancel out may be left out, too"


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Attributes:
        job: makes the stream that is written; it gets the inputs, the scale, and a directory of its own.
        output_mode: Spark's.
        static: the topics that are static, and no streams.
    """

    job: Callable[[Inputs, Scale, str], DataFrame]
    output_mode: str = "append"
    static: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlinkContender:
    """The work by Flink on one of its state backends; ``query`` gets the scale, ``state_backend`` is Flink's name."""

    query: Callable[[Scale], FlinkQuery]
    state_backend: str


@dataclass(frozen=True)
class Peer:
    """Spark's means for the work; ``answers`` unless it only moves the rows, and ``static`` as of a contender."""

    job: Callable[[Inputs, Scale], DataFrame]
    output_mode: str = "append"
    answers: bool = True
    static: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload(Generic[Read]):
    """One kind of work.

    Attributes:
        topics: what is read.
        verbs: the work by verbs on DataFrames, by the names of the contenders.
        topology: the same in the words of Kafka Streams, if it is there.
        peers: Spark's own means, by the names of the contenders.
        answer: what of the answers is the same for all on Spark; in Flink, too, unless its query is a table.
        flink: the same in Flink SQL, if it has it.
        static: the topics that are static for all contenders.
        write: writes what is read, as ``write_inputs`` does.
        read: makes streams of it, as ``read_inputs`` does.
        rows_of: reads it again in order, as ``inputs.rows_of`` does.
        shows_costs: whether contenders come on top that show the least that Python costs.
    """

    topics: tuple[Read, ...]
    topology: Callable[[Scale], Topology] | None = None
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    peers: Mapping[str, Peer] = field(default_factory=dict)
    answer: Answer = Answer.ROWS
    flink: Callable[[Scale], FlinkQuery] | None = None
    static: tuple[str, ...] = ()
    write: Callable[..., None] = write_inputs
    read: Callable[..., Inputs] = read_inputs
    rows_of: Callable[[Path, Scale, str, int, Sequence[str]], pa.Table] = rows_of
    shows_costs: bool = True

    @property
    def all_peers(self) -> Mapping[str, Peer]:
        """Spark's own means, the best first, and what shows the least that Python costs."""
        costs = COSTS if self.shows_costs else {}
        return {**self.peers, **{name: peer for name, peer in costs.items() if name not in self.peers}}

    @property
    def in_flink(self) -> dict[str, FlinkContender]:
        """The contenders that need Flink, by name."""
        query = self.flink
        return {} if query is None else {name: FlinkContender(query, kind) for name, kind in STATE_BACKENDS.items()}

    def contenders(self, backends: Sequence[str]) -> dict[str, Contender]:
        """Return all contenders on Spark by name: verbs on the first of the backends, topologies on each, and peers."""
        static = self.static
        found = {
            name: Contender(partial(_run_verb, verb, backends[0]), static=static) for name, verb in self.verbs.items()
        }
        if self.topology is not None:
            for name, one in named(backends).items():
                found[name] = Contender(partial(_run_topology, self.topology, one), static=static)
        for name, peer in self.all_peers.items():
            found[name] = Contender(partial(_run_peer, peer), peer.output_mode, peer.static + static)
        return found


def _run_topology(
    topology: Callable[[Scale], Topology], backend: str, inputs: Inputs, scale: Scale, directory: str
) -> DataFrame:
    streams = SparkStreams(
        topology(scale),
        application_id="bench",
        state_dir=f"{directory}/state",
        local_dir=f"{directory}/local",
        backend=backend,
    )
    return streams.transform(inputs)


def _run_verb(verb: Verb, backend: str, inputs: Inputs, scale: Scale, directory: str) -> DataFrame:
    pond = Millpond(
        application_id="bench", state_dir=f"{directory}/state", local_dir=f"{directory}/local", backend=backend
    )
    return verb(pond, inputs, scale)


def _run_peer(peer: Peer, inputs: Inputs, scale: Scale, directory: str) -> DataFrame:
    return peer.job(inputs, scale)


def _stream_joins(how: str) -> dict[str, Peer]:
    """Return Spark's join of streams with the form of state that it chooses, 2, and with the newest."""
    formats = {SPARK_JVM: 2, SPARK_JVM_FORMAT_4: 4}
    return {name: Peer(partial(peers.jvm_stream_join, how, number)) for name, number in formats.items()}


COSTS: Final[Mapping[str, Peer]] = {
    MAP_IN_ARROW: Peer(peers.pass_through, answers=False),
    EMPTY: Peer(peers.empty_operator, answers=False),
}
"""The least that Python costs, with the rows of any workload."""

WORKLOADS: Final[Mapping[str, Workload[Topic]]] = {
    "count": Workload(
        (inputs.events(),),
        topologies.count,
        {VERBS: verbs.count},
        {
            TRANSFORM_WITH_STATE: Peer(peers.stateful_count, "update"),
            SPARK_JVM: Peer(peers.jvm_count, "update"),
        },
        flink=flink_queries.count,
    ),
    "temporal-join": Workload(
        (inputs.events(0.9), inputs.rates(0.1)),
        topologies.temporal_join,
        {VERBS: verbs.temporal_join},
        {
            TRANSFORM_WITH_STATE: Peer(peers.stateful_temporal_join),
            STATIC_SQL: Peer(partial(peers.static_asof_join, "rates"), static=("rates",)),
        },
        flink=flink_queries.temporal_join,
    ),
    "table-join": Workload(
        (inputs.events(0.5), inputs.rates(0.5)),
        topologies.table_join,
        {VERBS: verbs.table_join},
        {TRANSFORM_WITH_STATE: Peer(peers.stateful_table_join)},
        flink=flink_queries.table_join,
    ),
    "stream-join": Workload(
        (inputs.events(0.5), inputs.rates(0.5)),
        topologies.stream_join,
        {VERBS: verbs.stream_join},
        _stream_joins("inner"),
        flink=flink_queries.stream_join,
    ),
    "stream-join-left": Workload(
        (inputs.events(0.5), inputs.rates(0.5)),
        topologies.stream_join_left,
        {VERBS: verbs.stream_join_left},
        _stream_joins("left"),
        Answer.SETTLED,
        flink=flink_queries.stream_join_left,
    ),
    "window": Workload(
        (inputs.events(),),
        topologies.window,
        {VERBS: verbs.window},
        {SPARK_JVM: Peer(peers.jvm_window)},
        Answer.SETTLED,
        flink=flink_queries.window,
    ),
    "session": Workload(
        (inputs.events(),),
        topologies.session,
        {VERBS: verbs.session},
        {SPARK_JVM: Peer(peers.jvm_session)},
        Answer.SETTLED,
        flink=flink_queries.session,
    ),
    "foreign-key": Workload(
        (inputs.orders(0.9), inputs.customers(0.1)),
        topologies.foreign_key,
        {VERBS: verbs.foreign_key},
        {TRANSFORM_WITH_STATE: Peer(peers.stateful_foreign_key)},
        Answer.TABLE,
        flink=flink_queries.foreign_key,
    ),
    "multi-join": Workload(
        (inputs.events(1 / 3), inputs.rates(1 / 3), inputs.limits(1 / 3)),
        verbs={VERBS: verbs.multi_join, TWO_VERBS: verbs.two_table_joins},
        peers={TRANSFORM_WITH_STATE: Peer(peers.stateful_multi_join)},
        answer=Answer.TABLE,
    ),
    "lookup-join": Workload(
        (inputs.events(0.9), inputs.tiers(0.1)),
        verbs={VERBS: verbs.lookup_join},
        peers={STATIC_SQL: Peer(partial(peers.static_asof_join, "tiers"))},
        static=("tiers",),
    ),
    "feed-aggregate": Workload(
        (inputs.accounts(),),
        verbs={VERBS: verbs.feed_aggregate},
        peers={TRANSFORM_WITH_STATE: Peer(peers.stateful_feed_aggregate, "update")},
        answer=Answer.UNTIMED_TABLE,
    ),
    "window-aggregates": Workload(
        (inputs.sales(),),
        verbs={VERBS: verbs.window_aggregates},
        peers={SPARK_JVM: Peer(peers.jvm_window_aggregates)},
        answer=Answer.SETTLED,
    ),
    "session-aggregates": Workload(
        (inputs.sales(),),
        verbs={VERBS: verbs.session_aggregates},
        peers={SPARK_JVM: Peer(peers.jvm_session_aggregates)},
        answer=Answer.SETTLED,
    ),
    "skewed-key": Workload(
        (inputs.skewed_sales(),),
        verbs={VERBS: verbs.skewed_key, ONE_BY_ONE: verbs.skewed_key_one_by_one},
        peers={SPARK_JVM: Peer(peers.jvm_skewed_key)},
        answer=Answer.SETTLED,
    ),
    "wide-join": Workload(
        (inputs.readings(0.9), inputs.devices(0.1)),
        verbs={VERBS: verbs.wide_join},
        peers={TRANSFORM_WITH_STATE: Peer(peers.stateful_wide_join)},
    ),
    "hot-keys": Workload(
        (inputs.trades(0.1), inputs.quotes(0.9)),
        verbs={VERBS: verbs.hot_keys},
        peers={TRANSFORM_IN_PANDAS: Peer(peers.pandas_hot_keys)},
    ),
    "chain": Workload(
        (inputs.events(),),
        verbs={
            VERBS: partial(verbs.roll_up, 1),
            TWO_VERBS: partial(verbs.roll_up, 2),
            THREE_VERBS: partial(verbs.roll_up, 3),
        },
        peers={
            SPARK_JVM: Peer(partial(peers.jvm_roll_up, 1)),
            TWO_SPARK_JVM: Peer(partial(peers.jvm_roll_up, 2)),
        },
        answer=Answer.SETTLED,
    ),
    "exchange": Workload(
        (inputs.events(),),
        topologies.exchange,
        peers={MAP_IN_ARROW: Peer(peers.exchange_pass_through)},
    ),
}


def named(backends: Sequence[str]) -> dict[str, str]:
    """Return backends, each once and given by names or URLs, by their names in reports, which show no secrets."""
    different = list(dict.fromkeys(backends))
    return dict(zip(told_apart(list(map(masked, different))), different, strict=True))


def workload_named(name: str) -> Workload[Topic]:
    """Return the workload.

    Raises:
        ConfigurationError: there is none of that name.
    """
    check_known("workload", [name], WORKLOADS)
    return WORKLOADS[name]


def chosen_contenders(
    workload: Workload[Source], backends: Sequence[str], names: Collection[str] | None, *, with_flink: bool = False
) -> dict[str, Contender | FlinkContender]:
    """Return the contenders of these names, or all, in the order of all; those in Flink come last.

    Args:
        workload: whose contenders.
        backends: names or URLs.
        names: which ones; None for all.
        with_flink: there is a Flink to run some of them.

    Raises:
        ConfigurationError: the workload has no such contender, or there is no Flink to run it.
    """
    known: dict[str, Contender | FlinkContender] = {**workload.contenders(backends), **workload.in_flink}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise ConfigurationError(f"there are no contenders {unknown} here; give some of {', '.join(known)}")
    needs_flink = set() if with_flink else set(workload.in_flink)
    lacking = sorted(needs_flink & set(names or ()))
    if lacking:
        raise ConfigurationError(
            f"{' and '.join(lacking)} need a Python that has PyFlink; name it with --flink-python or "
            "MILLPOND_FLINK_PYTHON"
        )
    chosen = set(known) - needs_flink if names is None else set(names)
    return {name: contender for name, contender in known.items() if name in chosen}

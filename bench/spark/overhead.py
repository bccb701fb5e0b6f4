"""The cost of headers, ticks and observed metrics to a micro-batch, beside the same query without.

Rule of this module: all variants of a query read the same files, run in turn, forward and then backward, and what is
compared is the median of Spark's ``triggerExecution``. Small micro-batches show what costs something for a task, large
ones what costs something for a row. Nothing can run without the column of the wall clock, which is a constant in the
few rows that an operator takes, so it is in all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from millpond.adapters.spark import SparkStreams
from millpond.adapters.spark.operator import dataflow
from millpond.adapters.spark.worker.counters import without_reports
from millpond.bench.processors import overhead
from millpond.bench.spark import topologies
from millpond.bench.spark.contest import WARM_UP
from millpond.bench.spark.inputs import events, write_inputs
from millpond.bench.spark.queries import in_turn, measure, scratch, session
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.bench.spark.workloads import Contender, Workload
from millpond.processors import Topology

PLAIN: Final = "as it is"
AGAIN: Final = "as it is, again"
"""The same once more: what the machine makes of it."""

SIZES: Final = (1_000, 200_000)
"""Rows of a micro-batch: what costs something for a task shows in small ones, and for a row in large ones."""

ALONE: Final = "ticks alone, no rows"

_READ: Final = Workload((events(),), topologies.count)


@dataclass(frozen=True)
class Variant:
    """One way to run a topology.

    Attributes:
        topology: makes it.
        headers: whether records carry headers.
        ticks: whether each micro-batch has a tick.
        rows: whether there are rows.
        observed: whether Spark observes what workers count and measure.
    """

    topology: Callable[..., Topology]
    headers: bool = False
    ticks: bool = False
    rows: bool = True
    observed: bool = True

    def job(self, backend: str, batches: int, inputs: Inputs, scale: Scale, directory: str) -> DataFrame:
        """Return the query, but for its sink."""
        place = Path(directory)
        streams = SparkStreams(
            self.topology(scale, headers=self.headers),
            application_id="bench",
            state_dir=f"{directory}/state",
            local_dir=f"{directory}/local",
            backend=backend,
        )
        read = inputs["events"]
        if not self.rows:
            (place / "nothing").mkdir()
            read = read.sparkSession.readStream.schema(read.schema).parquet(f"{directory}/nothing")
        elif self.headers:
            read = read.withColumn("headers", _headers())
        ticks = _ticks(read, place / "ticks", batches) if self.ticks else None
        with self._observation():
            return streams.transform({"events": read}, ticks=ticks)

    def _observation(self) -> AbstractContextManager[Any]:
        if self.observed:
            return nullcontext()
        return patch.object(dataflow, "observe_reports", lambda rows, *_: without_reports(rows))


COUNTS: Final = {
    PLAIN: Variant(topologies.count),
    AGAIN: Variant(topologies.count),
    "headers": Variant(topologies.count, headers=True),
    "ticks": Variant(topologies.count, ticks=True),
    ALONE: Variant(topologies.count, ticks=True, rows=False),
    "nothing observed": Variant(topologies.count, observed=False),
}
EXCHANGES: Final = {
    PLAIN: Variant(topologies.exchange),
    "headers": Variant(topologies.exchange, headers=True),
}
"""Every row goes out again with its headers; a count's results have those of the last row of each key."""


def run(
    backend: str = "lmdb",
    *,
    records: int = 100_000,
    sizes: Sequence[int] = SIZES,
    keys: int = 20_000,
    batches: int = 8,
    repeat: int = 2,
    rounds: int = 3,
    cores: int = 2,
    seed: int = 1,
    directory: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure all, in this process and on Spark.

    Args:
        backend: a name or URL.
        records: through each topology in this process.
        sizes: rows of a micro-batch, the largest last.
        keys: distinct ones.
        batches: micro-batches that count of each query, and of each size in this process.
        repeat: how often each query runs, in order and in reverse.
        rounds: of each topology in this process.
        cores: of Spark.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.
        console: where to report what is being measured.
    """
    say = console.print if console is not None else _unheard
    say("measuring in this process ...")
    in_process = {
        "headers_in_process": overhead.headers(backend, records, keys, rounds=rounds, directory=directory, seed=seed),
        "measuring_in_process": overhead.measuring(
            backend, keys, sizes, batches=batches, directory=directory, seed=seed
        ),
    }
    on_spark = []
    with session(cores) as spark, scratch(directory) as temporary:
        for size, name, variants in (*((size, "count", COUNTS) for size in sizes), (sizes[-1], "exchange", EXCHANGES)):
            say(f"measuring a {name} of {size:,} rows on Spark ...")
            place, scale = Path(temporary) / f"{name}-{size}", Scale(size, keys, cores)
            place.mkdir()
            write_inputs(place, _READ.topics, scale, WARM_UP + batches, seed=seed)
            on_spark += _compared(name, size, _in_turn(spark, place, variants, scale, backend, batches, repeat))
    return {
        "backend": backend,
        "sizes": list(sizes),
        "keys": keys,
        "cores": cores,
        "batches": batches,
        "repeat": repeat,
        "seed": seed,
        **in_process,
        "on_spark": on_spark,
    }


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a row per comparison."""
    table = Table(title=f"what it costs, on {figures['backend']}")
    for column in ("", "without", "with", "times longer"):
        table.add_column(column, justify="right" if column else "left")
    for row in (*overhead.table_rows(figures), *_table_rows(figures)):
        table.add_row(*row)
    console.print(table)


def _in_turn(
    spark: SparkSession,
    place: Path,
    variants: Mapping[str, Variant],
    scale: Scale,
    backend: str,
    batches: int,
    turns: int,
) -> dict[str, list[float]]:
    """Return the seconds of the micro-batches that count, by variant."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for name in in_turn(variants, turns):
        job = partial(variants[name].job, backend, WARM_UP + batches)
        ran = measure(spark, place, _READ, Contender(job), scale, skipped=WARM_UP, counted=batches)
        found[name] += ran.seconds
    return found


def _compared(name: str, rows: int, seconds: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    plain = median(seconds[PLAIN])
    return [
        {
            "query": name,
            "rows": rows,
            "variant": variant,
            "batch_s": median(times),
            "more_s": median(times) - plain,
            "times_longer": median(times) / plain,
        }
        for variant, times in seconds.items()
    ]


def _table_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    plain = {(row["query"], row["rows"]): row["batch_s"] for row in figures["on_spark"] if row["variant"] == PLAIN}
    for row in figures["on_spark"]:
        if row["variant"] != PLAIN:
            label = f"{row['query']} on Spark, {row['rows']:,} rows: {row['variant']}"
            both = (f"{seconds:.3f} s" for seconds in (plain[row["query"], row["rows"]], row["batch_s"]))
            yield (label, *both, f"{row['times_longer']:.3f}")


def _headers() -> Any:
    pairs = (F.struct(F.lit(name).alias("key"), F.lit(value).alias("value")) for name, value in overhead.HEADERS)
    return F.array(*pairs)


def _ticks(beside: DataFrame, directory: Path, batches: int) -> DataFrame:
    """Return a stream with one row for each micro-batch."""
    directory.mkdir()
    for number in range(batches):
        pq.write_table(pa.table({"tick": [number]}), directory / f"{number:06d}.parquet")
    reader = beside.sparkSession.readStream.schema("tick long").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


def _unheard(_: str) -> None:
    pass

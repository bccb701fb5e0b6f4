"""What it costs to take the records of a micro-batch in the order of time, beside that in which they arrive.

Rule of this module: that of ``millpond.bench.spark.overhead``. Where records come in the order of time, both orders are
the same, and what differs is what it takes to see that. Where they come in none, they are sorted first.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from millpond.adapters.spark import SparkStreams
from millpond.bench.spark import topologies
from millpond.bench.spark.contest import WARM_UP
from millpond.bench.spark.inputs import Topic, events, rates, write_inputs
from millpond.bench.spark.queries import measure, session
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.bench.spark.workloads import Contender, Workload
from millpond.processors import Order, Topology

QUERIES: Final[Mapping[str, tuple[Callable[..., Topology], Sequence[Topic]]]] = {
    "count": (topologies.count, (events(),)),
    "window": (topologies.window, (events(),)),
    "temporal-join": (topologies.temporal_join, (events(0.5), rates(0.5))),
}
"""What runs, and on which rows. A count's are brought together before they reach their tasks, and are not sorted."""


@dataclass(frozen=True)
class Variant:
    """How records come, and how they are taken.

    Attributes:
        order: how they are taken.
        shuffled: whether they come in no order.
    """

    order: Order
    shuffled: bool

    def job(self, query: str, backend: str, inputs: Inputs, scale: Scale, directory: str) -> DataFrame:
        """The query, but for its sink."""
        topology = QUERIES[query][0](scale, order=self.order)
        streams = SparkStreams(
            topology,
            application_id="bench",
            state_dir=f"{directory}/state",
            local_dir=f"{directory}/local",
            backend=backend,
        )
        return streams.transform(inputs)


ARRIVAL: Final = "in order, as they arrive"
VARIANTS: Final = {
    ARRIVAL: Variant(Order.ARRIVAL, shuffled=False),
    "in order, by time": Variant(Order.TIME, shuffled=False),
    "shuffled, by time": Variant(Order.TIME, shuffled=True),
}


def run(
    backend: str = "lmdb",
    *,
    queries: Sequence[str] = tuple(QUERIES),
    rows: int = 1_000_000,
    keys: int = 200_000,
    batches: int = 6,
    repeat: int = 2,
    cores: int = 2,
    seed: int = 1,
    directory: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure all variants of the queries in turn.

    Args:
        backend: a name or URL.
        queries: those of ``QUERIES`` to run.
        rows: of a micro-batch.
        keys: distinct ones.
        batches: micro-batches that count of each query.
        repeat: how often each query runs, in order and in reverse.
        cores: of Spark.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.
        console: where to report what is being measured.
    """
    scale, found = Scale(rows, keys, cores), []
    with session(cores) as spark, tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
        for query in queries:
            if console is not None:
                console.print(f"measuring a {query} of {rows:,} rows on Spark ...")
            topology, topics = QUERIES[query]
            workload = Workload(tuple(topics), topology)
            places = {shuffled: Path(temporary) / f"{query}-{shuffled}" for shuffled in (False, True)}
            for shuffled, place in places.items():
                place.mkdir()
                write_inputs(place, topics, scale, WARM_UP + batches, shuffled=shuffled, seed=seed)
            seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for turn in range(repeat):
                for name in list(VARIANTS)[:: -1 if turn % 2 else 1]:
                    variant = VARIANTS[name]
                    contender = Contender(partial(variant.job, query, backend))
                    place = places[variant.shuffled]
                    ran = measure(spark, place, workload, contender, scale, skipped=WARM_UP, counted=batches)
                    seconds[name] += ran.seconds
            plain = median(seconds[ARRIVAL])
            found += [
                {
                    "query": query,
                    "variant": name,
                    "batch_s": median(times),
                    "least_s": min(times),
                    "most_s": max(times),
                    "times_longer": median(times) / plain,
                }
                for name, times in seconds.items()
            ]
    return {
        "backend": backend,
        "rows": rows,
        "keys": keys,
        "cores": cores,
        "batches": batches,
        "repeat": repeat,
        "seed": seed,
        "on_spark": found,
    }


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """One row per query and variant."""
    table = Table(title=f"micro-batches of {figures['rows']:,} rows on {figures['backend']}")
    for column in ("query", "records", "seconds", "least", "most", "times longer"):
        table.add_column(column, justify="left" if column in ("query", "records") else "right")
    for row in figures["on_spark"]:
        seconds = (f"{row[name]:.3f}" for name in ("batch_s", "least_s", "most_s", "times_longer"))
        table.add_row(row["query"], row["variant"], *seconds)
    console.print(table)

"""The cost of taking a micro-batch's records in the order of time, beside that in which they arrive.

Rule of this module: that of ``millpond.bench.spark.overhead``. Where records come in the order of time, both orders are
the same, and what differs is what it takes to see that. Where they come in none, they are sorted first; taken as they
arrive they have another answer, but for a count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from millpond.adapters.spark import SparkStreams
from millpond.bench.spark import topologies
from millpond.bench.spark.contest import WARM_UP
from millpond.bench.spark.inputs import Topic, events, rates, write_inputs
from millpond.bench.spark.queries import in_turn, measure, scratch, session
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.bench.spark.workloads import Contender, Workload
from millpond.processors import Order, Topology


@dataclass(frozen=True)
class Variant:
    """The order in which records come, and in which they are taken.

    Attributes:
        order: how they are taken.
        shuffled: whether they come in no order.
    """

    order: Order
    shuffled: bool

    def job(self, query: str, backend: str, inputs: Inputs, scale: Scale, directory: str) -> DataFrame:
        """Return the query, but for its sink."""
        topology = QUERIES[query].topology(scale, order=self.order)
        streams = SparkStreams(
            topology,
            application_id="bench",
            state_dir=f"{directory}/state",
            local_dir=f"{directory}/local",
            backend=backend,
        )
        return streams.transform(inputs)


ARRIVAL: Final = "in order, as they arrive"
SHUFFLED: Final = "shuffled, as they arrive"
VARIANTS: Final = {
    ARRIVAL: Variant(Order.ARRIVAL, shuffled=False),
    "in order, by time": Variant(Order.TIME, shuffled=False),
    SHUFFLED: Variant(Order.ARRIVAL, shuffled=True),
    "shuffled, by time": Variant(Order.TIME, shuffled=True),
}


class Query(NamedTuple):
    """The query to run, and its rows.

    Attributes:
        topology: makes it.
        topics: its inputs.
        ordered: whether its answer depends on the order of records.
    """

    topology: Callable[..., Topology]
    topics: Sequence[Topic]
    ordered: bool = True

    @property
    def variants(self) -> Mapping[str, Variant]:
        """The variants with the same answer."""
        return {name: one for name, one in VARIANTS.items() if not self.ordered or name != SHUFFLED}


QUERIES: Final = {
    "count": Query(topologies.count, (events(),), ordered=False),
    "window": Query(topologies.window, (events(),)),
    "temporal-join": Query(topologies.temporal_join, (events(0.5), rates(0.5))),
}
"""The records of a count are brought together before they reach their tasks, and are not sorted."""


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
        queries: the names of ``QUERIES`` to run.
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
    with session(cores) as spark, scratch(directory) as temporary:
        for query in queries:
            if console is not None:
                console.print(f"measuring a {query} of {rows:,} rows on Spark ...")
            topology, topics, _ = QUERIES[query]
            workload, variants = Workload(tuple(topics), topology), QUERIES[query].variants
            places = {shuffled: Path(temporary) / f"{query}-{shuffled}" for shuffled in (False, True)}
            for shuffled, place in places.items():
                place.mkdir()
                write_inputs(place, topics, scale, WARM_UP + batches, shuffled=shuffled, seed=seed)
            seconds: dict[str, list[float]] = {name: [] for name in variants}
            for name in in_turn(variants, repeat):
                variant = variants[name]
                contender = Contender(partial(variant.job, query, backend))
                place = places[variant.shuffled]
                ran = measure(spark, place, workload, contender, scale, skipped=WARM_UP, counted=batches)
                seconds[name] += ran.seconds
            found += [
                {
                    "query": query,
                    "variant": name,
                    "batch_s": median(times),
                    "least_s": min(times),
                    "most_s": max(times),
                    "times_longer": median(times) / median(seconds[_beside(variants, name)]),
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


def _beside(variants: Mapping[str, Variant], name: str) -> str:
    """Return the variant that another one is compared with: the same records as they arrive, or those in order."""
    return SHUFFLED if variants[name].shuffled and SHUFFLED in variants else ARRIVAL


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a row per query and variant."""
    table = Table(title=f"micro-batches of {figures['rows']:,} rows on {figures['backend']}")
    for column in ("query", "records", "seconds", "least", "most", "times longer"):
        table.add_column(column, justify="left" if column in ("query", "records") else "right")
    for row in figures["on_spark"]:
        seconds = (f"{row[name]:.3f}" for name in ("batch_s", "least_s", "most_s", "times_longer"))
        table.add_row(row["query"], row["variant"], *seconds)
    console.print(table)

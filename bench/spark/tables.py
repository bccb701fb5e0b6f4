"""The figures of the benchmark on Spark as tables."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.bench.spark.growth import ends
from millpond.stores.columns.column_changes import MOST_MERGED_BYTES


def print_results(console: Console, results: Mapping[str, Any]) -> None:
    """One row per contender: rows per second, also in relation to each peer's, and the memory of a Python worker.

    Flink's rates are those of a job that runs; what they are with its start-up stands below.
    """
    peers, per_second = list(results["ratios"]), results["rows_per_second"]
    table = _table(
        f"{results['workload']}: {results['rows']:,} rows per micro-batch, {results['keys']:,} keys",
        ["rows/s", "s/micro-batch", "worker MiB", "of its own", *(f"x {peer.replace('_', ' ')}" for peer in peers)],
    )
    if "flink" in results:
        table.caption = f"{table.caption}\n{_of_flink(results['flink'])}"
    for name, rate in per_second.items():
        compared = [f"{rate / per_second[peer]:.2f}" for peer in peers]
        seconds = f"{results['seconds_per_batch'][name]:.2f}"
        table.add_row(name, f"{rate:,.0f}", seconds, *_memory(results, name), *compared)
    console.print(table)
    _print_failures(console, results)


def print_growth(console: Console, results: Mapping[str, Any]) -> None:
    """One row per contender: the time of the first and of the last micro-batches, and the memory of a Python worker."""
    table = _table(
        f"{results['workload']}: growing to {results['keys']:,} keys, {results['rows']:,} rows per micro-batch",
        ["micro-batches", "first, s", "last, s", "last / first", "worker MiB", "of its own"],
    )
    for name, seconds in results["batch_seconds"].items():
        first, last = (f"{end:.2f}" for end in ends(seconds))
        ratio = f"{results['growth'][name]:.2f}"
        table.add_row(name, str(len(seconds)), first, last, ratio, *_memory(results, name))
    console.print(table)
    _print_failures(console, results)


def _print_failures(console: Console, results: Mapping[str, Any]) -> None:
    for name, reason in results.get("failed", {}).items():
        console.print(Text(f"{name} failed: {reason}", style="red"))


def _table(title: str, columns: list[str]) -> Table:
    merged = f"Of what a micro-batch changes in a store, a worker keeps {MOST_MERGED_BYTES >> 20:,} MiB as columns."
    table = Table(title=title, caption=merged)
    table.add_column("contender")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _of_flink(figures: Mapping[str, Any]) -> str:
    """How Flink ran, in a sentence for each contender in it."""
    versions = ", ".join(f"{name.capitalize()} {number}" for name, number in figures["versions"].items())
    said = [f"{versions}: rows/s of a job that runs, with a checkpoint every {figures['checkpoint_seconds']} s."]
    for name, seconds in figures["start_up_seconds"].items():
        rate = figures["rows_per_second_with_start_up"][name]
        said.append(f"With a start-up of {seconds:.1f} s, {name} has {rate:,.0f} rows/s of as many micro-batches.")
    return "\n".join(said)


def _memory(results: Mapping[str, Any], name: str) -> list[str]:
    """What a worker had, and what of that was its own; nothing where there was no worker, or none was seen."""
    most = results["worker_bytes"].get(name)
    return ["", ""] if most is None else [f"{most[what] >> 20:,}" for what in ("resident", "own")]

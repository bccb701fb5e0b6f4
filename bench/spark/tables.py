"""The figures of the benchmark on Spark as tables."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.bench.runs.tables import contenders_table, failures_table
from millpond.bench.spark.growth import ends
from millpond.stores.backend.column_changes import MOST_MERGED_BYTES

_KEPT: Final = f"Of what a micro-batch changes in a store, a worker keeps {MOST_MERGED_BYTES >> 20:,} MiB as columns."


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print the contenders, the results of each workload, and the failures."""
    console.print(contenders_table(figures["contenders"], "what a micro-batch has kept"))
    for workload, query in figures["queries"].items():
        results = [row for row in figures["results"] if row["workload"] == workload]
        console.print(_query_table(workload, query, results, figures["settings"]))
        if query["ratios"]:
            console.print(_ratios_table(workload, results, list(query["ratios"])))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))


def _query_table(
    workload: str, query: Mapping[str, Any], results: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> Table:
    """Return a row per contender: rows per second, time of a micro-batch, memory of a Python worker, and disk.

    Flink's rates are those of a job that runs; what they are with its start-up stands below.
    """
    table = _table(
        f"{workload}: {settings['rows']:,} rows per micro-batch, {settings['keys']:,} keys",
        ["rows/s", "least to most", "s/micro-batch", "CPU s/micro-batch", "worker MiB", "of its own", "state MiB"],
    )
    table.caption = f"{_KEPT}\n{_of_flink(query['flink'])}" if "flink" in query else _KEPT
    for row in results:
        name, rate = row["contender"], row["throughput"]
        spread = f"{rate['min']:,.0f} to {rate['max']:,.0f}"
        seconds = f"{query['seconds_per_batch'][name]:.2f}"
        spent = "" if row["cpu_s"] is None else f"{row['cpu_s'] * settings['rows'] / row['operations']:.2f}"
        disk = "" if row["disk_bytes"] is None else f"{row['disk_bytes'] >> 20:,}"
        table.add_row(name, f"{rate['median']:,.0f}", spread, seconds, spent, *_memory(query, name), disk)
    return table


def _ratios_table(workload: str, results: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> Table:
    """Return a row per contender: how many times as many rows per second it has as each peer."""
    per_second = {row["contender"]: row["throughput"]["median"] for row in results}
    table = _table(f"{workload}: times the rows/s of", peers)
    for name, rate in per_second.items():
        table.add_row(name, *(f"{rate / per_second[peer]:.2f}" for peer in peers))
    return table


def print_growth(console: Console, results: Mapping[str, Any]) -> None:
    """Print a row per contender: the time of the first and the last micro-batches, and a Python worker's memory."""
    table = _table(
        f"{results['workload']}: growing to {results['keys']:,} keys, {results['rows']:,} rows per micro-batch",
        ["micro-batches", "first, s", "last, s", "last / first", "worker MiB", "of its own"],
    )
    table.caption = _KEPT
    for name, seconds in results["batch_seconds"].items():
        first, last = (f"{end:.2f}" for end in ends(seconds))
        ratio = f"{results['growth'][name]:.2f}"
        table.add_row(name, str(len(seconds)), first, last, ratio, *_memory(results, name))
    console.print(table)
    for name, reason in results.get("failed", {}).items():
        console.print(Text(f"{name} failed: {reason}", style="red"))


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title)
    table.add_column("contender", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _of_flink(figures: Mapping[str, Any]) -> str:
    """Return how Flink ran, in a sentence for each contender in it."""
    versions = ", ".join(f"{name.capitalize()} {number}" for name, number in figures["versions"].items())
    said = [f"{versions}: rows/s of a job that runs, with a checkpoint every {figures['checkpoint_seconds']} s."]
    for name, seconds in figures["start_up_seconds"].items():
        rate = figures["rows_per_second_with_start_up"][name]
        said.append(f"With a start-up of {seconds:.1f} s, {name} has {rate:,.0f} rows/s of as many micro-batches.")
    return "\n".join(said)


def _memory(results: Mapping[str, Any], name: str) -> list[str]:
    """Return the memory of a worker, and its own part of that; nothing where there was no worker, or none was seen."""
    most = results["worker_bytes"].get(name)
    return ["", ""] if most is None else [f"{most[what] >> 20:,}" for what in ("resident", "own")]

"""The figures of ``millpond bench processors`` as tables to read."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millpond.bench.processors.run import DICT
from millpond.bench.runs.tables import contenders_table, failures_table

MIB = 2**20
_PERCENTILES = {"p50": "p50 ms", "p90": "p90 ms", "p99": "p99 ms", "p99_9": "p99.9 ms", "max": "max ms"}


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print the results, the failures, and for each backend the functions in which the time went."""
    console.print(contenders_table(figures["contenders"], "what a commit has done"))
    console.print(_results(figures["results"], figures["settings"]))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))
    for profile in figures["profiles"]:
        console.print(_profile(profile))


def _results(results: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"{settings['records']:,} records of {settings['keys']:,} keys through the driver, runs: "
        f"{settings['repeat']}",
        caption=f"Latencies are of {settings['latency_of']}; with too few in a run there are none.",
    )
    for column in ("workload", "contender"):
        table.add_column(column, no_wrap=True)
    for column in ("records/s", "least to most", f"x {DICT}", *_PERCENTILES.values(), "CPU s", "peak MiB", "disk MiB"):
        table.add_column(column, justify="right", no_wrap=True)
    for workload, rows in groupby(results, key=lambda row: str(row["workload"])):
        table.add_section()
        together = list(rows)
        plain = next((row["throughput"]["median"] for row in together if row["contender"] == DICT), None)
        for place, row in enumerate(together):
            table.add_row("" if place else workload, escape(row["contender"]), *_figures(row, plain))
    return table


def _figures(row: Mapping[str, Any], plain: float | None) -> Iterator[str]:
    throughput, latency, disk = row["throughput"], row["latency_us"], row["disk_bytes"]
    yield f"{throughput['median']:,.0f}"
    yield f"{throughput['min']:,.0f} to {throughput['max']:,.0f}"
    yield "" if plain is None else f"{throughput['median'] / plain:.2f}"
    yield from ("" if latency is None else f"{latency[name] / 1e3:,.2f}" for name in _PERCENTILES)
    yield f"{row['cpu_s']:.2f}"
    yield f"{row['peak_rss_bytes'] / MIB:,.1f}"
    yield "" if disk is None else f"{disk / MIB:,.1f}"


def _profile(profile: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"profile: {profile['workload']} on {escape(profile['contender'])} (the profiler slows calls down)"
    )
    for column in ("function", "calls/record", "us/record", "with callees"):
        table.add_column(column, justify="left" if column == "function" else "right")
    for row in profile["functions"]:
        table.add_row(
            row["function"],
            f"{row['calls_per_record']:.2f}",
            f"{row['own_us']:.2f}",
            f"{row['cumulative_us']:.2f}",
        )
    return table

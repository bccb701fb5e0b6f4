"""The figures of ``millpond bench engines`` as tables to read."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millpond.bench.runs.tables import contenders_table, failures_table

MIB = 2**20


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print who was measured, what came out, and what failed."""
    console.print(contenders_table(figures["contenders"], "what a write has done", "cache"))
    console.print(_results(figures["results"], figures["settings"]))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))


def _results(results: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    table = Table(title=_title(settings))
    for column in ("workload", "contender"):
        table.add_column(column, no_wrap=True)
    named = ("p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "CPU s", "peak MiB", "disk MiB", "written")
    for column in ("operations/s", "least to most", *named):
        table.add_column(column, justify="right", no_wrap=True)
    for workload, rows in groupby(results, key=lambda row: str(row["workload"])):
        table.add_section()
        for place, row in enumerate(rows):
            table.add_row("" if place else workload, escape(row["contender"]), *_figures(row))
    return table


def _title(settings: Mapping[str, Any]) -> str:
    ratio = settings["cache_ratio"]
    cache = "caches as they come" if ratio is None else f"data {ratio:g} times the cache where it can be set"
    return (
        f"{settings['records']:,} records of {settings['key_bytes']} + {settings['value_bytes']} bytes "
        f"({settings['data_bytes'] / MIB:,.1f} MiB), {cache}; runs: {settings['repeat']}, rows "
        f"of a write: {settings['batch']}; the clock takes {settings['clock_ns']} ns of each operation"
    )


def _figures(row: Mapping[str, Any]) -> Iterator[str]:
    throughput, written = row["throughput"], row["write_amplification"]
    yield f"{throughput['median']:,.0f}"
    yield f"{throughput['min']:,.0f} to {throughput['max']:,.0f}"
    for name in ("p50", "p90", "p99", "p99_9", "max"):
        yield f"{row['latency_us'][name]:,.1f}"
    yield f"{row['cpu_s']:.2f}"
    yield f"{row['peak_rss_bytes'] / MIB:,.1f}"
    yield f"{row['disk_bytes'] / MIB:,.1f}"
    yield "" if written is None else f"{written:.2f}x"

"""The figures of ``millpond bench stores`` as tables to read."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millpond.bench.runs.tables import contenders_table, failures_table

MIB = 2**20
_PERCENTILES = {"p50": "p50 us", "p90": "p90 us", "p99": "p99 us", "p99_9": "p99.9 us", "max": "max us"}


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print who was measured, what was done, what came out, and what failed."""
    console.print(contenders_table(figures["contenders"], "what a write has done", "cache"))
    console.print(_workloads(figures["workloads"]))
    console.print(_results(figures["results"], figures["settings"], figures["contenders"]))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))


def _workloads(workloads: Mapping[str, Mapping[str, str | None]]) -> Table:
    table = Table(title="what one operation is")
    for column in ("workload", "of the store", "of the engine alone"):
        table.add_column(column, overflow="fold")
    for name, meaning in workloads.items():
        table.add_row(name, meaning["operation"], meaning["engine"] or "")
    return table


def _results(
    results: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], contenders: Sequence[Mapping[str, str]]
) -> Table:
    table = Table(title=_title(settings), caption=f"Latencies are of {settings['latency_of']}.")
    for column in ("workload", "contender"):
        table.add_column(column, no_wrap=True)
    named = (*_PERCENTILES.values(), "commit p50 us", "CPU s", "peak MiB", "disk MiB")
    for column in ("operations/s", "least to most", "x engine", *named):
        table.add_column(column, justify="right", no_wrap=True)
    engines = {one["label"]: one["name"] for one in contenders if one["kind"] == "engine"}
    below = {one["label"]: [label for label, name in engines.items() if name == one["name"]] for one in contenders}
    for workload, rows in groupby(results, key=lambda row: str(row["workload"])):
        table.add_section()
        together = list(rows)
        rates = {row["contender"]: row["throughput"]["median"] for row in together}
        for place, row in enumerate(together):
            alone = [rates[label] for label in below[row["contender"]] if label in rates]
            of_engine = alone[0] if len(alone) == 1 and row["contender"] not in engines else None
            table.add_row("" if place else workload, escape(row["contender"]), *_figures(row, of_engine))
    return table


def _title(settings: Mapping[str, Any]) -> str:
    ratio, keys = settings["cache_ratio"], settings["keys"]
    cache = "caches as they come" if ratio is None else f"data {ratio:g} times the cache where it can be set"
    rows = " and ".join(f"{number:,}" for number in (keys if isinstance(keys, list) else [keys]))
    return (
        f"{settings['records']:,} operations on {rows} rows of {settings['key_bytes']} + {settings['value_bytes']} "
        f"bytes, {cache}; runs: {settings['repeat']}, operations of a commit: {settings['batch']:,}; the clock takes "
        f"{settings['clock_ns']} ns of each"
    )


def _figures(row: Mapping[str, Any], engine: float | None) -> Iterator[str]:
    throughput, latency = row["throughput"], row["latency_us"]
    commit = (row.get("by_operation") or {}).get("commit")
    yield f"{throughput['median']:,.0f}"
    yield f"{throughput['min']:,.0f} to {throughput['max']:,.0f}"
    yield "" if engine is None else f"{throughput['median'] / engine:.2f}"
    yield from ("" if latency is None else f"{latency[name]:,.1f}" for name in _PERCENTILES)
    yield "" if commit is None else f"{commit['p50']:,.0f}"
    yield f"{row['cpu_s']:.2f}"
    yield f"{row['peak_rss_bytes'] / MIB:,.1f}"
    yield f"{row['disk_bytes'] / MIB:,.1f}"

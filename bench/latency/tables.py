"""Latencies at a fixed rate as tables: a row per rate and contender."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from millpond.bench.runs.tables import contenders_table, failures_table

_PERCENTILES: Final = ("p50", "p99", "max")
_COLUMNS: Final = (
    *(f"{name} ms" for name in _PERCENTILES),
    "micro-batches",
    "their p50 ms",
    "their p99 ms",
    "lag s",
    "late rows",
    "cores",
    "state MiB",
)


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print the contenders, the results, and who has none."""
    console.print(contenders_table(figures["contenders"], "what a micro-batch has kept"))
    if figures["results"]:
        console.print(_latencies(figures))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))


def _latencies(figures: Mapping[str, Any]) -> Table:
    settings = figures["settings"]
    table = Table(
        title=f"{settings['seconds']:g} s at a fixed rate, after {settings['warm_up_seconds']:g} s that do not count; "
        f"{settings['keys']:,} keys, {settings['cores']} cores",
        caption=f"Latency of {settings['latency_of']}.\nLag: the age of the oldest row without a result, at half time "
        "and at the end; where it shrinks, warm up for longer. Cores: processor time of all processes over time.",
    )
    for column in ("workload", "contender"):
        table.add_column(column, no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for workload, at_rate in figures["at_rates"].items():
        table.add_section()
        for row in (row for row in figures["results"] if row["workload"] == workload):
            table.add_row(workload, row["contender"], *_cells(row, at_rate, settings))
    return table


def _cells(row: Mapping[str, Any], at_rate: Mapping[str, Any], settings: Mapping[str, Any]) -> Sequence[str]:
    name, batch = row["contender"], row["by_operation"]["micro-batch"]
    lag = at_rate["lag_seconds"][name]
    return [
        *(_millis(row["latency_us"][percentile]) for percentile in _PERCENTILES),
        f"{at_rate['micro_batches'][name]:,}",
        _millis(batch["p50"]),
        _millis(batch["p99"]),
        f"{lag['half_time']:.1f}, {lag['end']:.1f}",
        f"{at_rate['late_rows'][name]:,}",
        "" if row["cpu_s"] is None else f"{row['cpu_s'] / settings['seconds']:.2f}",
        "" if row["disk_bytes"] is None else f"{row['disk_bytes'] >> 20:,}",
    ]


def _millis(micros: float) -> str:
    return f"{micros / 1e3:,.0f}"

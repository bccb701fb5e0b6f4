"""The figures of ``millpond bench stores`` as tables to read."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_results(console: Console, report: Mapping[str, Any]) -> None:
    """Print every part that ``report`` has."""
    console.print(_operations("typed store beside raw engine", report["results"]))
    console.print(_footprint(report["footprint"]))
    if report.get("restore"):
        console.print(_restore(report["restore"]))
    if report.get("checksums"):
        console.print(_checksums(report["checksums"]))
    if report.get("growth"):
        console.print(_operations("growth", report["growth"]))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < 3 else "right")
    return table


def _operations(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(title, "backend", "kind", "operation", "keys", "ops/s", "p50 us", "p99 us", "raw ops/s", "overhead")
    for row in rows:
        store, raw = row["store"], row["raw"]
        table.add_row(
            row["backend"],
            row["kind"],
            row["operation"],
            f"{row['keys']:,}",
            f"{store['per_second']:,.0f}",
            _number(store["p50_us"]),
            _number(store["p99_us"]),
            "" if raw is None else f"{raw['per_second']:,.0f}",
            _figure(row["overhead"], "x"),
        )
    return table


def _footprint(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("footprint", "backend", "kind", "keys", "rows", "MiB in the backend", "MiB of the process")
    for row in rows:
        table.add_row(
            row["backend"],
            row["kind"],
            f"{row['keys']:,}",
            f"{row['rows']:,}",
            f"{row['bytes_on_disk'] / 2**20:,.1f}",
            f"{row['resident_bytes'] / 2**20:,.1f}",
        )
    return table


def _restore(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("restore", "backend", "keys", "restore s", "raw load s", "ratio", "raw read and load s", "ratio")
    for row in rows:
        table.add_row(
            row["backend"],
            f"{row['keys']:,}",
            f"{row['restore_s']:.2f}",
            _figure(row["load_s"]),
            _figure(row["ratio"], "x"),
            _figure(row["read_and_load_s"]),
            _figure(row["ratio_with_reading"], "x"),
        )
    return table


def _checksums(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("checksums, us of processor time", "backend", "kind", "operation", "keys", "without", "with", "more")
    for row in rows:
        without, checksummed = row["without_us"], row["with_us"]
        table.add_row(
            row["backend"],
            row["kind"],
            row["operation"],
            f"{row['keys']:,}",
            f"{without:.2f}",
            f"{checksummed:.2f}",
            f"{checksummed - without:.2f}",
        )
    return table


def _figure(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.2f}{unit}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"

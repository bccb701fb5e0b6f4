"""The tables that figures of several benchmarks have in common: who was measured, and what failed."""

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table


def contenders_table(contenders: Sequence[Mapping[str, str]], promise: str) -> Table:
    """Who was measured; ``promise`` heads the column of what each promises."""
    table = Table(title="contenders")
    for column in ("contender", "from", promise):
        table.add_column(column, overflow="fold")
    for row in contenders:
        table.add_row(*map(escape, (row["label"], f"{row['distribution']} {row['version']}", row["durability"])))
    return table


def failures_table(failures: Sequence[Mapping[str, str]]) -> Table:
    """What was not measured, and why."""
    table = Table(title="not measured")
    for column in ("contender", "workload", "reason"):
        table.add_column(column, overflow="fold")
    for row in failures:
        table.add_row(*(escape(row[name]) for name in ("contender", "workload", "reason")))
    return table

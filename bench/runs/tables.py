"""The tables that benchmarks have in common: contenders and failures; and the progress bar."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from millpond.bench.runs.turns import Watch


@contextmanager
def progress(console: Console, runs: int) -> Iterator[Watch]:
    """A bar on ``console`` while the runs go on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=runs)

        def watch(workload: str, contender: str) -> None:
            bar.update(task, advance=1, description=escape(f"{workload}, {contender}"))

        yield watch


def contenders_table(contenders: Sequence[Mapping[str, str]], promise: str, *more: str) -> Table:
    """Return the table of contenders; ``promise`` heads the column of their promises, ``more`` are further columns."""
    table = Table(title="contenders")
    for column in ("contender", "from", promise, *more):
        table.add_column(column, overflow="fold")
    for row in contenders:
        known = (row[name] for name in ("durability", *more))
        table.add_row(*map(escape, (row["label"], f"{row['distribution']} {row['version']}", *known)))
    return table


def failures_table(failures: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of what was not measured, and why."""
    table = Table(title="not measured")
    for column in ("contender", "workloads", "reason"):
        table.add_column(column, overflow="fold")
    workloads: dict[tuple[str, str], list[str]] = {}
    for row in failures:
        workloads.setdefault((row["contender"], row["reason"]), []).append(row["workload"])
    for (contender, reason), names in workloads.items():
        table.add_row(*map(escape, (contender, ", ".join(names), reason)))
    return table

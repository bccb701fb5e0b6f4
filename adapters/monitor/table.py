"""An overview as tables in a terminal.

Rule of this module: it shows what an overview has, and no more rows than help: the last micro-batches, the largest
tasks.
"""

from collections.abc import Sequence
from datetime import datetime
from heapq import nlargest
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from millpond.adapters.monitor.diagnosis.finding import Finding
from millpond.adapters.monitor.diagnosis.units import UNKNOWN, duration, number, size, times
from millpond.adapters.monitor.overview import BatchSeen, Overview

_BATCHES: Final = 8
_TASKS: Final = 12
_LEAST: Final = 9
"""Characters that a column of text has in the narrowest terminal."""
_NAMES: Final = 2
"""The number of a micro-batch's longest steps that are named."""


def tables(overview: Overview) -> RenderableType:
    """Return the overview's tables, one below the other, without empty ones. A low screen shows the first lines."""
    parts: list[RenderableType] = [_head(overview)]
    parts += [_found(overview, found) for found in overview.findings]
    parts += [Text(f"note: {note}", style="yellow") for note in overview.notes]
    for table in (
        _batches(overview),
        _sources(overview),
        _operators(overview),
        _work(overview),
        _reasons(overview),
        _stores(overview),
        _each(overview),
        _hot_keys(overview),
        _limits(overview),
        _tasks(overview),
    ):
        if table.row_count:
            parts += ["", table]
    return Group(*parts)


def state_of(overview: Overview) -> str:
    """Return how far the query is, in a line."""
    parts = []
    if overview.batch is None or overview.committed is None:
        parts.append("no micro-batch has been committed yet")
    else:
        parts.append(f"micro-batch {overview.batch} committed {duration(overview.at - overview.committed)} ago")
    if overview.open_batch is not None and overview.open_since is not None:
        since = duration(overview.at - overview.open_since)
        parts.append(f"micro-batch {overview.open_batch} begun {since} ago, not committed")
    parts += _life(overview)
    return "; ".join(parts)


def _life(overview: Overview) -> list[str]:
    """Return when and how the last run has ended, and how many runs there were before."""
    run, parts = overview.run, []
    if run is not None and run.ended is not None:
        code = "" if run.code is None else f" [{run.code}]"
        why = "" if run.error is None else f" by {run.error}{code}"
        parts.append(f"ended {duration(overview.at - run.ended)} ago{why}")
    if overview.restarts:
        parts.append(f"started again {times(overview.restarts)}")
    return parts


def _found(overview: Overview, found: Finding) -> Text:
    since = "" if found.since is None else f", since {duration(overview.at - found.since)}"
    said = f"{found.state}{since}: {found.figures}; {found.advice} ({found.page})"
    return Text(said, style="bold red")


def _head(overview: Overview) -> Text:
    name = overview.name or overview.query
    return Text.assemble((name, "bold"), f"  {overview.checkpoint}\n", state_of(overview))


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in left:
        table.add_column(name, overflow="fold", min_width=_LEAST)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _batches(overview: Overview) -> Table:
    table = _table("micro-batches", ["batch"], ["committed", "took", "rows", "rows/s", "processed/s"])
    table.add_column("longest steps", overflow="fold")
    for one in reversed(overview.batches[-_BATCHES:]):
        at = one.committed or one.begun
        table.add_row(
            str(one.number),
            UNKNOWN if at is None else datetime.fromtimestamp(at / 1000).strftime("%H:%M:%S"),
            duration(one.took),
            number(one.rows),
            number(one.per_second),
            number(one.processed_per_second),
            _steps(one),
        )
    return table


def _steps(one: BatchSeen) -> str:
    longest = nlargest(_NAMES, one.steps.items(), key=lambda step: step[1])
    return ", ".join(f"{name} {duration(took)}" for name, took in longest) or UNKNOWN


def _sources(overview: Overview) -> Table:
    table = _table("sources", ["source"], ["rows", "rows/s", "behind"])
    for one in overview.sources:
        table.add_row(escape(one.name), number(one.rows), number(one.per_second), number(one.behind))
    return table


def _operators(overview: Overview) -> Table:
    table = _table("operators", ["operator"], ["batch", "in", "out", "dropped", "late", "waiting", "lag"])
    for one in overview.operators:
        counts = map(number, (one.records_in, one.records_out, one.dropped, one.late, one.waiting))
        table.add_row(escape(one.operator), str(one.batch), *counts, duration(one.lag))
    return table


def _work(overview: Overview) -> Table:
    times = ["open", "process", "flush", "commit", "other"]
    table = _table("work, summed over tasks", ["operator"], ["tasks", *times])
    for one in overview.operators:
        table.add_row(escape(one.operator), str(one.tasks), *(duration(one.work.get(name)) for name in times))
    return table


def _reasons(overview: Overview) -> Table:
    table = _table("dropped, late and waiting records", ["operator", "node", "reason"], ["records"])
    for one in overview.reasons:
        table.add_row(*map(escape, (one.operator, one.node or UNKNOWN, one.reason)), number(one.records))
    return table


def _stores(overview: Overview) -> Table:
    table = _table("stores", ["store", "kind", "application"], ["tasks", "bytes"])
    for one in overview.stores:
        table.add_row(*map(escape, (one.store, one.kind, one.application)), number(one.tasks), size(one.size))
    return table


def _each(overview: Overview) -> Table:
    shown = overview.work[:_TASKS]
    more = len(overview.work) - len(shown)
    title = f"work of the tasks with most records, of {len(overview.work)}" if more else "work of each task"
    figures = ["in", "out", "late", "rows", "bytes", "open", "process", "commit", "all"]
    table = _table(title, ["operator"], ["task", *figures])
    for one in shown:
        counts = map(number, (one.records_in, one.records_out, one.late, one.rows))
        times = map(duration, (one.open, one.process, one.commit, one.took))
        table.add_row(escape(one.operator), one.task, *counts, size(one.size), *times)
    return table


def _hot_keys(overview: Overview) -> Table:
    table = _table("keys that most records have", ["key", "operator"], ["task", "records", "share"])
    for one in overview.hot_keys:
        table.add_row(*map(escape, (one.key, one.operator)), one.task, f"~{number(one.records)}", f"{one.share:.0%}")
    return table


def _limits(overview: Overview) -> Table:
    table = _table("what may come to its end", ["what", "task"], ["used", "of", "share"])
    for one in overview.limits:
        share = f"{one.used / max(1, one.limit):.0%}"
        table.add_row(one.what, escape(one.of), size(one.used), size(one.limit), share)
    return table


def _tasks(overview: Overview) -> Table:
    shown = nlargest(_TASKS, overview.tasks, key=lambda one: one.size)
    more = len(overview.tasks) - len(shown)
    title = f"tasks, the largest of {len(overview.tasks)}" if more else "tasks"
    table = _table(title, ["task", "application"], ["commit", "files", "deltas", "rows", "bytes", ""])
    largest = max((one.size for one in shown), default=0)
    for one in shown:
        counts = map(number, (one.commit, one.files, one.deltas, one.rows))
        table.add_row(one.task, escape(one.application), *counts, size(one.size), _bar(one.size, largest))
    return table


def _bar(amount: int, largest: int) -> str:
    return ("█" * round(12 * amount / largest) if largest else "").ljust(12)


def problem(message: str) -> Text:
    """Return the text that stands in place of the tables where there is nothing to show."""
    return Text(message, style="red")

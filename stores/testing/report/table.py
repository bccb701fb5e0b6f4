"""The figures of backends side by side, as a table of Markdown for a README.

Rule of this module: it measures nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millpond.stores.testing.report.figures import FEW, MANY, Figures

_MIB: Final = 2**20
_UNKNOWN: Final = "not known"


def table(figures: Sequence[Figures]) -> str:
    """Return a row for each figure, a column for each backend."""
    head = ["", *(one.backend for one in figures)]
    lines = [head, ["---", *("---:" for _ in figures)]]
    lines += [[name, *map(shown, figures)] for name, shown in _rows(figures[0].changes)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows(changes: int) -> Iterator[tuple[str, Callable[[Figures], str]]]:
    yield "writes of one change, per s", lambda one: f"{one.writes_per_s:,.0f}"
    yield "changes in writes of 1,000, per s", lambda one: f"{one.rows_per_s:,.0f}"
    yield f"gets among {FEW:,} entries, per s", lambda one: f"{one.gets_per_s:,.0f}"
    yield f"gets among {MANY:,} entries, per s", lambda one: f"{one.gets_among_many_per_s:,.0f}"
    yield "entries of a scan, per s", lambda one: f"{one.scanned_per_s:,.0f}"
    yield "syncs per write", lambda one: _or_unknown(one.syncs_a_write, "{:,.2f}")
    yield "syncs per flush", lambda one: _or_unknown(one.syncs_a_flush, "{:,.2f}")
    after = f"after {changes:,} changes of {MANY:,} keys"
    yield f"memory, MiB more {after} than after a tenth of them", _memory
    yield f"disk {after}, times the content", lambda one: f"{one.disk_after / one.content:,.1f}"
    yield "disk meanwhile at most, times the content", lambda one: f"{one.disk_most / one.content:,.1f}"
    yield "files meanwhile at most", lambda one: f"{one.files_most:,}"
    yield f"open files, more {after} than after a tenth of them", _open_files
    yield "closing and opening again, s", lambda one: f"{one.reopened_s:,.3f}"


def _memory(one: Figures) -> str:
    if one.memory_before is None or one.memory_after is None:
        return _UNKNOWN
    return f"{(one.memory_after - one.memory_before) / _MIB:,.1f}"


def _open_files(one: Figures) -> str:
    if one.open_before is None or one.open_after is None:
        return _UNKNOWN
    return f"{one.open_after - one.open_before:,}"


def _or_unknown(figure: float | None, form: str) -> str:
    return _UNKNOWN if figure is None else form.format(figure)

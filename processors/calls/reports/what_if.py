"""``WhatIf``: the effect of changed code on the same rows, beside that of the current code.

Rule of this module: it shows rows and entries that others have compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any, Final

from millpond.processors.calls.reports.batch_twin import Differs, RowDifference
from millpond.processors.calls.reports.side_by_side import html_table, row_cells, text_table

_TITLES: Final = ("", "key", "columns", "now", "changed")


class Side(StrEnum):
    """The code that has a row."""

    NOW = "only now"
    """The current code alone."""

    CHANGED = "only changed"
    """The changed one alone."""

    BOTH = "different"
    """Both have one of its key, with other values."""


_SIDES: Final = {Differs.EXTRA: Side.NOW, Differs.MISSING: Side.CHANGED, Differs.DIFFERENT: Side.BOTH}


@dataclass(frozen=True)
class ChangedRow:
    """A row that differs between the two codes.

    Attributes:
        side: the code that has it.
        key: its key; empty if rows have none.
        columns: the columns with other values, if both have it.
        now, changed: the row of either code; None if it has none.
    """

    side: Side
    key: Mapping[str, Any]
    columns: tuple[str, ...]
    now: Mapping[str, Any] | None
    changed: Mapping[str, Any] | None

    @classmethod
    def of(cls, found: RowDifference) -> "ChangedRow":
        """Return the row from a difference, where the rows of now were taken for what was written."""
        return cls(_SIDES[found.differs], found.key, found.columns, found.written, found.computed)


@dataclass(frozen=True)
class Comparison:
    """The rows of both codes, compared by the columns that both have.

    Attributes:
        now, changed: how many rows either code has.
        only_now, only_changed: how many of them it has alone.
        different: the number of keys for which both have rows, with other values.
        differences: the first of all these.
        columns_now, columns_changed: columns that only one of them has, which are not compared.
    """

    now: int
    changed: int
    only_now: int
    only_changed: int
    different: int
    differences: tuple[ChangedRow, ...]
    columns_now: tuple[str, ...] = ()
    columns_changed: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """True if nothing differs, columns included."""
        return not (self.only_now or self.only_changed or self.different or self.columns_now or self.columns_changed)

    @property
    def told(self) -> str:
        """The numbers of rows that differ, in a line."""
        counts = f"{self.now:,} now, {self.changed:,} changed"
        if self.equal:
            return f"{counts}; nothing differs"
        found = zip(Side, (self.only_now, self.only_changed, self.different), strict=True)
        columns = zip((Side.NOW, Side.CHANGED), (self.columns_now, self.columns_changed), strict=True)
        beside = [f"columns {side}: {', '.join(names)}" for side, names in columns if names]
        return "; ".join([counts, ", ".join(f"{count:,} {side}" for side, count in found), *beside])

    @property
    def lines(self) -> list[Sequence[str]]:
        """The rows that differ, as text."""
        return [(one.side.value, *row_cells(one.key, one.columns, one.now, one.changed)) for one in self.differences]


@dataclass(frozen=True)
class WhatIf:
    """The effect of changed code on the same rows. ``str`` makes tables of it, and a notebook shows them.

    Attributes:
        after: the micro-batch after which both have begun.
        until: the last one that both have run.
        rows: their results.
        state: the contents of their stores after it, by the verb and the store, such as ``totals.aggregate``.
        stores_now, stores_changed: stores that only one of them has.
    """

    after: int
    until: int
    rows: Comparison
    state: Mapping[str, Comparison]
    stores_now: tuple[str, ...] = ()
    stores_changed: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """True if nothing differs."""
        alike = all(one.equal for one in (self.rows, *self.state.values()))
        return alike and not (self.stores_now or self.stores_changed)

    def __str__(self) -> str:
        return "\n".join(self._texts())

    def _repr_html_(self) -> str:
        parts = ((told, html_table(_TITLES, one.lines) if one.lines else "") for told, one in self._parts)
        tables = "".join(f"<p>{escape(told)}</p>{table}" for told, table in parts)
        return "".join([f"<p>{escape(self._head)}</p>", tables, *(f"<p>{escape(line)}</p>" for line in self._stores)])

    def _texts(self) -> Iterable[str]:
        yield self._head
        for told, one in self._parts:
            yield told
            yield from text_table(_TITLES, one.lines) if one.lines else ()
        yield from self._stores

    @property
    def _parts(self) -> list[tuple[str, Comparison]]:
        every = {"rows": self.rows, **{f"state of {name}": one for name, one in self.state.items()}}
        return [(f"{name}: {one.told}", one) for name, one in every.items()]

    @property
    def _head(self) -> str:
        return f"micro-batches {self.after + 1} to {self.until}"

    @property
    def _stores(self) -> list[str]:
        sides = zip((Side.NOW, Side.CHANGED), (self.stores_now, self.stores_changed), strict=True)
        return [f"stores {side}: {', '.join(names)}" for side, names in sides if names]

"""``Verification``: differences between rows that were written and rows that the same verbs compute again.

Rule of this module: it pairs and shows rows that somebody has found to differ.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any, Final, NamedTuple

from millpond.errors import MissingArgumentError, UnknownColumnError
from millpond.processors.calls.reports.side_by_side import html_table, row_cells, text_table

_TITLES: Final = ("", "key", "columns", "written", "computed")


class Differs(StrEnum):
    """The way in which a row differs."""

    MISSING = "missing"
    """It was not written."""

    EXTRA = "extra"
    """It was written, and is not computed."""

    DIFFERENT = "different"
    """The rows written for its key have other values."""


class Unequal(NamedTuple):
    """Equal rows of different number on both sides.

    Attributes:
        row: their columns.
        surplus: how many more were written than computed, less than zero if they are fewer.
    """

    row: Mapping[str, Any]
    surplus: int


@dataclass(frozen=True)
class RowDifference:
    """A row that differs between the sides.

    Attributes:
        differs: the way in which it differs.
        key: its key; empty if rows have none.
        columns: the columns that have other values, if both sides have the row.
        written, computed: the row on either side; None where there is none.
    """

    differs: Differs
    key: Mapping[str, Any]
    columns: tuple[str, ...]
    written: Mapping[str, Any] | None
    computed: Mapping[str, Any] | None


@dataclass(frozen=True)
class Verification:
    """The differences between rows that were written and rows that were computed again. ``str`` makes a table of them.

    Attributes:
        rows: how many rows were computed.
        missing: how many of them were not written.
        extra: how many others were written.
        different: the number of keys on both sides whose rows have other values.
        differences: the first of these rows.
    """

    rows: int
    missing: int
    extra: int
    different: int
    differences: tuple[RowDifference, ...]

    @property
    def equal(self) -> bool:
        """True if nothing differs."""
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        if self.equal:
            return self._head
        return "\n".join([self._head, *text_table(_TITLES, self._lines)])

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._head)}</p>{'' if self.equal else html_table(_TITLES, self._lines)}"

    @property
    def _lines(self) -> list[Sequence[str]]:
        return [
            (one.differs.value, *row_cells(one.key, one.columns, one.written, one.computed)) for one in self.differences
        ]

    @property
    def _head(self) -> str:
        if self.equal:
            return f"rows computed: {self.rows:,}; nothing differs"
        told = {Differs.MISSING: self.missing, Differs.EXTRA: self.extra, Differs.DIFFERENT: self.different}
        counts = ", ".join(f"{count:,} {name}" for name, count in told.items())
        return f"rows computed: {self.rows:,}; {counts}"


def paired(found: Sequence[Unequal], key: Sequence[str]) -> Iterator[RowDifference]:
    """Yield the rows that differ, those of one key on both sides together.

    Args:
        found: the rows.
        key: the columns of the key; none if rows have none.
    """
    groups: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for number, (row, surplus) in enumerate(found):
        group = groups[repr([row[name] for name in key]) if key else str(number)]
        group[surplus < 0].extend([row] * abs(surplus))
    for written, computed in groups.values():
        both = min(len(written), len(computed))
        for one, other in zip(written, computed, strict=False):
            columns = tuple(name for name, value in one.items() if repr(value) != repr(other[name]))
            yield RowDifference(Differs.DIFFERENT, _key_of(one, key), columns, one, other)
        for one in computed[both:]:
            yield RowDifference(Differs.MISSING, _key_of(one, key), (), None, one)
        for one in written[both:]:
            yield RowDifference(Differs.EXTRA, _key_of(one, key), (), one, None)


def check_key(key: Sequence[str], columns: Collection[str], *, feed: bool) -> None:
    """Refuse a key that rows do not have, and a change feed without a key.

    Raises:
        ConfigurationError: the key is so, or is missing.
    """
    for name in key:
        if name not in columns:
            raise UnknownColumnError(f"the key has {name!r}, but the rows only {', '.join(columns)}")
    if feed and not key:
        raise MissingArgumentError(
            "the rows are a change feed, and nothing says which of them replace each other; give key=..., the columns "
            "of its key, with 'window' if it has windows"
        )


def check_interval(time: object, since: object, until: object) -> None:
    """Refuse an interval of no column.

    Raises:
        ConfigurationError: it is one.
    """
    if time is None and (since is not None or until is not None):
        raise MissingArgumentError(
            f"since is {since!r} and until {until!r}, and nothing says of which column; give time='at', or leave both "
            "out"
        )


def _key_of(row: Mapping[str, Any], key: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in key}

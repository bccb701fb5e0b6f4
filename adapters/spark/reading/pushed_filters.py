"""The range of keys that the filters of a query ask for.

Rule of this module: it only narrows. Whatever it makes of filters holds all rows that pass them and maybe others, and
Spark applies the filters again. Keys are compared as Spark does where their bytes are in the same order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from millpond.adapters.inspect.columns import KeyColumn
from millpond.adapters.inspect.selection import Selection
from millpond.adapters.inspect.store_form import KEY
from millpond.errors import MillpondError

_GREATEST: Final = 2**63 - 1


@dataclass(frozen=True)
class _Range:
    """Values with ``start <= value < stop``; None leaves that side open."""

    start: Any = None
    stop: Any = None

    def within(self, other: "_Range") -> "_Range":
        """Return the values of both."""
        starts = [one for one in (self.start, other.start) if one is not None]
        stops = [one for one in (self.stop, other.stop) if one is not None]
        return _Range(max(starts, default=None), min(stops, default=None))

    @property
    def single(self) -> bool:
        """True if the range is a single value."""
        return self.start is not None and self.stop is not None and _after(self.start) == self.stop


def narrowed(selection: Selection, filters: Iterable[Filter], key: KeyColumn) -> Selection:
    """Return the selection of what passes the filters, as far as they say something of the key; else as it is.

    Args:
        selection: what is asked for; it has no keys yet, or stays as it is.
        filters: all of which a row has to pass.
        key: the column of the keys.
    """
    if selection.key_from is not None or selection.key_to is not None:
        return selection
    ranges: dict[tuple[str, ...], _Range] = {}
    for one in filters:
        found = _range(one)
        if found is not None:
            path = tuple(getattr(one, "attribute", ()))
            ranges[path] = ranges.get(path, _Range()).within(found)
    wanted = _of_columns(ranges, key.type) if pa.types.is_struct(key.type) else _of_value(ranges.get((KEY,)))
    ends = {"key_from": wanted.start, "key_to": wanted.stop}
    return replace(selection, **{name: end for name, end in ends.items() if end is not None and _is_shown(end, key)})


def _range(one: Filter) -> _Range | None:
    """Return the values that pass a filter; None if they are not known to be a range."""
    value = getattr(one, "value", None)
    values: list[Any] = list(value) if isinstance(one, In) and isinstance(value, tuple | list) else [value]
    if not values or any(type(each) not in (str, bytes, int) for each in values):
        return None
    low, high = min(values), max(values)
    ranges = {
        EqualTo: _Range(low, _after(high)),
        EqualNullSafe: _Range(low, _after(high)),
        In: _Range(low, _after(high)),
        GreaterThan: _Range(_after(low)),
        GreaterThanOrEqual: _Range(low),
        LessThan: _Range(None, high),
        LessThanOrEqual: _Range(None, _after(high)),
    }
    return ranges.get(type(one))


def _after(value: Any) -> Any:
    """Return the least value that is greater; None if there is none."""
    if isinstance(value, int):
        return None if value == _GREATEST else value + 1
    return value + ("\0" if isinstance(value, str) else b"\0")


def _of_value(found: _Range | None) -> _Range:
    """Return the range of one value's keys. The bytes of negative integers are above those of the others."""
    if found is None or not any(isinstance(end, int) for end in (found.start, found.stop)):
        return found or _Range()
    if found.start is not None and found.start >= 0:
        return found
    negative = found.start is not None and found.stop is not None and found.stop <= 0
    return _Range(found.start, found.stop or None) if negative else _Range()


def _of_columns(ranges: dict[tuple[str, ...], _Range], type_: Any) -> _Range:
    """Return the range of keys of several columns: single values, except for the last, which may have a range."""
    columns = [ranges.get((KEY, field.name), _Range()) for field in type_]
    if not columns or not all(column.single for column in columns[:-1]):
        return _Range()
    first = [column.start for column in columns[:-1]]
    last = columns[-1]
    ends = (None if end is None else [*first, end] for end in (last.start, last.stop))
    return _Range(*ends)


def _is_shown(end: Any, key: KeyColumn) -> bool:
    """Return whether such a key is shown as itself, and not as a text of it."""
    try:
        (shown,) = key.read([key.to_bytes(end)]).to_pylist()
    except (MillpondError, TypeError, AttributeError):
        return False
    return bool(end == (list(shown.values()) if isinstance(shown, dict) else shown))

"""Which Python values the columns of a sink take.

Rule of this module: a value goes out as what it is, or not at all. Left to itself, Arrow would count microseconds of an
int, cut the digits off a float and call a time UTC that has no time zone. So each type of column names the Python types
that it takes, and what to write instead of others. Types are compared per column, not per value; only where a type says
too little (has this datetime a time zone?) each value is asked.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from millpond.errors import RecordError

_LARGEST_FLOAT: Final = float(np.finfo(np.float32).max)
_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""How Arrow refuses a value."""


class _Rule(NamedTuple):
    """What one kind of column takes.

    Attributes:
        fits: whether a column is of this kind.
        takes: whether it takes values of a Python type.
        changes: whether a value of such a type would still be changed; None if none would.
        advice: the same for a message: what it takes, and what to write.
    """

    fits: Callable[[pa.DataType], bool]
    takes: Callable[[type], bool]
    changes: Callable[[Any], bool] | None
    advice: str


@dataclass(frozen=True)
class ColumnValues:
    """Makes the columns of one sink.

    Attributes:
        topic: the sink's topic, for messages.
    """

    topic: str

    def to_array(self, path: str, type_: pa.DataType, entries: Sequence[Any]) -> Any:
        """The entries as a column.

        Args:
            path: the column's name.
            type_: its type.
            entries: one for each row; None is null.

        Raises:
            RecordError: the column cannot hold an entry, or not without changing it.
        """
        try:
            made = pa.array(entries, type_)
        except _MISFITS as error:
            raise self._refusal(path, type_, _first_misfit(entries, type_), f" ({error})") from error
        self._check(path, type_, entries)
        return made

    def _check(self, path: str, type_: pa.DataType, entries: Sequence[Any]) -> None:
        """Refuse what Arrow took for something else."""
        rule, kinds = _rule(type_), set(map(type, entries))
        refused = {kind for kind in kinds if not rule.takes(kind)} - {NoneType}
        if refused:
            raise self._refusal(path, type_, next(entry for entry in entries if type(entry) in refused))
        if rule.changes is None and not pa.types.is_nested(type_):
            return
        present = [entry for entry in entries if entry is not None] if NoneType in kinds else entries
        if rule.changes is not None:
            for changed in filter(rule.changes, present):
                raise self._refusal(path, type_, changed)
        for name, child, children in _children(type_, present):
            self._check(f"{path}.{name}", child, children)

    def _refusal(self, path: str, type_: pa.DataType, entry: Any, reason: str = "") -> RecordError:
        return RecordError(
            f"sink {self.topic!r}: column {path!r} of type {from_arrow_type(type_).simpleString():.200} cannot hold "
            f"{entry!r:.200} of type {type(entry).__name__}{reason}; it takes {_rule(type_).advice}"
        )


def _first_misfit(entries: Sequence[Any], type_: pa.DataType) -> Any:
    """The first entry that Arrow refuses."""
    for entry in entries:
        try:
            pa.array([entry], type_)
        except _MISFITS:
            return entry
    return entries


def _children(type_: pa.DataType, present: Sequence[Any]) -> Iterator[tuple[str, pa.DataType, list[Any]]]:
    """The names, types and entries of the columns inside a nested one; the names are Spark's."""
    if pa.types.is_map(type_):
        pairs = [pair for entry in present for pair in (entry.items() if isinstance(entry, dict) else entry)]
        yield "key", type_.key_type, [key for key, _ in pairs]
        yield "value", type_.item_type, [value for _, value in pairs]
    elif pa.types.is_list(type_):
        yield "element", type_.value_type, list(chain.from_iterable(present))
    elif pa.types.is_struct(type_):
        for i, field in enumerate(type_):
            entries = [entry[i] if type(entry) is tuple else entry.get(field.name) for entry in present]
            yield field.name, field.type, entries


def _instances_of(*types: type, but: tuple[type, ...] = ()) -> Callable[[type], bool]:
    return lambda kind: issubclass(kind, types) and not issubclass(kind, but)


def _loses_nanoseconds(value: Any) -> bool:
    """Whether it is one of pandas' times, which are finer than Spark's."""
    if value.__class__ is datetime or value.__class__ is timedelta:
        return False
    return bool(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))


_RULES: Final = (
    _Rule(pa.types.is_boolean, _instances_of(bool, np.bool_), None, "bool; make one with a comparison or bool(value)"),
    _Rule(
        pa.types.is_integer,
        _instances_of(int, np.integer, but=(bool, np.timedelta64)),
        None,
        "int; make one with round(value) or int(value)",
    ),
    _Rule(
        pa.types.is_float32,
        _instances_of(float, int, np.floating, np.integer, but=(bool, np.timedelta64)),
        lambda value: abs(value) > _LARGEST_FLOAT and not math.isinf(value),
        "float or int up to 3.4e38; make one with float(value), or make the column a double",
    ),
    _Rule(
        pa.types.is_floating,
        _instances_of(float, int, np.floating, np.integer, but=(bool, np.timedelta64)),
        None,
        "float or int; make one with float(value)",
    ),
    _Rule(
        pa.types.is_decimal,
        _instances_of(Decimal, int, but=(bool,)),
        None,
        "Decimal or int of no more digits than the type has; make one with Decimal(str(value)), round one with "
        "value.quantize(Decimal('0.01'))",
    ),
    _Rule(pa.types.is_string, _instances_of(str), None, "str; make one with value.decode() or str(value)"),
    _Rule(
        pa.types.is_binary,
        _instances_of(bytes, bytearray, memoryview),
        None,
        "bytes; make them of text with value.encode()",
    ),
    _Rule(
        pa.types.is_date,
        _instances_of(date, but=(datetime,)),
        None,
        "date; make one of a datetime with value.date(), of milliseconds with "
        "datetime.fromtimestamp(ms / 1000, UTC).date()",
    ),
    _Rule(
        lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None,
        _instances_of(datetime),
        lambda value: value.tzinfo is None or _loses_nanoseconds(value),
        "datetime with a time zone; make one of milliseconds with datetime.fromtimestamp(ms / 1000, UTC), of a "
        "datetime that is UTC with value.replace(tzinfo=UTC), or use the record's own column 'timestamp'",
    ),
    _Rule(
        pa.types.is_timestamp,
        _instances_of(datetime),
        lambda value: value.tzinfo is not None or _loses_nanoseconds(value),
        "datetime without a time zone; make one of milliseconds with datetime.fromtimestamp(ms / 1000, UTC)"
        ".replace(tzinfo=None), or make the column a timestamp",
    ),
    _Rule(
        pa.types.is_duration,
        _instances_of(timedelta),
        _loses_nanoseconds,
        "timedelta; make one of milliseconds with timedelta(milliseconds=ms)",
    ),
    _Rule(
        pa.types.is_time,
        _instances_of(time),
        lambda value: value.tzinfo is not None,
        "time without a time zone; make one of a datetime with value.time()",
    ),
    _Rule(
        pa.types.is_list,
        lambda kind: not issubclass(kind, bytes | bytearray | memoryview),
        None,
        "list; make one with list(value)",
    ),
    _Rule(pa.types.is_map, _instances_of(dict, list, tuple), None, "dict; make one with dict(value)"),
    _Rule(
        pa.types.is_struct,
        lambda kind: issubclass(kind, dict) or kind is tuple,
        None,
        "dict, or a tuple in the order of its fields; make one of a Row with value.asDict(), of a named tuple with "
        "value._asdict()",
    ),
    _Rule(lambda _: True, lambda _: True, None, "other values"),
)
"""The first that fits a column is its rule; the last is for types whose values Arrow never changes, such as void."""


def _rule(type_: pa.DataType) -> _Rule:
    return next(rule for rule in _RULES if rule.fits(type_))

"""The Python values that columns of a sink take, and the entries of a dict that they need.

Rule of this module: a value goes out as what it is, or not at all. Left to itself, Arrow would count microseconds of an
int, cut the digits off a float and call a time UTC that has no time zone. So each type of column names the Python types
that it takes, and what to write instead of others. Types are compared per column, not per value; only where a type says
too little (has this datetime a time zone?) each value is asked. In the same way, an entry that is not there is a
mistake, and not null, unless the sink calls it optional.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, compress
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidOutputError, InvalidValueError, RecordError
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.verbs.verb import Projection

_LARGEST_FLOAT: Final = float(np.finfo(np.float32).max)
_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors with which Arrow refuses a value."""

_LEAST: Final = -(1 << 63)
"""The least interval that Spark has, in microseconds."""
_LEAST_TIMEDELTA: Final = timedelta(microseconds=_LEAST)

_OF_RECORD: Final = ("key", "value", "timestamp")
"""Columns that a misspelled one may have been meant to be, besides the entries of the value."""


@dataclass(frozen=True)
class ColumnsOwner:
    """The owner of columns, for messages.

    Attributes:
        name: a sink's topic, or the name of a verb.
        verb: whether it is a verb.
    """

    name: str
    verb: bool = False

    def __str__(self) -> str:
        return f"results of {self.name!r}" if self.verb else f"sink {self.name!r}"

    def optional(self, path: str) -> str:
        """Return the code that makes a column optional, for dicts that lack it."""
        return f"optional=[{path!r}]" if self.verb else f"Produced(..., optional=({path!r},))"


class _Absent:
    """Stands for an entry that a dict does not have."""


_ABSENT: Final = _Absent()


class _Rule(NamedTuple):
    """The rule for the values of one kind of column.

    Attributes:
        fits: whether a column is of this kind.
        takes: whether it takes values of a Python type.
        changes: whether a value of such a type would still be changed; None if none would.
        advice: the end of a message: what the column takes, and what to write.
    """

    fits: Callable[[pa.DataType], bool]
    takes: Callable[[type], bool]
    changes: Callable[[Any], bool] | None
    advice: str


@dataclass(frozen=True)
class ColumnValues:
    """Makes the columns of one sink, or of the results of a verb.

    Attributes:
        owner: the sink or the verb, for messages.
        optional: the entries that a dict may lack; in a nested column by their paths, as ``"items.element.price"``.
        named: the names of types in messages.
    """

    owner: "ColumnsOwner"
    optional: frozenset[str]
    named: Callable[[pa.DataType], str] = str

    def entries(self, path: str, name: str, values: Sequence[Any]) -> list[Any]:
        """Return the entries called ``name`` of dicts; None for None, and for a dict without it if that is optional.

        Args:
            path: the column's name, with those around it.
            name: its own name.
            values: dicts, or None.

        Raises:
            RecordError: a dict has no such entry, or a value is no dict.
        """
        default = None if path in self.optional else _ABSENT
        try:
            found = [None if value is None else value.get(name, default) for value in values]
        except AttributeError:
            stranger = next(value for value in values if value is not None and not hasattr(value, "get"))
            raise InvalidValueError(
                f"{self.owner}: column {path!r} is an entry of a dict value, but a value is of type "
                f"{type(stranger).__name__}; the column of the whole value is called 'value'"
            ) from None
        if _Absent in set(map(type, found)):
            raise self._missing(path, name, next(compress(values, (entry is _ABSENT for entry in found))))
        return found

    def to_array(self, path: str, type_: pa.DataType, entries: Sequence[Any]) -> Any:
        """Return the entries as a column.

        Args:
            path: the column's name.
            type_: its type.
            entries: one for each row; None is null.

        Raises:
            RecordError: the column cannot hold an entry, or not without changing it.
        """
        entries = with_pairs(entries, type_)
        try:
            made = _array(entries, type_)
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
        for name, child, children in self._children(path, type_, present):
            self._check(f"{path}.{name}", child, children)

    def _children(
        self, path: str, type_: pa.DataType, present: Sequence[Any]
    ) -> Iterator[tuple[str, pa.DataType, list[Any]]]:
        """Yield the names, types and entries of the columns inside a nested one."""
        fields = _fields(type_)
        if pa.types.is_map(type_):
            pairs = [pair for entry in present for pair in (entry.items() if isinstance(entry, dict) else entry)]
            for i, (name, child) in enumerate(fields):
                yield name, child, [pair[i] for pair in pairs]
        elif pa.types.is_list(type_):
            for name, child in fields:
                yield name, child, list(chain.from_iterable(present))
        elif pa.types.is_struct(type_):
            names = [name for name, _ in fields]
            dicts = [entry if isinstance(entry, dict) else dict(zip(names, entry, strict=True)) for entry in present]
            for name, child in fields:
                yield name, child, self.entries(f"{path}.{name}", name, dicts)

    def _missing(self, path: str, name: str, value: Any) -> RecordError:
        """Return a value without the entry."""
        there = [entry for entry in value if isinstance(entry, str)]
        hint = did_you_mean(name, there if path != name else [*there, *_OF_RECORD]) or "."
        return InvalidValueError(
            f"{self.owner}: column {path!r} is not an entry of a value with the entries {sorted(there)!r:.300}"
            f"{hint} If only some values have it, say so: {self.owner.optional(path)}"
        )

    def _refusal(self, path: str, type_: pa.DataType, entry: Any, reason: str = "") -> RecordError:
        name = self.named(type_)
        return InvalidValueError(
            f"{self.owner}: column {path!r} of type {name:.200} cannot hold "
            f"{entry!r:.200} of type {type(entry).__name__}{reason}; it takes {_rule(type_).advice}"
        )


@dataclass(frozen=True)
class DictColumns(Projection):
    """The entries of dicts, such as a user's processor makes, as the columns that were announced.

    Attributes:
        values: makes columns of them.
        announced: the columns.
    """

    values: ColumnValues
    announced: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.announced

    def columns(self, batch: Batch, first: int) -> list[Any]:
        entries = {name: self.values.entries(name, name, batch.values) for name in self.announced.names}
        return [self.values.to_array(field.name, field.type, entries[field.name]) for field in self.announced]


def _array(entries: Sequence[Any], type_: pa.DataType) -> Any:
    """Return the entries as an array. Arrow refuses the least of all intervals as a timedelta, not as an int."""
    try:
        return pa.array(entries, type_)
    except _MISFITS:
        return pa.array(_with_least(list(entries)), type_)


def _with_least(entry: Any) -> Any:
    """Return the entry with an int for the least interval, at any depth."""
    if isinstance(entry, dict):
        return {_with_least(name): _with_least(value) for name, value in entry.items()}
    if isinstance(entry, list | tuple):
        values = map(_with_least, entry)
        return tuple(values) if isinstance(entry, tuple) else list(values)
    return _LEAST if isinstance(entry, timedelta) and entry == _LEAST_TIMEDELTA else entry


def _first_misfit(entries: Sequence[Any], type_: pa.DataType) -> Any:
    """Return the first entry that Arrow refuses."""
    for entry in entries:
        try:
            _array([entry], type_)
        except _MISFITS:
            return entry
    return entries


def with_pairs(entries: Sequence[Any], type_: pa.DataType) -> Sequence[Any]:
    """Return the entries of a column of that type, with a tuple for each entry of a map, as Arrow wants them.

    Most serdes give tuples back as lists. Whatever is not of its column's type stays as it is, for Arrow to refuse.
    """
    return [_paired(entry, type_) for entry in entries] if _has_map(type_) else entries


def _has_map(type_: Any) -> bool:
    if pa.types.is_list(type_):
        return _has_map(type_.value_type)
    return pa.types.is_map(type_) or (pa.types.is_struct(type_) and any(_has_map(field.type) for field in type_))


def _paired(entry: Any, type_: Any) -> Any:
    if pa.types.is_map(type_):
        return _pairs(entry, type_)
    if pa.types.is_list(type_) and isinstance(entry, list | tuple):
        return [_paired(element, type_.value_type) for element in entry]
    if pa.types.is_struct(type_) and isinstance(entry, Mapping):
        types = {field.name: field.type for field in type_}
        return {name: _paired(value, types[name]) if name in types else value for name, value in entry.items()}
    return entry


def _pairs(entry: Any, type_: Any) -> Any:
    items = list(entry.items()) if isinstance(entry, Mapping) else entry
    if not isinstance(items, list | tuple) or not all(isinstance(i, list | tuple) and len(i) == 2 for i in items):
        return entry
    return [(_paired(key, type_.key_type), _paired(value, type_.item_type)) for key, value in items]


def optional_columns(owner: ColumnsOwner, schema: pa.Schema, optional: Collection[str]) -> frozenset[str]:
    """Return the optional columns.

    Raises:
        TopologyError: the schema lacks one.
    """
    known = [path for field in schema for path in paths(field.name, field.type)]
    names = (optional,) if isinstance(optional, str) else optional
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise InvalidOutputError(f"{owner}: optional is {optional!r}; give a list of names of columns")
    for name in names:
        if name not in known:
            raise InvalidOutputError(
                f"{owner}: the optional column {name!r} is not in the schema, which has "
                f"{', '.join(map(repr, known))}{did_you_mean(name, known)}"
            )
    return frozenset(names)


def paths(name: str, type_: pa.DataType) -> Iterator[str]:
    """Yield the column's name, and the names of columns inside it with the names around them."""
    yield name
    for inner, child in _fields(type_):
        yield from paths(f"{name}.{inner}", child)


def _fields(type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the columns inside a nested one, as Spark names them, and their types."""
    if pa.types.is_map(type_):
        return [("key", type_.key_type), ("value", type_.item_type)]
    if pa.types.is_list(type_):
        return [("element", type_.value_type)]
    return [(field.name, field.type) for field in type_] if pa.types.is_struct(type_) else []


def _instances_of(*types: type, but: tuple[type, ...] = ()) -> Callable[[type], bool]:
    return lambda kind: issubclass(kind, types) and not issubclass(kind, but)


def _loses_nanoseconds(value: Any) -> bool:
    """Return whether it is one of pandas' times, which are finer than Spark's."""
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
        "datetime that is UTC with value.replace(tzinfo=UTC), of one with nanoseconds with value.floor('us'), or use "
        "the record's own column 'timestamp'",
    ),
    _Rule(
        pa.types.is_timestamp,
        _instances_of(datetime),
        lambda value: value.tzinfo is not None or _loses_nanoseconds(value),
        "datetime without a time zone; make one of milliseconds with datetime.fromtimestamp(ms / 1000, UTC)"
        ".replace(tzinfo=None), of one with nanoseconds with value.floor('us'), or make the column a timestamp",
    ),
    _Rule(
        pa.types.is_duration,
        _instances_of(timedelta),
        _loses_nanoseconds,
        "timedelta; make one of milliseconds with timedelta(milliseconds=ms), of one with nanoseconds with "
        "value.floor('us')",
    ),
    _Rule(
        pa.types.is_time,
        _instances_of(time),
        lambda value: value.tzinfo is not None,
        "time without a time zone; make one of a datetime with value.time(), of a time that has one with "
        "value.replace(tzinfo=None)",
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
    _Rule(lambda _: True, lambda _: True, None, "None; give the column the type of its values"),
)
"""The first that fits a column is its rule; the last is for types whose values Arrow never changes, such as void."""


def _rule(type_: pa.DataType) -> _Rule:
    return next(rule for rule in _RULES if rule.fits(type_))

"""The bound of a time column: how much later than its own time a row may come. Spark carries it from verb to verb.

What a row's time is compared with is the newest time that the clock of the verb that it comes from had shown in earlier
micro-batches. The bound is metadata of the column, in microseconds; without it, a column has the bound 0. Spark keeps
the metadata of a column, or of a field of a struct, that is selected as it is, under whatever name. That of an
expression is lost.

Rule of this module: nobody else knows where bounds are written, and no state does. What bounds there are is up to
``waiting``.
"""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.account import InputTime, Path
from millpond.processors.verbs.parts import CHANGE_TIME

BOUND: Final = "millpond.bound"
"""The key of the metadata."""

FEED: Final = "millpond.feed"
"""The key of metadata that the time of a verb's change feed has: its rows come in the order in which they count."""


def time_of(frame: DataFrame, time: str | Column, result: Collection[str] = ()) -> InputTime:
    """What is known of the time of an input.

    Args:
        frame: the rows.
        time: the column with their times, or an expression.
        result: the columns of the result that are those of ``frame``.
    """
    if isinstance(time, str):
        bound = next((_bound(field) for field in frame.schema.fields if field.name == time), 0)
        return InputTime(bound, (time,) if time in result else None)
    field = frame.select(time).schema.fields[0]
    path = _path(frame, time, field.name)
    return InputTime(_bound(field), path if path is not None and path[0] in result else None)


def marked(rows: DataFrame, bounds: Mapping[Path, int]) -> DataFrame:
    """The same rows, whose columns have these bounds."""
    if not bounds:
        return rows
    return rows.select(*(_marked(named(field.name), field, bounds) for field in rows.schema.fields))


def is_feed(frame: DataFrame, time: str | Column) -> bool:
    """Whether the time of an input is that of a change feed that a verb has made."""
    if isinstance(time, str):
        return any(FEED in field.metadata for field in frame.schema.fields if field.name == time)
    return FEED in frame.select(time).schema.fields[0].metadata


def without_bounds(type_: T.DataType) -> T.DataType:
    """The type without the bounds of its fields: other rows have others."""
    if isinstance(type_, T.StructType):
        return T.StructType([_without_bound(field) for field in type_.fields])
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(without_bounds(type_.elementType), type_.containsNull)
    if isinstance(type_, T.MapType):
        return T.MapType(without_bounds(type_.keyType), without_bounds(type_.valueType), type_.valueContainsNull)
    return type_


def _bound(field: T.StructField) -> int:
    return int(field.metadata.get(BOUND, 0))


def _without_bound(field: T.StructField) -> T.StructField:
    rest = {key: value for key, value in field.metadata.items() if key not in (BOUND, FEED)}
    return T.StructField(field.name, without_bounds(field.dataType), field.nullable, rest)


def _marked(column: Column, field: T.StructField, bounds: Mapping[Path, int]) -> Column:
    """A column with its bound, and those of its fields; ``bounds`` are those of its struct, or of the rows."""
    own = {path[1:]: bound for path, bound in bounds.items() if path[0] == field.name}
    if () in own:
        feed = {FEED: True} if field.name == CHANGE_TIME else {}
        return column.alias(field.name, metadata={**field.metadata, **feed, BOUND: own[()]})
    if own and isinstance(field.dataType, T.StructType):
        fields = [_marked(column.getField(inner.name), inner, own) for inner in field.dataType.fields]
        column = F.when(column.isNotNull(), F.struct(*fields))
    return column.alias(field.name)


def _path(frame: DataFrame, time: Column, name: str) -> Path | None:
    """Where the column stands in the rows, if it is selected as ``name`` and is no expression."""
    text = str(time).removeprefix("Column<'").removesuffix("'>")
    for whole in (text, text.replace("`", "")):
        for same in (str, str.casefold):
            found = [column for column in frame.columns if same(column) == same(whole) == same(name)]
            if len(found) == 1:
                return (found[0],)
    return _nested(frame.schema, text, name)


def _nested(columns: T.StructType, text: str, name: str) -> Path | None:
    """The path of a field of a struct that was written with dots, or as ``rows.window.end``."""
    path = tuple(text.replace("['", ".").replace("']", "").split("."))
    type_: T.DataType = columns
    for part in path:
        if not isinstance(type_, T.StructType) or part not in type_.names:
            return None
        type_ = type_[part].dataType
    return path if name in (path[-1], ".".join(path)) else None

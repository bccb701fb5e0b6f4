"""The bound of a time column: how much later than its own time a row may come. Spark carries it from verb to verb.

What a row's time is compared with is the newest time that the clock of the verb that it comes from had shown in earlier
micro-batches. The bound is metadata of the column, in microseconds; without it, a column has the bound 0. Spark keeps
the metadata of a column, or of a field of a struct, that is selected as it is, under whatever name. That of an
expression is lost.

Rule of this module: nobody else knows where bounds are written, and no state does. What bounds there are is up to
``waiting``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.account import InputTime, Path
from millpond.processors.verbs.parts import CHANGE_TIME

BOUND: Final = "millpond.bound"
"""The key of the metadata."""

FEED: Final = "millpond.feed.time"
"""The key of metadata that the time of a verb's change feed has: its rows come in the order in which they count. It
says of how many columns the feed's key is, each of which has ``FEED_KEY`` with the verb's name."""

FEED_KEY: Final = "millpond.feed.key"


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


class Feed(NamedTuple):
    """A change feed that a verb makes.

    Attributes:
        verb: the verb's name.
        keys: the names of the columns of its key.
    """

    verb: str
    keys: Collection[str]


def marked(rows: DataFrame, bounds: Mapping[Path, int], feed: Feed | None = None) -> DataFrame:
    """The same rows, whose columns have these bounds and, of a change feed, say so."""
    if not bounds and feed is None:
        return rows
    # By numbers, as names may differ in case alone, which Spark does not tell apart.
    numbered = rows.toDF(*(str(number) for number in range(len(rows.columns))))
    fields = enumerate(rows.schema.fields)
    return numbered.select(*(_marked(named(str(number)), field, bounds, feed) for number, field in fields))


def is_feed(frame: DataFrame, time: str | Column, keys: Collection[str]) -> bool:
    """Whether rows of one key come in the order in which they count: from one task of a verb that makes a change feed.

    Args:
        frame: the rows.
        time: the column with their times, or an expression.
        keys: the names of the columns of the key. Without those of the feed's own key, rows of one key may come from
            several tasks.
    """
    fields = {field.name: field for field in frame.schema.fields}
    timed = fields.get(time) if isinstance(time, str) else frame.select(time).schema.fields[0]
    mark = None if timed is None else timed.metadata.get(FEED)
    if mark is None:
        return False
    verb, size = mark
    own = [key for key in keys if fields[key].metadata.get(FEED_KEY) == verb]
    return len(own) == int(size)


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
    rest = {key: value for key, value in field.metadata.items() if key not in (BOUND, FEED, FEED_KEY)}
    return T.StructField(field.name, without_bounds(field.dataType), field.nullable, rest)


def _marked(column: Column, field: T.StructField, bounds: Mapping[Path, int], feed: Feed | None = None) -> Column:
    """A column with its bound, and those of its fields; ``bounds`` are those of its struct, or of the rows."""
    own = {path[1:]: bound for path, bound in bounds.items() if path[0] == field.name}
    metadata = dict(field.metadata)
    if feed is not None and field.name == CHANGE_TIME:
        metadata[FEED] = [feed.verb, str(len(feed.keys))]
    if feed is not None and field.name in feed.keys:
        metadata[FEED_KEY] = feed.verb
    if () in own:
        metadata[BOUND] = own[()]
    if metadata != field.metadata:
        return column.alias(field.name, metadata=metadata)
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
    """The path of a column that was written with dots: ``window.end``, ``rows.sold``, or ``rows.window.end``."""
    written = text.replace("['", ".").replace("']", "").split(".")
    for parts in (written, written[1:]):
        path = _found(columns, parts)
        if path and name.casefold() in (parts[-1].casefold(), ".".join(parts).casefold()):
            return path
    return None


def _found(columns: T.StructType, parts: Sequence[str]) -> Path | None:
    """The path of a column, or of a field of a struct, as its names are written; None if there is none, or several."""
    path: Path = ()
    type_: T.DataType = columns
    for part in parts:
        fields = type_.fields if isinstance(type_, T.StructType) else []
        same = [field for field in fields if field.name.casefold() == part.casefold()]
        if len(same) != 1:
            return None
        path, type_ = (*path, same[0].name), same[0].dataType
    return path

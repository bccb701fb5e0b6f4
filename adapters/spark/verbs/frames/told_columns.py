"""Marks on columns for the next verb: the bound of a time, and the change feed that rows are of.

The bound of a time is how much later than it a row may come. A row's time is compared with the newest time that the
clock of the verb that it comes from had shown in earlier micro-batches. The bound is a mark of the column, in
microseconds; without it, a column has the bound 0.

Rule of this module: nobody else knows the mark of a bound, or where the mark of a feed is. ``waiting`` decides on
bounds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.verbs.frames.marks import Marks
from millpond.processors.calls.account import InputTime, Path
from millpond.processors.calls.feeds import FEED, Feed, feed_among

BOUND: Final = "millpond.bound"
"""The key of the mark."""


def time_of(frame: DataFrame, time: str | Column, result: Collection[str] = ()) -> InputTime:
    """Return what is known of the time of an input.

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


def feed_in(frame: DataFrame) -> Feed | None:
    """Return the change feed that the rows are of; None if there is none, or columns of several."""
    return feed_among({field.name: field.metadata.get(FEED) for field in frame.schema.fields})


def bound_marks(bounds: Mapping[Path, int]) -> Marks:
    """Return the marks of columns with these bounds, in microseconds."""
    return {path: {BOUND: bound} for path, bound in bounds.items()}


def _bound(field: T.StructField) -> int:
    return int(field.metadata.get(BOUND, 0))


def _path(frame: DataFrame, time: Column, name: str) -> Path | None:
    """Return the path of the column in the rows, if it is selected as ``name`` and is no expression.

    It may be written with dots: ``window.end``, ``rows.sold`` or ``rows.window.end``. A column of that name goes first.
    """
    text = str(time).removeprefix("Column<'").removesuffix("'>")
    dotted = text.replace("['", ".").replace("']", "").split(".")
    for parts in ([text], [text.replace("`", "")], dotted, dotted[1:]):
        path = _found(frame.schema, parts)
        if path and name.casefold() in (parts[-1].casefold(), ".".join(parts).casefold()):
            return path
    return None


def _found(columns: T.StructType, parts: Sequence[str]) -> Path | None:
    """Return the path of a column, or of a field of a struct; None if there is none, or several.

    The names are those that are written, or else, whatever their case, the only ones that are the same.
    """
    path: Path = ()
    type_: T.DataType = columns
    for part in parts:
        fields = type_.fields if isinstance(type_, T.StructType) else []
        alike = [field for field in fields if field.name.casefold() == part.casefold()]
        same = [field for field in alike if field.name == part] or alike
        if len(same) != 1:
            return None
        path, type_ = (*path, same[0].name), same[0].dataType
    return path

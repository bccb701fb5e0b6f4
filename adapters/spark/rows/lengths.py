"""Columns of lengths of time: intervals of days to seconds, and integers, which are milliseconds as everywhere.

Rule of this module: it makes expressions of Spark, and runs nothing.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.stores.encoding.times import FARTHEST

_LONGEST = "interval day to second"

_MILLI = 1_000
"""Microseconds in a millisecond."""

_PARTS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}
"""Microseconds in what an interval has besides its seconds."""


def is_length(type_: T.DataType) -> bool:
    """Return whether a column of that type has lengths of time."""
    return isinstance(type_, T.DayTimeIntervalType | T.IntegralType)


def lengths_in_micros(type_: T.DataType, length: Column) -> Column:
    """Return lengths of time in microseconds, none further from 0 than ``FARTHEST``; null where they are null."""
    if isinstance(type_, T.DayTimeIntervalType):
        length = length.cast(_LONGEST)
        whole = [F.extract(F.lit(part), length).cast("long") * micros for part, micros in _PARTS.items()]
        seconds = (F.extract(F.lit("SECOND"), length) * 1_000_000).cast("long")
        return _cut(sum(whole, seconds), FARTHEST, 1)
    return _cut(length.cast("long"), FARTHEST // _MILLI, _MILLI)


def _cut(number: Column, most: int, times: int) -> Column:
    """Return a number, or the one of its sign that is ``most`` if it is greater, so many times."""
    # The column is nullable, whatever the number is: state knows it so.
    far = (
        F.when(number.isNull(), F.lit(None))
        .when(number > most, F.lit(most))
        .when(number < -most, F.lit(-most))
        .otherwise(number)
    )
    return far * F.lit(times)

"""How much older than its left row a match of an as-of join may be.

Rule of this module: Spark compares the times of joined rows. A time that is a column is there anyway; one that is an
expression may refer to what is not in the result, so it is evaluated before the join and travels as a column.
"""

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.inputs import micros


@dataclass(frozen=True)
class Timed:
    """One side of a join, whose times are known after it.

    Attributes:
        frame: the rows, maybe with one more column.
        time: their time in microseconds, where ``frame`` or a result with its columns is selected from.
        added: the name of that column.
    """

    frame: DataFrame
    time: Column
    added: str | None = None

    @classmethod
    def of(cls, role: str, frame: DataFrame, time: str | Column, taken: Collection[str] = ()) -> "Timed":
        """The side in that role; ``taken`` are names that are other columns' in the result.

        Raises:
            ConfigurationError: the time is of a type that says no point in time.
        """
        value = micros(role, frame, time)
        if isinstance(time, str) and time not in taken:
            return cls(frame, value)
        name = f"millpond_{role}_time"
        # NOT NULL: rows that were kept without it have no time to compare, so a restart refuses them. A row whose time
        # is null has no match.
        return cls(frame.withColumn(name, F.coalesce(value, F.lit(-1))), named(name), name)


def within(joined: DataFrame, left: Timed, right: Timed, tolerance: int, optional: Collection[str]) -> DataFrame:
    """The joined rows without matches that are too old.

    Args:
        joined: the rows.
        left, right: the sides.
        tolerance: in microseconds.
        optional: the columns of the match, which become null if it is too old; none if the row goes with it.
    """
    near = left.time - right.time <= tolerance
    if optional:
        columns = [F.when(near, named(c)).alias(c) if c in optional else named(c) for c in joined.columns]
        joined = joined.select(columns)
    else:
        joined = joined.where(near)
    return joined.drop(*(side.added for side in (left, right) if side.added is not None))

"""The columns of a verb's result taken apart into leaves, in which they leave an operator, and put together by Spark.

Rule of this module: no value changes. Spark takes the output of its operator for Python state through pandas, which
holds every flat Arrow column as it is, and no nested one. So a struct travels as its fields, after a boolean that is
false where it is null. Lists and maps have no leaves, nor has what Spark knows more of than its type: that it is NOT
NULL, or metadata. Leaves are numbered, so that no name of a user meets one of ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.sink import arrow_schema

pc: Any = _compute

_FLAT: Final = frozenset((
    T.BinaryType,
    T.BooleanType,
    T.ByteType,
    T.DateType,
    T.DayTimeIntervalType,
    T.DecimalType,
    T.DoubleType,
    T.FloatType,
    T.IntegerType,
    T.LongType,
    T.ShortType,
    T.StringType,
    T.TimestampNTZType,
    T.TimestampType,
))  # fmt: skip


def has_leaves(type_: T.DataType) -> bool:
    """Return whether a column of this type, or all of these columns, can be taken apart, and be put together again."""
    if isinstance(type_, T.StructType):
        return all(one.nullable and not one.metadata and has_leaves(one.dataType) for one in type_)
    return type(type_) in _FLAT


@dataclass(frozen=True)
class Leaves:
    """The leaves of columns. Travels to the workers.

    Attributes:
        whole: the columns.
        nested: whether nested columns stay as they are, where pandas has no part in it.
    """

    whole: T.StructType
    nested: bool = False

    @property
    def columns(self) -> T.StructType:
        """The leaves for Spark."""
        types = [column.dataType for column in self.whole]
        if not self.nested:
            types = [leaf for type_ in types for leaf in _types(type_)]
        return T.StructType([T.StructField(_name(number), type_) for number, type_ in enumerate(types)])

    @cached_property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""
        return arrow_schema(self.columns)

    def taken_apart(self, rows: pa.Table) -> pa.Table:
        """Return the leaves of rows of the columns."""
        found: list[Any] = rows.columns
        if not self.nested:
            found = [leaf for column in found for leaf in _leaves(column)]
        return pa.Table.from_arrays(found, schema=self.schema)

    def put_together(self, leaves: DataFrame, *beside: str) -> DataFrame:
        """Return the columns of rows of the leaves, with other columns ``beside`` them."""
        numbers = count()
        put = _leaf if self.nested else _whole
        return leaves.select(*(put(column.dataType, numbers).alias(column.name) for column in self.whole), *beside)


def _name(number: int) -> str:
    return f"leaf_{number}"


def _types(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield the types of a column's leaves."""
    if isinstance(type_, T.StructType):
        yield T.BooleanType()
        for field in type_:
            yield from _types(field.dataType)
    else:
        yield type_


def _leaves(column: Any) -> Iterator[Any]:
    """Yield the leaves of a chunked array, in which a null struct has fields that are null."""
    if pa.types.is_struct(column.type):
        yield pc.is_valid(column)
        for field in column.flatten():
            yield from _leaves(field)
    else:
        yield column


def _leaf(type_: T.DataType, numbers: Iterator[int]) -> Column:
    """Return a column that is the leaf with the next number."""
    return F.col(_name(next(numbers)))


def _whole(type_: T.DataType, numbers: Iterator[int]) -> Column:
    """Return a column that consists of the leaves with the next numbers."""
    leaf = _leaf(type_, numbers)
    if not isinstance(type_, T.StructType):
        return leaf
    return F.when(leaf, F.struct(*(_whole(field.dataType, numbers).alias(field.name) for field in type_)))

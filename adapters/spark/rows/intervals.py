"""Year-month intervals on their way through Python, as months: Spark has no form in Arrow for them.

Rule of this module: Spark converts, before rows are packed and after they are unpacked; nobody else knows of it. Only
columns of that type are converted, not what lies within nested ones.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named

_LONGEST: Final = "interval year to month"


def is_in_months(type_: T.DataType) -> bool:
    """Return whether a column of this type travels as months."""
    return isinstance(type_, T.YearMonthIntervalType)


def traveling(columns: T.StructType) -> T.StructType:
    """Return the columns as they travel: integers for intervals."""
    return T.StructType([_integer(column) if is_in_months(column.dataType) else column for column in columns.fields])


def to_months(column: T.StructField, value: Column) -> Column:
    """Return the value of a column as it travels."""
    if not is_in_months(column.dataType):
        return value.alias(column.name)
    whole = value.cast(_LONGEST)
    years, months = (F.extract(F.lit(part), whole).cast("int") for part in ("YEAR", "MONTH"))
    return (years * 12 + months).alias(column.name)


def from_months(rows: DataFrame, columns: T.StructType, *beside: str) -> DataFrame:
    """Return the rows of ``traveling(columns)`` as rows of ``columns``, with the other columns ``beside`` them."""
    if not any(is_in_months(column.dataType) for column in columns.fields):
        return rows
    return rows.select(*map(_restored, columns.fields), *beside)


def _integer(column: T.StructField) -> T.StructField:
    return T.StructField(column.name, T.IntegerType(), column.nullable)


def _restored(column: T.StructField) -> Column:
    value = named(column.name)
    if not is_in_months(column.dataType):
        return value
    return F.make_ym_interval(F.lit(0), value).cast(column.dataType).alias(column.name)

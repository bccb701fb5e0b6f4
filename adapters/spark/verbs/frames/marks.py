"""Marks of columns: metadata with which a verb tells the next one what it knows of a column.

Spark keeps the metadata of a column, or of a field of a struct, that is selected as it is, under whatever name, and
files and tables keep it, too. That of an expression is lost.

Rule of this module: it knows where marks are written, not what they say; no state does. All keys begin with ``PREFIX``.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.processors.calls.account import Path

PREFIX: Final = "millpond."

Marks: TypeAlias = Mapping[Path, Mapping[str, Any]]
"""Metadata by the column, or field of a struct, that has it."""


def together(*all_marks: Marks) -> Marks:
    """Return all these marks together; a column may have several."""
    paths = dict.fromkeys(path for marks in all_marks for path in marks)
    return {path: {key: said for marks in all_marks for key, said in marks.get(path, {}).items()} for path in paths}


def marked(rows: DataFrame, marks: Marks) -> DataFrame:
    """Return the rows with these marks on their columns."""
    if not marks:
        return rows
    # By numbers, as names may differ in case alone, which Spark does not tell apart.
    numbered = rows.toDF(*(str(number) for number in range(len(rows.columns))))
    fields = enumerate(rows.schema.fields)
    return numbered.select(*(_marked(named(str(number)), field, marks) for number, field in fields))


def without_marks(type_: T.DataType) -> T.DataType:
    """Return the type without the marks of its fields: other rows have others."""
    if isinstance(type_, T.StructType):
        return T.StructType([_without_mark(field) for field in type_.fields])
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(without_marks(type_.elementType), type_.containsNull)
    if isinstance(type_, T.MapType):
        return T.MapType(without_marks(type_.keyType), without_marks(type_.valueType), type_.valueContainsNull)
    return type_


def _without_mark(field: T.StructField) -> T.StructField:
    rest = {key: value for key, value in field.metadata.items() if not key.startswith(PREFIX)}
    return T.StructField(field.name, without_marks(field.dataType), field.nullable, rest)


def _marked(column: Column, field: T.StructField, marks: Marks) -> Column:
    """Return a column with its marks, and those of its fields; ``marks`` are those of its struct, or of the rows."""
    own = {path[1:]: mark for path, mark in marks.items() if path[0] == field.name}
    mark = own.pop((), None)
    if own and isinstance(field.dataType, T.StructType):
        fields = [_marked(column.getField(inner.name), inner, own) for inner in field.dataType.fields]
        column = F.when(column.isNotNull(), F.struct(*fields))
    return column.alias(field.name, metadata={**field.metadata, **mark} if mark else field.metadata)

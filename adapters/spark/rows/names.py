"""Columns by their names.

Rule of this module: a name is a name, not a path or an expression.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F


def named(column: str) -> Column:
    """Return the column of that name, whatever characters it has."""
    return F.col(_quoted(column))


def written(column: str) -> str:
    """Return a column's name as Spark reads it in an expression."""
    return column if column.isidentifier() else _quoted(column)


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"

"""Columns by their names, and names that were misspelled.

Rule of this module: a name is a name, not a path or an expression.
"""

from collections.abc import Collection
from difflib import get_close_matches

from pyspark.sql import Column
from pyspark.sql import functions as F


def named(column: str) -> Column:
    """The column of that name, whatever characters it has."""
    return F.col(_quoted(column))


def written(column: str) -> str:
    """What stands for the column of that name where Spark reads an expression."""
    return column if column.isidentifier() else _quoted(column)


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint to end a message with: the name most like an unknown one, ``; did you mean 'amount'?``, or nothing."""
    nearest = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""

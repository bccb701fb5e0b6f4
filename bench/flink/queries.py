"""A query of Flink, and the tables that it reads.

Rule of this module: it is text, and Flink's.
"""

from dataclasses import dataclass
from typing import Final, Self

_TYPES: Final = {"string": "STRING", "long": "BIGINT", "double": "DOUBLE", "timestamp": "TIMESTAMP(3)"}
"""Flink's types, by Spark's names of them."""


@dataclass(frozen=True)
class Table:
    """A table of rows of one kind.

    Attributes:
        name: of the rows, and of the table.
        columns: names and SQL types of what a row has.
        parts: what the table has besides, in the words of ``CREATE TABLE``: columns that are computed, a watermark, a
            key.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, schema: str, *parts: str) -> Self:
        """Return the table of rows of a schema, given as Spark DDL."""
        columns = (column.split() for column in schema.split(", "))
        return cls(name, tuple((column, _TYPES[kind]) for column, kind in columns), parts)

    @property
    def source(self) -> str:
        """The name of the table that this one is made from, which has the columns alone."""
        return f"{self.name}_rows"

    @property
    def definition(self) -> str:
        """The statement that makes the table, given its ``source``."""
        more = f" ({', '.join(self.parts)})" if self.parts else ""
        return f"CREATE TEMPORARY TABLE {self.name}{more} LIKE {self.source}"


@dataclass(frozen=True)
class FlinkQuery:
    """A query and its tables.

    Attributes:
        sql: the query.
        tables: what it reads.
        is_table: the answer is a table, of whose changes any number may come before the last of a key.
    """

    sql: str
    tables: tuple[Table, ...]
    is_table: bool = False


def interval(millis: int) -> str:
    """Return a length of time; Flink takes no more than three digits of a unit."""
    seconds, rest = divmod(millis, 1000)
    days, seconds = divmod(seconds, 24 * 60 * 60)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:03d}"
    return f"INTERVAL '{days} {clock}' DAY(3) TO SECOND(3)"

"""The tables of a Declarative Pipeline, which are not there when it is defined for the first time.

Spark analyzes what it groups by key when a flow is defined, and then takes a table of the pipeline for any other. So
the table has to be there, and the order in which the pipeline runs has to be told by something that is not grouped.

Rule of this module: it knows requests of Spark Connect, and is imported only in a pipeline, as that needs grpcio.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyspark.sql.connect.proto as pb2
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T


class _Table(NamedTuple):
    """A table that is read."""

    name: str
    streaming: bool
    options: Mapping[str, str]

    def rows(self, session: SparkSession) -> DataFrame:
        reader: Any = session.readStream if self.streaming else session.read
        table: DataFrame = reader.options(**self.options).table(self.name)
        return table


def make_table(rows: DataFrame, columns: T.StructType) -> None:
    """Make the table that the rows are, empty, with these columns, unless it is there, or they are not a table."""
    relation, catalog = _relation(rows), rows.sparkSession.catalog
    if relation.HasField("read"):
        for table in _tables_in(relation.read):
            if not catalog.tableExists(table.name):
                catalog.createTable(table.name, schema=columns)


def after_tables(rows: DataFrame) -> DataFrame:
    """Return the rows, made so that a pipeline waits for all tables that they come from."""
    columns = rows.schema
    for table in _tables(rows).values():
        nothing = table.rows(rows.sparkSession).where(F.lit(False))
        rows = rows.union(nothing.select(*map(_null, columns.fields)))
    return rows


def _null(field: T.StructField) -> Column:
    return F.lit(None).cast(field.dataType).alias(field.name)


def _tables(rows: DataFrame) -> dict[str, _Table]:
    """Return the tables that are read, by name."""
    return {one.name: one for one in _tables_in(_relation(rows))}


def _relation(rows: DataFrame) -> Any:
    """Return the relation that Spark is sent for rows."""
    untyped: Any = rows
    return untyped._plan.plan(untyped.sparkSession.client)


def _tables_in(message: Any) -> Iterator[_Table]:
    """Yield the tables that a message of protobuf, or one within it, reads."""
    if isinstance(message, pb2.Read) and message.HasField("named_table"):
        table = message.named_table
        yield _Table(table.unparsed_identifier, message.is_streaming, dict(table.options))
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = [value] if hasattr(value, "ListFields") else value
            for part in parts:
                if hasattr(part, "ListFields"):  # keys of a map are not messages
                    yield from _tables_in(part)

"""A Delta table that is kept up to date by a change feed.

Rule of this module: what counts of a micro-batch is the newest change of each key, by ``sequence``. A micro-batch is
one MERGE, in Spark's SQL, so a reader of the table never sees a part of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.spark.outputs.delta import check_delta, taken_once
from millpond.adapters.spark.outputs.output import MicroBatch
from millpond.adapters.spark.rows.sink import CHANGE_COLUMNS
from millpond.errors import InvalidOutputError
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.verbs.change_feed import Change

_OPERATION, _ORDER = CHANGE_COLUMNS
_UPSERT, _DELETE = Change.UPSERT.value, Change.DELETE.value


@dataclass(frozen=True)
class MergeOutput:
    """A Delta table with the newest row of each key: a delete takes it away, any other change writes it, exactly once.

    The sink is a change feed: its schema has the columns ``op string`` and ``sequence bigint`` (of ``Produced``). Of
    the changes of a key in a micro-batch the one with the greatest ``sequence`` counts, so those of a key must come out
    of one task, as they do from a table, a join or an aggregation. All other columns are those of the table. If it does
    not exist, it is made with them; one that has more keeps the others as they are, and null in new rows.

    A micro-batch that is repeated is left out if the table has it.

    Args:
        table: the table as SQL names it, such as ``sales.totals``, or `` delta.`s3://bucket/totals` `` for a path.
        keys: the columns that identify a row.
    """

    table: str
    keys: Sequence[str]

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        own = self._columns(columns.names)
        types = {field.name: field.type for field in columns}
        if not CHANGE_COLUMNS.items() <= types.items():
            raise InvalidOutputError(
                f"sink {sink!r} is no change feed, whose rows could be merged into a table; its schema needs two more "
                "columns: Produced(schema='..., op string, sequence bigint')"
            )
        if isinstance(self.keys, str) or not self.keys:
            raise InvalidOutputError(f"sink {sink!r}: keys are a list of columns, one at least, not {self.keys!r}")
        for name in self.keys:
            if name not in own:
                raise InvalidOutputError(
                    f"sink {sink!r} has the columns {own}, so {name!r} cannot be a key of its table"
                    f"{did_you_mean(name, own)}"
                )
        self._check_name(sink, session)
        check_delta(session, sink)
        self._check_table(sink, [field for field in columns if field.name in own], session)

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        session = rows.sparkSession
        columns = self._columns(rows.columns)
        # Made by itself: a table that is made as the write of a micro-batch would be taken to have its rows.
        fields = T.StructType([field for field in rows.schema if field.name in columns]).toDDL()
        session.sql(f"CREATE TABLE IF NOT EXISTS {self.table} ({fields}) USING delta")
        with _view(_newest(rows, self.keys)) as changes, taken_once(session, batch.writer, batch.number):
            session.sql(self._statement(changes, columns))

    def _check_name(self, sink: str, session: SparkSession) -> None:
        try:
            session._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(self.table)
        except ParseException as error:
            raise InvalidOutputError(
                f"sink {sink!r}: {self.table!r} is not the name of a table; write it as in SQL, and a path as "
                "delta.`s3://bucket/table`"
            ) from error

    def _check_table(self, sink: str, own: Sequence[Any], session: SparkSession) -> None:
        """Refuse a table that lacks one of these fields."""
        try:
            known = [name.lower() for name in session.table(self.table).columns]
        except AnalysisException:
            return  # there is no such table yet
        missing = [field for field in own if field.name.lower() not in known]
        if missing:
            raise InvalidOutputError(
                f"sink {sink!r} has the columns {[field.name for field in missing]}, which the table {self.table} "
                f"lacks; take them out of the schema, or add them to it: ALTER TABLE {self.table} ADD COLUMNS "
                f"({from_arrow_schema(pa.schema(missing), prefer_timestamp_ntz=True).toDDL()})"
            )

    def _columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that go into the table."""
        return [name for name in names if name not in CHANGE_COLUMNS]

    def _statement(self, changes: str, columns: Sequence[str]) -> str:
        names = [_quoted(name) for name in columns]
        same = " AND ".join(f"t.{name} <=> c.{name}" for name in map(_quoted, self.keys))
        assigned = ", ".join(f"t.{name} = c.{name}" for name in names)
        taken = ", ".join(f"c.{name}" for name in names)
        return (
            f"MERGE INTO {self.table} AS t USING {changes} AS c ON {same} "
            f"WHEN MATCHED AND c.{_OPERATION} = '{_DELETE}' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {assigned} "
            f"WHEN NOT MATCHED AND c.{_OPERATION} = '{_UPSERT}' THEN INSERT ({', '.join(names)}) VALUES ({taken})"
        )


def _newest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the newest change of each key. An operation that no change feed has raises an error in Spark."""
    operation = F.col(_OPERATION)
    message = F.concat(F.lit("op is 'upsert' or 'delete', not "), F.coalesce(operation, F.lit("null")))
    known = F.when(operation.isin(_UPSERT, _DELETE), operation).otherwise(F.raise_error(message))
    columns = [known.alias(name) if name == _OPERATION else F.col(_quoted(name)) for name in rows.columns]
    latest = F.max_by(F.struct(*columns), _ORDER).alias("latest")
    return rows.groupBy(*map(_quoted, keys)).agg(latest).select("latest.*")


@contextmanager
def _view(rows: DataFrame) -> Iterator[str]:
    """A name for the rows in the SQL of their session."""
    name = f"millpond_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

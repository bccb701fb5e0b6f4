"""The reasons why rows of a join have their matches, by what the query has committed.

Rule of this module: a row takes the way of all rows: Spark evaluates keys and times as the verb does. How joins decide
is up to ``millpond.processors.verbs.matching``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark.reading.inspection import CommittedStore
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.inputs import RowInput, column_of
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.worker.table_versions import RETAINED
from millpond.errors import ConfigurationError, InvalidExpressionError, InvalidRowError, MicroBatchNotKeptError
from millpond.masking import quoted
from millpond.processors.verbs.joins.asked_rows import SideColumns, asked_row, matching_of
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.matching.retained import Kept, LookedUp, Retained
from millpond.processors.verbs.verb import Verb
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.uris import shown


@dataclass(frozen=True)
class CommittedKeys(Retained):
    """The stores of a verb as its query has committed them, of which the checkpoint is asked once.

    Attributes:
        run: the verb.
        verb: its topology.
        checkpoint: the query's ``checkpointLocation``.
        batch_id: after which micro-batch; None for the last one.
    """

    run: VerbRun
    verb: Verb
    checkpoint: str
    batch_id: int | None

    def of_key(self, store: str, key: bytes) -> Kept:
        return replace(self._committed, name=store).kept(self._manifests, key)

    @cached_property
    def _committed(self) -> CommittedStore:
        """Any of them."""
        job = replace(self.run.job, reached=True)
        plan = job.plan(self.run.session, self.verb.topology, self.verb.name)
        (store, *_) = self.verb.topology.stores
        return CommittedStore(plan, job.application_id, job.storage, store, self.checkpoint, self.batch_id)

    @cached_property
    def _manifests(self) -> list[Manifest]:
        return self._committed.manifests(self.run.session)


def looked_up(run: VerbRun, verb: Verb, checkpoint: str, batch_id: int | None) -> LookedUp:
    """Return the tables that a verb looks up, each in the version that a micro-batch has read.

    Args:
        run, verb: the verb.
        checkpoint: the ``checkpointLocation`` of its query.
        batch_id: which micro-batch; None for the last one. One without rows has read what the one before it has.

    Raises:
        ConfigurationError: the checkpoint has no such commit, or is that of another query, or it was forgotten what the
            micro-batch has read.
    """
    found = SparkCheckpoint.at(checkpoint, 1)
    query, last = found.query_id(), found.chosen(batch_id)
    read = {name: versions.read_by(query, last) for name, versions in run.table_versions(verb).items()}
    settled = {name: one for name, one in read.items() if one is not None}
    if settled.keys() != read.keys():
        raise MicroBatchNotKeptError(
            f"no version is known that {verb.name!r} has read by micro-batch {last} of the query with the checkpoint "
            f"{shown(found.storage.uri)}: rows have not come yet, the verb is not of that query, or the micro-batch "
            f"is one of those before the last {RETAINED}; give the query's checkpointLocation, and as batch_id one of "
            "the last micro-batches"
        )
    reader = " and ".join(sorted({f"micro-batch {batch}" for _, batch in settled.values()}))
    return LookedUp(verb.tables, {name: version for name, (version, _) in settled.items()}, reader)


def explain_match(
    run: VerbRun, verb: Verb, row: Row | Mapping[str, Any], checkpoint: str, batch_id: int | None
) -> MatchExplanation:
    """Tell why a row has the match that it has.

    Args:
        run, verb: the join.
        row: a row of its result, or of its left or first side.
        checkpoint: the ``checkpointLocation`` of its query.
        batch_id: after which micro-batch the state is looked at, or which one has read the tables that it looks up;
            None for the last one.

    Raises:
        ConfigurationError: the verb is no join, the row lacks a column or has a value that is none of its column, or
            the checkpoint has no such commit.
        MissingFileError: a table that it looks up does not keep the version any more.
    """
    matching = matching_of(verb)
    run.check_commits()
    inputs = {rows.role: _by_name(rows) for rows in run.inputs}
    first, left = next(iter(inputs.items()))
    timed = [left.time] if isinstance(left.time, str) and matching.timed else []
    sides = {
        role: SideColumns(
            rows.foreign or rows.keys, rows.values, [*left.keys, *timed] if role == first else (), _given(rows)
        )
        for role, rows in inputs.items()
    }

    def read(role: str, values: Mapping[str, Any]) -> pa.Table:
        if role in verb.tables:
            columns = from_arrow_schema(verb.tables[role].shown, prefer_timestamp_ntz=True)
            return _one(run.session, role, columns, values).toArrow()
        return _read(run.session, inputs[role], values)

    given = row.asDict() if isinstance(row, Row) else row
    asked = asked_row(verb, given, sides, read)
    by_table = looked_up(run, verb, checkpoint, batch_id) if verb.tables else None
    return matching.explain(asked, by_table or CommittedKeys(run, verb, checkpoint, batch_id))


def _given(rows: RowInput) -> list[str]:
    """Return the columns that the user's rows have."""
    return [name for name in rows.frame.columns if name not in (rows.added or {})]


def _by_name(rows: RowInput) -> RowInput:
    """Return the input with its time as a name, if that is a column: one of a DataFrame fits no other DataFrame."""
    time = rows.time if isinstance(rows.time, str) else Expression.of(rows.frame, rows.time)
    return replace(rows, time=time.text) if isinstance(time, Expression) and time.release is None else rows


def _read(session: SparkSession, rows: RowInput, values: Mapping[str, Any]) -> pa.Table:
    """Return one row as the verb's ``Input`` takes it.

    Raises:
        ConfigurationError: a value is none of its column, or the time cannot be evaluated for other rows.
    """
    fields = [T.StructField(name, rows.frame.schema[name].dataType) for name in _given(rows)]
    one = _one(session, rows.role, T.StructType(fields), values).withColumns(dict(rows.added or {}))
    _check_time(rows, one)
    try:
        return replace(rows, frame=one, op=None, order=None).selected().to_arrow()
    except (PySparkException, TypeError, ValueError) as error:
        raise _unfit(rows.role, error) from error


def _check_time(rows: RowInput, one: DataFrame) -> None:
    """Refuse a time that cannot be evaluated for other rows than those that the verb was made with.

    Raises:
        ConfigurationError: the time is an expression of one DataFrame.
    """
    try:
        assert one.select(column_of(rows.time)).schema
    except AnalysisException as error:
        raise InvalidExpressionError(
            f"the time of {rows.role!r}, {rows.time}, is an expression of one DataFrame, and the row is of none; make "
            "the verb with one of names, such as F.col('at') in place of rows['at']"
        ) from error


def _one(session: SparkSession, role: str, columns: T.StructType, values: Mapping[str, Any]) -> DataFrame:
    """Return one row of some columns.

    Raises:
        ConfigurationError: a value is none of its column.
    """
    try:
        return session.createDataFrame([tuple(values.get(name) for name in columns.names)], columns)
    except (PySparkException, TypeError, ValueError) as error:
        raise _unfit(role, error) from error


def _unfit(role: str, error: Exception) -> ConfigurationError:
    return InvalidRowError(f"the row does not fit {role!r}: {quoted(error)}")

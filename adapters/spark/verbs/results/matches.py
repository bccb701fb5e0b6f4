"""Why rows of a join have the matches that they have, by what its query has committed.

Rule of this module: a row takes the way of all rows: Spark evaluates keys and times as the verb does. How joins decide
is up to ``millpond.processors.verbs.matching``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from millpond.adapters.spark.reading.inspection import CommittedStore
from millpond.adapters.spark.verbs.expressions import Expression
from millpond.adapters.spark.verbs.inputs import RowInput
from millpond.adapters.spark.verbs.verb_run import VerbRun
from millpond.errors import ConfigurationError
from millpond.masking import quoted
from millpond.processors.verbs.matching.asked_rows import SideColumns, asked_row, matching_of
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.matching.retained import Kept, Retained
from millpond.processors.verbs.verb import Verb
from millpond.stores.durability.manifests.manifest import Manifest


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


def explain_match(
    run: VerbRun, verb: Verb, row: Row | Mapping[str, Any], checkpoint: str, batch_id: int | None
) -> MatchExplanation:
    """Why a row has the match that it has.

    Args:
        run, verb: the join.
        row: a row of its result, or of its left or first side.
        checkpoint: the ``checkpointLocation`` of its query.
        batch_id: after which micro-batch the state is looked at; None for the last one.

    Raises:
        ConfigurationError: the verb is no join, the row lacks a column or has a value that is none of its column, or
            the checkpoint has no such commit.
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
        return _read(run.session, inputs[role], values)

    given = row.asDict() if isinstance(row, Row) else row
    return matching.explain(asked_row(verb, given, sides, read), CommittedKeys(run, verb, checkpoint, batch_id))


def _given(rows: RowInput) -> list[str]:
    """The columns that the user's rows have."""
    return [name for name in rows.frame.columns if name not in (rows.added or {})]


def _by_name(rows: RowInput) -> RowInput:
    """The same, whose time is a name if it is a column: one that was taken from a DataFrame is of that one alone."""
    time = rows.time if isinstance(rows.time, str) else Expression.of(rows.frame, rows.time)
    return replace(rows, time=time.text) if isinstance(time, Expression) and time.release is None else rows


def _read(session: SparkSession, rows: RowInput, values: Mapping[str, Any]) -> pa.Table:
    """One row as the verb's ``Input`` takes it.

    Raises:
        ConfigurationError: a value is none of its column, or the time cannot be evaluated for other rows.
    """
    fields = [T.StructField(name, rows.frame.schema[name].dataType) for name in _given(rows)]
    try:
        one = session.createDataFrame([tuple(values.get(field.name) for field in fields)], T.StructType(fields))
        return replace(rows, frame=one.withColumns(dict(rows.added or {})), op=None, order=None).selected().toArrow()
    except AnalysisException as error:
        raise ConfigurationError(
            f"the time of {rows.role!r}, {rows.time}, is an expression of one DataFrame, and the row is of none; make "
            "the verb with one of names, such as F.col('at') in place of rows['at']"
        ) from error
    except (PySparkException, TypeError, ValueError) as error:
        raise ConfigurationError(f"the row does not fit {rows.role!r}: {quoted(error)}") from error

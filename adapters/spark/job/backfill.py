"""Backfills on Spark: a run over static DataFrames whose state a streaming query begins with.

Rule of this module: one Spark job writes results and manifests to one place, so that Spark's committer decides about
both at once: of a task that ran twice, what counts is all of one attempt. What makes the state count is up to
``millpond.stores.evolution.backfilling``.
"""

from collections.abc import Callable
from pathlib import PurePosixPath
from posixpath import join
from typing import TypeAlias
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark.evolution.seeds import seeds_of
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.worker_settings import check_runnable, settings_in
from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import MissingArgumentError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.backfilling import begin, directory_of
from millpond.stores.evolution.history import History

MakeRows: TypeAlias = Callable[[StateSettings], DataFrame]
"""Makes what is written of a run whose state is where the settings say: rows of the sink, and manifests in
``MANIFEST_COLUMN``."""


def backfilled(
    session: SparkSession, job: Job, plan: Plan, rows: MakeRows, unit: TimeUnit, results: str | None
) -> DataFrame:
    """Return the rows that the backfill of a query has written; if there was none yet, it is run now.

    Args:
        session: runs it.
        job: the job.
        plan: what is to run.
        rows: the same on static DataFrames.
        unit: what the topology's times count.
        results: the directory for the results, as Spark reaches it; None for one in the state directory.

    Raises:
        ConfigurationError: the session cannot run the operator, a seed does not fit its store, or the results of the
            backfill are gone.
        StateConflictError: the query has begun without a backfill, or another job backfills it at the same time.
        DurabilityError: the state could not be read or written.
    """
    history = job.history(plan.sink)
    if history.backfill is None:
        history = _run(session, job, plan, rows, unit, results)
    history.keep_out_older_releases()
    return _results(session, history, results)


def _run(session: SparkSession, job: Job, plan: Plan, rows: MakeRows, unit: TimeUnit, results: str | None) -> History:
    """Return the history of the query, with a generation that begins with the backfill."""
    check_runnable(job, session, plan, evolved=True)
    attempt = begin(job.history(plan.sink), plan.fingerprint, shape_of(plan), seeds_of(plan, job.options.seeds))
    place = join(_directory(attempt.history, results), attempt.id)
    rows(settings_in(job, session, plan, unit, attempt.generation)).write.parquet(place)
    found = session.read.parquet(place).where(F.col(MANIFEST_COLUMN).isNotNull()).select(MANIFEST_COLUMN)
    return attempt.keep(Manifest.from_json(text) for (text,) in found.collect())


def _results(session: SparkSession, history: History, results: str | None) -> DataFrame:
    """Return the rows of the sink among what the backfill that counts has written."""
    place = join(_directory(history, results), str(history.backfill))
    try:
        written = session.read.parquet(place)
        return written.where(F.col(MANIFEST_COLUMN).isNull()).drop(MANIFEST_COLUMN)
    except PySparkException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise MissingArgumentError(
            f"the backfill of application {history.application_id!r} for the sink {history.sink!r} was done, but its "
            f"results are not at {shown(place)}; give the directory that they were written to (results=...), or, if "
            "they are not needed any more, take backfill out: the state is there"
        ) from error


def _directory(history: History, results: str | None) -> str:
    """Return the directory with the results of all attempts, as Spark reaches it."""
    return join(_spark_uri(history.storage), directory_of(history)) if results is None else results


def _spark_uri(storage: Storage) -> str:
    """Return the storage's URI for Spark, whose default file system need not be the local one."""
    if "://" not in storage.uri:
        return f"file://{PurePosixPath(storage.uri)}"
    uri = storage.uri.partition("?")[0]
    return unquote(uri) if uri.startswith("file:") else uri  # Spark takes paths as they are

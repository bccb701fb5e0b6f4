"""Spark Declarative Pipelines: the questions of verbs to Spark, where a query function may ask none.

A query function of a pipeline (``@dp.table``) builds a DataFrame before the pipeline runs, and Spark refuses to analyze
one in it. A verb has to know the columns of its inputs all the same.

Rule of this module: it tells whether there is a pipeline, and asks as if outside of the query function. What is to be
done about the tables of a pipeline is in ``pipeline_tables``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.errors import SparkSessionError, UnknownNameError

_CONTEXT: Final = "spark.connect.PipelineAnalysisContext"
"""The context that a request from the file of a pipeline carries."""
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"


def in_pipeline(session: SparkSession) -> bool:
    """Return whether this thread runs the file of a pipeline, or a query function in it."""
    return any(map(_is_of_pipeline, _contexts(session)))


def check_asking() -> None:
    """Refuse a PySpark whose query functions of pipelines may ask Spark about nothing, in whichever way.

    Raises:
        ConfigurationError: this PySpark is one of these.
    """
    if find_spec("pyspark.pipelines.block_connect_access") is not None:
        raise SparkSessionError(
            f"PySpark {pyspark.__version__} lets no query function of a pipeline ask Spark about columns, which verbs "
            "have to know; run the pipeline with PySpark 4.3 or later"
        )


@contextmanager
def analyzing(session: SparkSession) -> Iterator[None]:
    """Have Spark answer what is asked within it, also in a query function.

    Raises:
        ConfigurationError: it is asked about a table that is not there, or lets nothing be asked.
    """
    contexts = _contexts(session)
    others = [one for one in contexts if not _is_of_pipeline(one)]
    if len(others) == len(contexts):
        yield
        return
    check_asking()
    local = _thread_local(session)
    local.user_context_extensions = others
    try:
        yield
    except PySparkException as error:
        if error.getCondition() != _UNKNOWN_TABLE:
            raise
        raise UnknownNameError(_unknown(error)) from error
    finally:
        local.user_context_extensions = contexts


def _contexts(session: SparkSession) -> list[tuple[str, Any]]:
    """Return the contexts that requests of this thread carry; nothing in a classic session."""
    contexts: list[tuple[str, Any]] = getattr(_thread_local(session), "user_context_extensions", [])
    return contexts


def _thread_local(session: SparkSession) -> Any:
    """Return the thread's state in the client of Spark Connect; None in a classic session."""
    return None if hasattr(session, "sparkContext") else getattr(session.client, "thread_local", None)


def _is_of_pipeline(context: tuple[str, Any]) -> bool:
    return bool(context[1].TypeName() == _CONTEXT)


def _unknown(error: PySparkException) -> str:
    name = (error.getMessageParameters() or {}).get("relationName", "it").replace("`", "")
    return (
        f"the table {name} is not there yet, so its columns are unknown; if the pipeline makes it, say them: "
        f"with_schema(spark.readStream.table({name!r}), 'id long, customer string, at timestamp')"
    )

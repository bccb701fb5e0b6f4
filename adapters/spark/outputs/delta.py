"""Delta Lake: the settings that a session needs to write it, and tables that take each micro-batch once.

Rule of this module: it knows Delta's settings, and no output. Delta is reached through the session alone, so its Python
package is not needed. A table remembers, for each writer, the number of the last micro-batch that it took (Delta's
transaction identifiers), in the very commit that has the rows. A write with that number, or a lower one, is left out.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.errors import DeltaLakeError

_FORMAT: Final = "delta"
_DEFAULT_CONF: Final = "spark.sql.sources.default"
_PACKAGES_CONF: Final = "spark.jars.packages"
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_EXTENSIONS_CONF: Final = "spark.sql.extensions"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_CATALOG_CONF: Final = "spark.sql.catalog.spark_catalog"
_WRITER_CONF: Final = "spark.databricks.delta.write.txnAppId"
_NUMBER_CONF: Final = "spark.databricks.delta.write.txnVersion"
_OPEN_SOURCE: Final = "org.apache.spark.sql.delta."
"""The beginning of the names of Delta Lake's classes; platforms with their own set the session up for it."""


def is_delta(session: SparkSession, format_: str | None) -> bool:
    """Return whether a format, or the session's default for None, is Delta's."""
    return (format_ or session.conf.get(_DEFAULT_CONF) or "").lower() == _FORMAT


def check_delta(session: SparkSession, sink: str) -> None:
    """Check that the session can write Delta tables.

    Raises:
        ConfigurationError: Delta Lake is missing, is that of another release of Spark, or is not set up.
    """
    spark = ".".join(session.version.split(".")[:2])
    package = f"io.delta:delta-spark_{spark}_2.13"
    source = _source_class(session)
    if source is None:
        raise DeltaLakeError(
            f"sink {sink!r}: the session has no Delta Lake; start it with {_PACKAGES_CONF}={package}:RELEASE, "
            f"{_EXTENSIONS_CONF}={_EXTENSION} and {_CATALOG_CONF}={_CATALOG}, where RELEASE is the newest one that "
            "Maven Central has of this package; if it has none, take an older PySpark"
        )
    if not source.getName().startswith(_OPEN_SOURCE):
        return
    jar = str(source.getProtectionDomain().getCodeSource().getLocation())
    made_for = re.search(r"delta-spark_(\d+\.\d+)_", jar)
    if made_for and made_for[1] != spark:
        raise DeltaLakeError(
            f"sink {sink!r}: {jar} is for Spark {made_for[1]}, and this is {session.version}; start it with "
            f"{_PACKAGES_CONF}={package}:RELEASE, where RELEASE is the newest one that Maven Central has of this "
            f"package, or take PySpark {made_for[1]}"
        )
    if _EXTENSION not in (session.conf.get(_EXTENSIONS_CONF, None) or "") or not _has_catalog(session):
        raise DeltaLakeError(
            f"sink {sink!r}: the session has Delta Lake, but is not set up for it; start it with "
            f"{_EXTENSIONS_CONF}={_EXTENSION} and {_CATALOG_CONF}={_CATALOG}"
        )


@contextmanager
def taken_once(session: SparkSession, writer: str, number: int) -> Iterator[None]:
    """Within it, the one write to a Delta table is left out if the table has the micro-batch.

    Args:
        session: the session of the write.
        writer: names who writes, the same at every start.
        number: the number of the micro-batch.
    """
    settings = {_WRITER_CONF: writer, _NUMBER_CONF: str(number)}
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, former)


def _source_class(session: SparkSession) -> Any:
    """Return the class that Spark takes for the format; None if there is none."""
    jvm: Any = session._jvm
    try:
        return jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
            _FORMAT, session._jsparkSession.sessionState().conf()
        )
    except (Py4JJavaError, PySparkException):
        return None


def _has_catalog(session: SparkSession) -> bool:
    """Return whether another catalog replaces Spark's own; Unity Catalog's will do as well as Delta's."""
    return session.conf.get(_CATALOG_CONF, None) not in (None, "builtin")

"""``configure``: gives a session, or the builder of one, the settings that Millpond needs.

Rule of this module: what is needed, and why, is in one table. In a Declarative Pipeline nothing can be set, and is
checked instead. A hook for uncaught errors that somebody else has set stays, as in notebooks.
"""

import logging
import sys
from collections.abc import Mapping
from functools import wraps
from traceback import format_tb
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.adapters.monitor.kept.runs import cause, is_own
from millpond.adapters.spark.accessor import add_accessor
from millpond.adapters.spark.reading.state_source import PUSHDOWN_CONF, register_state_source
from millpond.adapters.spark.session.pipelines import in_pipeline
from millpond.adapters.spark.session.session import (
    CHANGELOG_CONF,
    PROVIDER_CONF,
    PYTHON_CONF,
    ROCKSDB_PROVIDER,
    check_spec,
    give_own_python,
)
from millpond.errors import InvalidArgumentError

Configured = TypeVar("Configured", SparkSession, SparkSession.Builder)

_log = logging.getLogger("millpond.spark.session")


class _Needed(NamedTuple):
    """The value of a setting.

    Attributes:
        value: the value.
        why: what it is for.
        any_value: whether another value, if one has been set, does as well.
    """

    value: str
    why: str
    any_value: bool = False


_NEEDED: Final[Mapping[str, _Needed]] = {
    PROVIDER_CONF: _Needed(ROCKSDB_PROVIDER, "Spark's operator for Python state runs on no other"),
    CHANGELOG_CONF: _Needed("true", "else each micro-batch uploads a snapshot of Spark's own state", any_value=True),
    PUSHDOWN_CONF: _Needed("true", "so that a look at some keys of a store reads little else"),
}


def configure(session: Configured) -> Configured:
    """Set what Millpond needs in a Spark session, or in the builder of one, classic or of Spark Connect.

    That is the RocksDB provider for Spark's own state, without which its operator for Python state does not run, and
    changelog checkpointing, without which each micro-batch uploads a snapshot of that state. What is set in a builder
    after this call wins; in a session, changelog checkpointing stays as it is if it has been set. Workers on this
    machine run the Python that runs this program, unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names one. The
    logger ``millpond.spark.session`` gets a line that says what was set, and why, at the level INFO.

    An uncaught failure of a query is printed as Millpond's message, without Spark's plan and stack, where
    ``sys.excepthook`` is Python's own.

    Spark's loggers of routine work (each start of a task's state server, each streaming sink) then log errors only, and
    a builder's session draws no bars of progress unless the builder was told to before.

    The session can then also read stores by ``spark.read.format("millpond")``, and DataFrames have their verbs at
    ``df.millpond``.

    In the file of a Declarative Pipeline nothing can be set: there it checks that the pipeline's spec has done so.

    Returns:
        The session or builder that it got.

    Raises:
        ConfigurationError: it is neither, or the spec of a pipeline lacks something.

    >>> from pyspark.sql import SparkSession
    >>> builder = configure(SparkSession.builder.master("local[2]"))
    """
    asked: Any = session
    if not hasattr(asked, "conf") and not hasattr(asked, "config"):
        raise InvalidArgumentError(f"configure takes a SparkSession or SparkSession.builder, not {session!r}")
    add_accessor()
    shorten_uncaught()
    if not hasattr(asked, "conf"):
        _set_in_builder(asked)
    elif in_pipeline(asked):
        check_spec(asked)
    else:
        _set_in(asked)
        register_state_source(asked)
    return session


_BAR: Final = "spark.ui.showConsoleProgress"
_NO_BAR: Final = _Needed("false", "else each micro-batch draws bars on the terminal")

_LOUD: Final = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer",
    "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream",
)
"""The loggers that warn of each task, or of each query, that works."""


def _hush(session: SparkSession) -> None:
    """Have loggers that warn of what works tell of errors alone, where the session's JVM is at hand."""
    if not hasattr(session, "sparkContext"):
        return
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _LOUD:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def _set_in(session: SparkSession) -> None:
    lacking = _lacking(session)
    for name, needed in lacking.items():
        session.conf.set(name, needed.value)
    _hush(session)
    _tell(lacking | _own_python(session))


def _set_in_builder(builder: SparkSession.Builder) -> None:
    settings = {**_NEEDED, **({} if _BAR in builder._options else {_BAR: _NO_BAR})}
    for name, needed in settings.items():
        builder.config(name, needed.value)
    make = builder.getOrCreate

    @wraps(make)
    def made() -> SparkSession:
        session = make()
        _hush(session)
        _tell(_own_python(session))
        register_state_source(session)
        return session

    builder.getOrCreate = made  # type: ignore[method-assign]
    _tell(settings)


def _lacking(session: SparkSession) -> dict[str, _Needed]:
    """Return the settings that the session has otherwise than is needed."""
    before = {name: session.conf.get(name, None) for name in _NEEDED}
    return {
        name: needed
        for name, needed in _NEEDED.items()
        if before[name] != needed.value and not (needed.any_value and before[name] is not None)
    }


def _own_python(session: SparkSession) -> dict[str, _Needed]:
    """Have workers run this program's Python from now on; return the change as a setting."""
    python = give_own_python(session)
    return {} if python is None else {PYTHON_CONF: _Needed(python, "the Python of this program, which has Millpond")}


def _tell(settings: Mapping[str, _Needed]) -> None:
    if settings:
        told = ", ".join(f"{name} = {one.value} ({one.why})" for name, one in settings.items())
        _log.info("configure set %s", told)


def shorten_uncaught() -> None:
    """Print what Millpond says of the failure of a query in place of all that Spark adds, where nobody catches it."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what Python prints, but for the text of an error of Millpond's."""
    if not isinstance(error, PySparkException) or not is_own(str(error)):
        sys.__excepthook__(kind, error, trace)
        return
    name, said = cause(str(error))
    lines = ["Traceback (most recent call last):\n", *format_tb(trace)] if trace is not None else []
    shown = f"{kind.__module__}.{kind.__qualname__}: {name}: {said}\n(Spark's plan and stack are left out here)\n"
    sys.stderr.write("".join([*lines, shown]))

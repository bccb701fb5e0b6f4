"""``df.millpond``: the verbs of a ``Millpond`` at the DataFrame that they are for.

Rule of this module: it knows no verb by name, and decides nothing but whose state it is.
"""

import inspect
import tempfile
from collections.abc import Callable
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.session.pipelines import analyzing
from millpond.adapters.spark.verbs.pond import Millpond
from millpond.errors import InvalidArgumentError, MissingArgumentError
from millpond.processors.options.known_names import did_you_mean

APPLICATION_CONF: Final = "spark.millpond.application_id"
STATE_CONF: Final = "spark.millpond.state_dir"


class RowVerbs:
    """The verbs whose first input are these rows.

    ``df.millpond.latest(...)`` is ``pond.latest(df, ...)``. The Millpond is that of the session's settings
    ``spark.millpond.application_id`` and ``spark.millpond.state_dir``, one for all DataFrames of the session;
    ``df.millpond(pond)`` takes yours. Static DataFrames need neither.

    Args:
        rows: the rows.
        pond: runs the verbs; None for that of the session.
    """

    def __init__(self, rows: DataFrame, pond: Millpond | None = None) -> None:
        self._rows = rows
        self._pond = pond

    def __call__(self, pond: Millpond) -> "RowVerbs":
        """Return the verbs of another Millpond.

        Raises:
            ConfigurationError: it is none.
        """
        if not isinstance(pond, Millpond):
            raise InvalidArgumentError(
                f"df.millpond takes a Millpond, not {pond!r}; for a verb, write df.millpond.latest"
            )
        return RowVerbs(self._rows, pond)

    def __getattr__(self, name: str) -> Callable[..., DataFrame]:
        if name not in _VERBS:
            hint = did_you_mean(name, _VERBS)
            raise AttributeError(f"df.millpond has no verb {name!r}, only {', '.join(_VERBS)}{hint}")
        pond = _pond_for(self._rows) if self._pond is None else self._pond
        method = getattr(pond, name)
        return update_wrapper(partial(method, self._rows), method)

    def __dir__(self) -> list[str]:
        return list(_VERBS)

    def __repr__(self) -> str:
        return f"df.millpond, with the verbs {', '.join(_VERBS)}"


def add_accessor() -> None:
    """Let all DataFrames of this process, classic and of Spark Connect, have their verbs at ``df.millpond``."""
    DataFrame.millpond = property(RowVerbs)  # type: ignore[attr-defined]


def _verbs() -> list[str]:
    """Return the methods of ``Millpond`` whose first argument are rows."""
    methods = inspect.getmembers(Millpond, inspect.isfunction)
    return [name for name, method in methods if not name.startswith("_") and _takes_rows(method)]


def _takes_rows(method: Callable[..., Any]) -> bool:
    _, *arguments = inspect.signature(method).parameters.values()
    return bool(arguments) and arguments[0].annotation is DataFrame


_VERBS: Final = _verbs()

_ponds: WeakKeyDictionary[SparkSession, dict[tuple[str, str], Millpond]] = WeakKeyDictionary()
"""The Millponds of sessions, by the settings that they were made of."""


def _pond_for(rows: DataFrame) -> Millpond:
    """Return the Millpond of the session of these rows, or one without state for static rows where nothing is set.

    Raises:
        ConfigurationError: nothing is set, and the rows are a stream.
    """
    session = rows.sparkSession
    application, state = (session.conf.get(name, None) for name in (APPLICATION_CONF, STATE_CONF))
    if application is not None and state is not None:
        ponds = _ponds.setdefault(session, {})
        if (application, state) not in ponds:
            ponds[application, state] = Millpond(application_id=application, state_dir=state)
        return ponds[application, state]
    with analyzing(session):
        streaming = rows.isStreaming
    if streaming:
        raise MissingArgumentError(
            f"the session does not say whose state a stream has; set {APPLICATION_CONF} and {STATE_CONF}, or name it: "
            "df.millpond(Millpond(application_id=..., state_dir=...))"
        )
    return Millpond(application_id="static", state_dir=str(Path(tempfile.gettempdir()) / "millpond-static"))

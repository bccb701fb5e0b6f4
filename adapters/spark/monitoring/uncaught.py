"""The uncaught error of a query, shown without Spark's plan and the JVM's stack.

Rule of this module: it changes what a program prints as it ends, and no exception. A hook that somebody else has set
stays, as in notebooks.
"""

import sys
from traceback import format_tb
from types import TracebackType

from pyspark.errors import PySparkException

from millpond.adapters.monitor.kept.runs import cause, is_own


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

"""The end of a command: by an error, with a message and an exit code, or by a signal.

SIGTERM ends a command as Ctrl-C does, so that all that it has begun is cleaned up.

Rule of this module: it knows errors and signals, and no command.
"""

import codecs
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn

from millpond.errors import ConfigurationError, MillpondError
from millpond.masking import quoted, without_known, without_known_in

NOT_RIGHT = 1
NONSENSE = 2
UNEXPECTED = 3


def told(error: Exception) -> str:
    """Return the message of an error, without its trace."""
    if isinstance(error, MillpondError):
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    if _of_a_file(error):
        return f"{quoted(error)}; see that the place is there, and that you may read and write it"
    return (
        f"an error that nobody expected: {type(error).__name__}: {quoted(error)}\n"
        "To see where it happened, give --debug before the command: millpond --debug ..."
    )


def to_dict(error: Exception) -> dict[str, str | int | None]:
    """Return the error as an object of JSON: the message, its code, if it has one, and the exit code."""
    code = error.code if isinstance(error, MillpondError) else None
    return {"error": told(error), "code": code, "exit_code": exit_code(error)}


def trace_without_secrets() -> None:
    """Make Python print the trace of the error that ends the process without the secrets in use."""

    def told_of(_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        without_known_in(error)
        print(without_known("".join(traceback.format_exception(error))), end="", file=sys.stderr)

    sys.excepthook = told_of


def exit_code(error: Exception) -> int:
    """Return the exit code of the command line for an error."""
    if isinstance(error, MillpondError):
        return NONSENSE if isinstance(error, ConfigurationError) else NOT_RIGHT
    return NOT_RIGHT if _of_a_file(error) else UNEXPECTED


def escape_what_cannot_be_written() -> None:
    r"""Make the standard output write a character that its encoding lacks as JSON does: ``\u00e9``.

    So a terminal without UTF-8 breaks no command, and lines of JSON mean the same.
    """
    stream = sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=_ESCAPES)


def _of_a_file(error: Exception) -> bool:
    """Return whether the system refused a file that it names: no permission, no such place, no room."""
    return isinstance(error, OSError) and error.filename is not None


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Return the escapes of characters that cannot be written: units of UTF-16, as ``\u`` in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)), error.end


_ESCAPES = "millpond.escapes"
codecs.register_error(_ESCAPES, _escaped)


@contextmanager
def in_order() -> Iterator[None]:
    """Let SIGTERM end the process within as Ctrl-C does, with exit code 143: all that is open is closed first.

    A second SIGTERM is ignored, so that it does not interrupt that.
    """

    def end(number: int, _: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

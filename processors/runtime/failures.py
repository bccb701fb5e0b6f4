"""Records for which a user's function failed: the error that names one, and the policy for them.

Rule of this module: it knows neither operators nor where dead letters are kept. A failure of Millpond's own, or of a
storage engine, is nobody's record: it fails the task whatever the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, Final

from millpond.errors import (
    ConfigurationError,
    InvalidKeyError,
    MillpondError,
    RecordError,
    SerdeError,
    UnreadableRowError,
    UserFunctionError,
)
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers
from millpond.processors.runtime.counters import CounterName

_MOST: Final = 200
"""How much of a key, a value or a text a message shows."""


@dataclass(frozen=True)
class Place:
    """Where in a topology a function failed.

    Attributes:
        operator: the node's name.
        task_id: the task's.
        topics: the source topics of its sub-topology.
    """

    operator: str
    task_id: str
    topics: tuple[str, ...]

    def __str__(self) -> str:
        read = ", ".join(map(repr, self.topics))
        return f"operator {self.operator!r} of task {self.task_id} (reads {read or 'nothing'})"


@dataclass(frozen=True)
class DeadLetter:
    """A record that was left out, and why.

    Attributes:
        operator: the node that left it out.
        task_id: the task's name.
        topics: the source topics of the task's sub-topology.
        reason: a ``CounterName``: what it was counted as.
        error: what went wrong.
        key, value: the record's, as the operator saw them.
        timestamp: the record's; of a punctuation, when it fired.
        headers: the record's, as the operator saw them; ``()`` if it has none.
    """

    operator: str
    task_id: str
    topics: tuple[str, ...]
    reason: str
    error: str
    key: Any
    value: Any
    timestamp: int | None
    headers: Headers = NO_HEADERS


class FailurePolicy:
    """What a task does about the records for which a user's function fails.

    Args:
        on_error: whether they fail the task, or are left out.
        keep_letter: takes those that are left out; None if they are only counted.
    """

    def __init__(
        self, on_error: OnError = OnError.FAIL, keep_letter: Callable[[DeadLetter], None] | None = None
    ) -> None:
        self.leaves_out = on_error is not OnError.FAIL
        self._keep_letter = keep_letter

    def check(self, error: Exception) -> None:
        """Raise the error again unless the policy is to leave out the record that caused it."""
        if not (self.leaves_out and is_of_record(error)):
            raise error

    def leave_out(
        self,
        place: Place,
        error: Exception,
        key: Any,
        value: Any,
        timestamp: int | None,
        step: str = "",
        headers: Headers | None = None,
    ) -> None:
        """Fail because of a record, or let it go.

        Args:
            place: where.
            error: what was raised.
            key, value, timestamp: the record's.
            step: more about what was done with it, for messages.
            headers: the record's; None if it has none.

        Raises:
            UserFunctionError: the policy is to fail.
            Exception: the error itself, if it is not about the record.
        """
        if not is_of_record(error):
            raise error
        if not self.leaves_out:
            raise failure(place, error, f"key {key!r:.{_MOST}}, timestamp {timestamp}, value {value!r:.{_MOST}}", step)
        if self._keep_letter is not None:
            reason = CounterName.DROPPED_USER_ERROR.value
            described = f"{step}: {describe(error)}" if step else describe(error)
            where = place.operator, place.task_id, place.topics
            self._keep_letter(DeadLetter(*where, reason, described, key, value, timestamp, headers or NO_HEADERS))


def is_of_record(error: Exception) -> bool:
    """Whether an error that left an operator is that of a user's function, or of a serde, and so of one record."""
    if isinstance(error, UserFunctionError | UnreadableRowError | MemoryError):
        return False
    if isinstance(error, MillpondError):
        # A plain ConfigurationError is one of a wrong argument that a function has made of its record.
        return isinstance(error, SerdeError | InvalidKeyError | RecordError) or type(error) is ConfigurationError
    return True


def failure(place: Place, error: Exception, record: str, step: str = "", remedy: str = "") -> UserFunctionError:
    """The error that says where a user's function failed, and for which record; ``error`` is its cause."""
    doing = f", {step}" if step else ""
    advice = remedy or "correct it and restart, or leave such records out with on_error='skip' or 'dead-letter'"
    made = UserFunctionError(
        f"{place}{doing}: {describe(error)} ({record})\n"
        f"{_raised_at(error)}; nothing of this micro-batch was kept; {advice}"
    )
    made.__cause__ = error
    return made


def describe(error: Exception) -> str:
    """An exception's type and text, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _raised_at(error: Exception) -> str:
    """Where an exception was raised, as far as Python knows."""
    frames = extract_tb(error.__traceback__)
    return f"raised in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno}" if frames else "raised"

"""Records for which a user's function failed: the error that names one, and the policy for them.

Rule of this module: it knows neither operators nor where dead letters are kept. A failure of Millpond, or of a
storage engine, is about no record: it fails the task under any policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

import millpond
from millpond.errors import (
    ConfigurationError,
    InvalidKeyError,
    MillpondError,
    RecordError,
    SerdeError,
    TopologyError,
    UnreadableRowError,
    UserFunctionError,
)
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers
from millpond.processors.runtime.counters import CounterName

_OWN: Final = str(Path(millpond.__file__).parent)
"""The directory of Millpond's code."""

_MOST: Final = 200
"""The number of characters of a key, a value or a text that a message shows."""


@dataclass(frozen=True)
class Place:
    """The place in a topology where a function failed.

    Attributes:
        operator: the name of the node for users.
        task_id: the task's.
        topics: the source topics of its sub-topology.
        node: the node's name.
    """

    operator: str
    task_id: str
    topics: tuple[str, ...]
    node: str

    def __str__(self) -> str:
        read = ", ".join(map(repr, self.topics))
        return f"operator {self.operator!r} of task {self.task_id} (reads {read or 'nothing'})"


@dataclass(frozen=True)
class DeadLetter:
    """A record that was left out, and the reason.

    Attributes:
        operator: the node that left it out.
        task_id: the task's name.
        topics: the source topics of the task's sub-topology.
        reason: the ``CounterName`` that it was counted as.
        error: the message of the error.
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


class RecordWords:
    """The words of messages about operators and records: here as operators see them."""

    def where(self, place: Place, key: Any = None) -> str:
        """Return the operator, and whose record it is where that says more than ``record``."""
        return str(place)

    def brief(self, place: Place, key: Any, timestamp: int | None) -> str:
        """Return a record by its key and time."""
        return f"with key {key!r:.{_MOST}} and timestamp {timestamp}"

    def record(self, place: Place, key: Any, value: Any, timestamp: int | None) -> str:
        """Return a record."""
        return f"key {key!r:.{_MOST}}, timestamp {timestamp}, value {value!r:.{_MOST}}"

    def kept(self, place: Place, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as a dead letter has them."""
        return key, value


class FailurePolicy:
    """The policy of a task for records for which a user's function fails.

    Args:
        on_error: whether such records fail the task, or are left out.
        keep_letter: takes records that are left out; None if they are only counted.
        words: the words of messages about them.
    """

    def __init__(
        self,
        on_error: OnError = OnError.FAIL,
        keep_letter: Callable[[DeadLetter], None] | None = None,
        words: RecordWords | None = None,
    ) -> None:
        self.leaves_out = on_error is not OnError.FAIL
        self.words = words or RecordWords()
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
        """Raise the error of a record, or count the record as left out.

        Args:
            place: the place of the failure.
            error: the exception.
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
            words = self.words
            raise failure(words.where(place, key), error, words.record(place, key, value, timestamp), step)
        if self._keep_letter is not None:
            reason = CounterName.DROPPED_USER_ERROR.value
            described = f"{step}: {describe(error)}" if step else describe(error)
            where = place.operator, place.task_id, place.topics
            kept = self.words.kept(place, key, value)
            self._keep_letter(DeadLetter(*where, reason, described, *kept, timestamp, headers or NO_HEADERS))


def is_of_record(error: Exception) -> bool:
    """Return whether an error that left an operator comes from a user's function or a serde, and so from one record."""
    if isinstance(error, UserFunctionError | UnreadableRowError | MemoryError):
        return False
    if isinstance(error, MillpondError):
        # A wrong argument is what a function has made of its record; the topology is nobody's.
        of_argument = isinstance(error, ConfigurationError) and not isinstance(error, TopologyError)
        return isinstance(error, SerdeError | InvalidKeyError | RecordError) or of_argument
    return True


def failure(where: str, error: Exception, record: str, step: str = "", remedy: str = "") -> UserFunctionError:
    """Return the error that says where a user's function failed, and for which record; ``error`` is its cause."""
    doing = f", {step}" if step else ""
    advice = remedy or "correct it and restart, or leave such records out with on_error='skip' or 'dead-letter'"
    made = UserFunctionError(
        f"{where}{doing}: {describe(error)} ({record})\n"
        f"{_raised_at(error)}nothing of this micro-batch was kept; {advice}"
    )
    made.__cause__ = error
    return made


def describe(error: Exception) -> str:
    """Return an exception's type and text, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _raised_at(error: Exception) -> str:
    """Return where an exception was raised, for one of Millpond's the line of its caller; empty if there is no line."""
    own = isinstance(error, MillpondError)
    frames = [frame for frame in extract_tb(error.__traceback__) if not (own and frame.filename.startswith(_OWN))]
    return f"raised in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno}; " if frames else ""

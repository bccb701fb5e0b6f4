"""Records for which a user's function failed: the error that names one, the policy for them, and who applies it.

Rule of this module: it knows neither stores nor children, nor where dead letters are kept. A failure of Millpond, or of
a storage engine, is about no record: it fails the task under any policy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, NoReturn, Protocol, TypeVar

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
from millpond.processors.runtime.batches.batch import Batch, concatenate
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers
from millpond.processors.runtime.change import Change
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.promises import Promises

_OWN: Final = str(Path(millpond.__file__).parent)
"""The directory of Millpond's code."""

_MOST: Final = 200
"""The number of characters of a key, a value or a text that a message shows."""

_NOT_ALONE: Final = (
    "correct it and restart; on_error cannot leave out single records here, because what had been done with them when "
    "it failed is not known: give a RecordProcessor, or call context.declare(repeatable=True) in init if nothing had"
)

_Written = TypeVar("_Written")


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


class Repeatable(Protocol):
    """A processor, as far as a failure concerns it."""

    @property
    def promises(self) -> Promises:
        """See ``Operator.promises``."""

    def process(self, batch: Batch) -> None:
        """See ``Processor.process``."""


class FailureHandling(ABC):
    """The part of a ``ProcessorContext`` that leaves records out, or fails because of them."""

    def __init__(self, place: Place, policy: FailurePolicy) -> None:
        self._place = place
        self._policy = policy

    @abstractmethod
    def count(self, what: str, amount: int = 1) -> None:
        """Count an event of this processor."""

    @property
    def leaves_out(self) -> bool:
        """True if a record for which a user's function fails is left out, so that the others can go on."""
        return self._policy.leaves_out

    def attempt(self, process: Callable[[Batch], None], batch: Batch) -> None:
        """Hand records to a part of this processor that calls users' functions, and one by one if that fails.

        Args:
            process: changes and forwards nothing if it raises.
            batch: the records.

        Raises:
            UserFunctionError: it fails for a record, and the policy is not to leave such records out.
        """
        try:
            process(batch)
        except Exception as error:  # a user's code may raise anything
            self._one_by_one(process, batch, error)

    def leave_out(
        self,
        error: Exception,
        key: Any,
        value: Any,
        timestamp: int,
        step: str = "",
        headers: Headers | None = None,
    ) -> None:
        """Fail because of a record for which a user's function failed, or count it: the caller goes on without it.

        Args:
            error: the exception.
            key, value, timestamp: the record's.
            step: more about what was done with it, for messages.
            headers: the record's; None if it has none.

        Raises:
            UserFunctionError: the policy is to fail.
            Exception: the error itself, if it comes from a store and not from a user's function.
        """
        self._policy.leave_out(self._place, error, key, value, timestamp, step, headers)
        self.count(CounterName.DROPPED_USER_ERROR)

    def check(self, error: Exception) -> None:
        """Raise an error again unless it is about a record that the policy leaves out.

        For calls that repeat what has failed, and has been counted, for another record before.
        """
        self._policy.check(error)

    def fail(self, error: Exception, step: str) -> NoReturn:
        """Raise the error that tells in which processor ``step`` failed, which handles no single record."""
        if not is_of_record(error):
            raise error
        raise failure(self._policy.words.where(self._place), error, "no single record", step, "correct it and restart")

    def recover(self, processor: Repeatable, batch: Batch, error: Exception) -> None:
        """Process records again, one by one, after ``processor``, whose context this is, failed for all of them.

        Raises:
            UserFunctionError: it fails for a record, and the policy or the processor allows to leave none out.
        """
        if processor.promises.repeatable:
            self._one_by_one(processor.process, batch, error)
            return
        if not is_of_record(error):
            raise error
        words = self._policy.words
        first, last = (words.brief(self._place, batch.keys[row], batch.timestamps[row]) for row in (0, -1))
        records = f"one of {len(batch)} records, the first {first}, the last {last}"
        raise failure(words.where(self._place), error, records, remedy=_NOT_ALONE)

    def _one_by_one(self, process: Callable[[Batch], None], batch: Batch, error: Exception) -> None:
        if not is_of_record(error):
            raise error
        if len(batch) == 1:
            self._leave_out_only(error, batch)
            return
        for row in batch.rows():
            try:
                process(row)
            except Exception as again:  # a user's code may raise anything
                self._leave_out_only(again, row)

    def _leave_out_only(self, error: Exception, batch: Batch) -> None:
        """``leave_out`` for the only record of a batch."""
        (headers,) = batch.headers_of_each
        self.leave_out(error, batch.keys[0], batch.values[0], batch.timestamps[0], headers=headers)


def written(context: FailureHandling, records: Records, write: Callable[[Records], _Written]) -> _Written:
    """Return the result of ``write`` for records that leave a task, without those for which it fails.

    Args:
        context: the context of the sink that they leave by.
        records: the records.
        write: turns them into bytes or columns, and changes nothing, so that it can be tried for each record alone.

    Raises:
        UserFunctionError: it fails for a record, and the policy is not to leave such records out.
    """
    try:
        return write(records)
    except Exception as error:  # a user's serde may raise anything
        if not is_of_record(error):
            raise
    rows = records.to_batch().rows()
    return write(concatenate([kept for row in rows for kept in _kept(context, row, write)]))


def _kept(context: FailureHandling, row: Batch, write: Callable[[Records], object]) -> Iterator[Batch]:
    """Yield the parts of a record that can be written: all, nothing, or one half of a table's change."""
    value = row.values[0]
    change = value if isinstance(value, Change) else Change(value, None)
    try:
        write(row)
    except Exception as error:  # a user's serde may raise anything
        if change.old is None or not context.leaves_out:
            (headers,) = row.headers_of_each
            context.leave_out(error, row.keys[0], change.new, row.timestamps[0], headers=headers)
        elif change.new is None:
            # It was left out when it was new, so it need not be taken back.
            context.check(error)
        else:
            for half in change.halves():
                yield from _kept(context, row.with_values([half]), write)
    else:
        yield row

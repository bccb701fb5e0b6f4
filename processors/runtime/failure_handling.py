"""The handling of records for which a user's function fails, in a processor's context.

Rule of this module: it knows the policy, and how to process records again; it knows neither stores nor children.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import FailurePolicy, Place, failure, is_of_record
from millpond.processors.runtime.promises import Promises

_NOT_ALONE: Final = (
    "correct it and restart; on_error cannot leave out single records here, because what had been done with them when "
    "it failed is not known: give a RecordProcessor, or call context.declare(repeatable=True) in init if nothing had"
)


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

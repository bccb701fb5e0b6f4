"""Dead letters: the records that a job left out because they could not be processed, kept with the reason.

Rule of this module: it knows what a letter looks like; ``left_out`` knows the files.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.inspect.text import shown_text, sound_text
from millpond.adapters.spark.rows.left_out import Kind, LeftOut, read_left_out
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.masking import without_known
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.failures import DeadLetter, FailurePolicy, RecordWords
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import TimeUnit

DEAD_LETTERS: Final = Kind(
    "dead-letters",
    "dead letters",
    "failed_at timestamp, application string, name string, topic string, operator string, task string, query string, "
    "batch_id bigint, reason string, error string, key string, value string, timestamp timestamp, key_bytes binary, "
    "value_bytes binary, headers array<struct<key:string,value:binary>>",
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ErrorHandling:
    """The handling of records that a query cannot process. Travels to the workers.

    Attributes:
        on_error: the policy.
        storage: where the durable state is.
        application_id: the job's name.
        name: of the sink or the verb.
        run: takes the place of the query's id for static DataFrames.
        unit: what the records' timestamps count.
    """

    on_error: OnError
    storage: Storage
    application_id: str
    name: str
    run: str
    unit: TimeUnit

    def box(self, where: str, attempt: Attempt, words: RecordWords | None = None) -> "DeadLetterWriter":
        """Return the writer of the records that a task, or the reader of a part of an input, leaves out.

        Args:
            where: which task or part.
            attempt: to run it.
            words: how messages and letters tell of records.
        """
        return DeadLetterWriter(self, where, attempt, words)


class DeadLetterWriter:
    """The dead letters of one part of a micro-batch; none unless the policy is to keep them.

    Attributes:
        policy: what operators do about records for which a user's function fails.
        keep_letter: takes letters; None if none are kept.
    """

    def __init__(self, handling: ErrorHandling, where: str, attempt: Attempt, words: RecordWords | None = None) -> None:
        self.keep_letter = self._add if handling.on_error is OnError.DEAD_LETTER else None
        self.policy = FailurePolicy(handling.on_error, self.keep_letter, words)
        self._handling = handling
        self._letters = LeftOut(
            DEAD_LETTERS, handling.storage, handling.application_id, handling.name, handling.run, where, attempt
        )

    def _add(self, letter: DeadLetter) -> None:
        handling = self._handling
        self._letters.add(
            {
                "failed_at": time.time_ns() // 1_000,
                "application": handling.application_id,
                "name": handling.name,
                "topic": ", ".join(letter.topics),
                "operator": letter.operator or None,
                "task": letter.task_id,
                "query": self._letters.query,
                "batch_id": self._letters.batch_id,
                "reason": letter.reason,
                "error": sound_text(without_known(letter.error)),
                "key": shown_text(letter.key),
                "value": shown_text(letter.value),
                "timestamp": micros_or_none(letter.timestamp, handling.unit),
                "key_bytes": letter.key if isinstance(letter.key, bytes) else None,
                "value_bytes": letter.value if isinstance(letter.value, bytes) else None,
                "headers": [{"key": name, "value": data} for name, data in letter.headers] or None,
            }
        )

    def write(self) -> None:
        """Write the letters, if there are any; called when all records have been processed.

        Raises:
            DurabilityError: the storage failed.
        """
        self._letters.write()


def read_dead_letters(session: SparkSession, storage: Storage, application_id: str, name: str | None) -> DataFrame:
    """Return the dead letters of a job, or of one of its sinks or verbs.

    Raises:
        DurabilityError: the storage failed.
    """
    return read_left_out(session, DEAD_LETTERS, storage, application_id, name)


def micros_or_none(time_: int | None, unit: TimeUnit) -> int | None:
    """Return a time in microseconds; None if no calendar has it."""
    if time_ is None:
        return None
    try:
        _EPOCH + timedelta(microseconds=time_ * int(unit))
    except OverflowError:
        return None
    return time_ * int(unit)

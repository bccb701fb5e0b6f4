"""Dead letters: the records that a job left out, kept with the reason, as Parquet files beside its state.

Rule of this module: it knows neither operators nor policies for inputs, only where letters go and what they look like.

The files are ``<application_id>/dead-letters/<sink or verb>/<query>-<micro-batch>-<where>.parquet``. ``where`` is a
task, or a topic and the part of its input. So an attempt that repeats a micro-batch replaces what an earlier one left,
and each record that was left out is there once. A file appears after all records of its task have been processed.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.worker import current_batch
from millpond.errors import CorruptFileError
from millpond.processors.distribution.header_column import HEADERS_TYPE
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.failures import DeadLetter, FailurePolicy
from millpond.stores.durability.storage import Storage
from millpond.stores.text import shown_text, sound_text
from millpond.stores.times import TimeUnit

DEAD_LETTERS: Final = "dead-letters"
"""The directory, within that of the application."""

DDL: Final = (
    "failed_at timestamp, application string, name string, topic string, operator string, task string, query string, "
    "batch_id bigint, reason string, error string, key string, value string, timestamp timestamp, key_bytes binary, "
    "value_bytes binary, headers array<struct<key:string,value:binary>>"
)
"""The columns of dead letters."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": _TIME,
    "array<struct<key:string,value:binary>>": HEADERS_TYPE,
}
_FIELDS: Any = [(name, _TYPES[type_]) for name, type_ in map(str.split, DDL.split(", "))]
_SCHEMA: Final[pa.Schema] = pa.schema(_FIELDS)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LETTERS_PER_GROUP: Final = 1_000
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class ErrorHandling:
    """What a query does about records that it cannot process. Travels to the workers.

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

    def box(self, where: str) -> "LetterBox":
        """What a worker keeps of the records that a task, or the reader of a part of an input, leaves out."""
        return LetterBox(self, where)


class LetterBox:
    """The dead letters of one part of a micro-batch; none unless the policy is to keep them.

    Attributes:
        policy: what operators do about records for which a user's function fails.
        bury: takes letters; None if none are kept.
    """

    def __init__(self, handling: ErrorHandling, where: str) -> None:
        self.bury = self._add if handling.on_error is OnError.DEAD_LETTER else None
        self.policy = FailurePolicy(handling.on_error, self.bury)
        self._handling = handling
        self._where = where
        self._rows: list[dict[str, Any]] = []
        self._groups: list[pa.RecordBatch] = []
        context = TaskContext.get()
        self._batch_id = current_batch()
        self._query = (None if context is None else context.getLocalProperty(_QUERY_ID)) or handling.run

    def _add(self, letter: DeadLetter) -> None:
        handling = self._handling
        self._rows.append(
            {
                "failed_at": time.time_ns() // 1_000,
                "application": handling.application_id,
                "name": handling.name,
                "topic": ", ".join(letter.topics),
                "operator": letter.operator or None,
                "task": letter.task_id,
                "query": self._query,
                "batch_id": self._batch_id,
                "reason": letter.reason,
                "error": sound_text(letter.error),
                "key": shown_text(letter.key),
                "value": shown_text(letter.value),
                "timestamp": _micros(letter.timestamp, handling.unit),
                "key_bytes": letter.key if isinstance(letter.key, bytes) else None,
                "value_bytes": letter.value if isinstance(letter.value, bytes) else None,
                "headers": [{"key": name, "value": data} for name, data in letter.headers] or None,
            }
        )
        if len(self._rows) == _LETTERS_PER_GROUP:
            self._group()

    def write(self) -> None:
        """Write the letters, if there are any; called when all records have been processed.

        Raises:
            DurabilityError: the storage failed.
        """
        self._group()
        if not self._groups:
            return
        content = pa.BufferOutputStream()
        with pq.ParquetWriter(content, _SCHEMA) as writer:
            for group in self._groups:
                writer.write_batch(group)
        directory = _directory(self._handling.application_id, self._handling.name)
        batch = "static" if self._batch_id is None else f"{self._batch_id:010d}"
        path = f"{directory}/{self._query}-{batch}-{quote(self._where, safe='')}.parquet"
        self._handling.storage.put(path, content.getvalue().to_pybytes())

    def _group(self) -> None:
        if self._rows:
            self._groups.append(pa.RecordBatch.from_pylist(self._rows, schema=_SCHEMA))
            self._rows = []


@dataclass(frozen=True)
class _ReadLetters:
    """The function of ``mapInArrow`` that turns the paths of files into their rows."""

    storage: Storage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from _read(self.storage, str(path)).to_batches()


def read_dead_letters(session: SparkSession, storage: Storage, application_id: str, name: str | None) -> DataFrame:
    """The dead letters of a job, or of one of its sinks or verbs; the columns are those of ``DDL``.

    Raises:
        DurabilityError: the storage failed.
    """
    names = storage.directories(f"{application_id}/{DEAD_LETTERS}") if name is None else [quote(name, safe="")]
    paths = [
        (file.path,)
        for directory in names
        for file in storage.list(_directory(application_id, unquote(directory)))
        if file.path.endswith(".parquet")
    ]
    files = session.createDataFrame(paths, "path string")
    return files.repartition(max(1, min(len(paths), 32))).mapInArrow(_ReadLetters(storage), DDL)


def _directory(application_id: str, name: str) -> str:
    return f"{application_id}/{DEAD_LETTERS}/{quote(name, safe='')}"


def _read(storage: Storage, path: str) -> pa.Table:
    try:
        return pq.read_table(pa.BufferReader(storage.read(path)), schema=_SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            f"the dead letters in {storage.describe(path)} cannot be read: {error}; delete the file to read the others"
        ) from error


def _micros(time_: int | None, unit: TimeUnit) -> int | None:
    """A time in microseconds; None if no calendar has it."""
    if time_ is None:
        return None
    try:
        _EPOCH + timedelta(microseconds=time_ * int(unit))
    except OverflowError:
        return None
    return time_ * int(unit)

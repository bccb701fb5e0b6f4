"""Rows that a job has left out, as Parquet files beside its state, and as DataFrames.

Rule of this module: it knows where such files go and how they are written and read, not why a row was left out.

The files are ``<application_id>/<kind>/<sink or verb>/<query>-<micro-batch>-<where>.parquet``. ``where`` is a task, or
a topic and the part of its input. So an attempt that repeats a micro-batch replaces what an earlier one left, and each
row that was left out is there once. A file appears after all records of its task have been processed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.errors import CorruptFileError
from millpond.masking import quoted
from millpond.processors.distribution.header_column import HEADERS_TYPE
from millpond.stores.durability.storage.storage import Storage

_ROWS_PER_GROUP: Final = 1_000
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<struct<key:string,value:binary>>": HEADERS_TYPE,
}


@dataclass(frozen=True)
class Kind:
    """A kind of rows that are left out.

    Attributes:
        directory: where their files are, within that of the application.
        called: what messages call them.
        ddl: their columns.
    """

    directory: str
    called: str
    ddl: str

    @property
    def schema(self) -> pa.Schema:
        fields: Any = [(name, _TYPES[type_]) for name, type_ in map(str.split, self.ddl.split(", "))]
        return pa.schema(fields)


class LeftOut:
    """The rows that one part of a micro-batch leaves out.

    Args:
        kind: of the rows.
        storage: where the durable state is.
        application_id: the job's name.
        name: of the sink or the verb.
        run: takes the place of the query's id for static DataFrames.
        where: which part.
        attempt: to run it.

    Attributes:
        query, batch_id: of the micro-batch; the latter is None for static DataFrames.
    """

    def __init__(
        self, kind: Kind, storage: Storage, application_id: str, name: str, run: str, where: str, attempt: Attempt
    ) -> None:
        self._kind = kind
        self._storage = storage
        self._directory = _directory(kind, application_id, name)
        self._where = where
        self._rows: list[Mapping[str, Any]] = []
        self._groups: list[pa.RecordBatch] = []
        self.batch_id = attempt.batch
        self.query = attempt.query or run

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a row, with the columns of its kind."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._group()

    def write(self) -> None:
        """Write the rows, if there are any; called when all records have been processed.

        Raises:
            DurabilityError: the storage failed.
        """
        self._group()
        if not self._groups:
            return
        content = pa.BufferOutputStream()
        with pq.ParquetWriter(content, self._kind.schema) as writer:
            for group in self._groups:
                writer.write_batch(group)
        batch = "static" if self.batch_id is None else f"{self.batch_id:010d}"
        path = f"{self._directory}/{self.query}-{batch}-{quote(self._where, safe='')}.parquet"
        self._storage.put(path, content.getvalue().to_pybytes())

    def _group(self) -> None:
        if self._rows:
            self._groups.append(pa.RecordBatch.from_pylist(self._rows, schema=self._kind.schema))
            self._rows = []


@dataclass(frozen=True)
class _Read:
    """The function of ``mapInArrow`` that turns the paths of files into their rows."""

    kind: Kind
    storage: Storage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from self._rows(str(path)).to_batches()

    def _rows(self, path: str) -> pa.Table:
        try:
            return pq.read_table(pa.BufferReader(self.storage.read(path)), schema=self.kind.schema)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(
                f"the {self.kind.called} in {self.storage.describe(path)} cannot be read: {quoted(error)}; delete the "
                "file to read the others"
            ) from error


def read_left_out(
    session: SparkSession, kind: Kind, storage: Storage, application_id: str, name: str | None
) -> DataFrame:
    """Return the rows that a job, or one of its sinks or verbs, has left out, with the columns of their kind.

    Raises:
        DurabilityError: the storage failed.
    """
    names = storage.directories(f"{application_id}/{kind.directory}") if name is None else [quote(name, safe="")]
    paths = [
        (file.path,)
        for directory in names
        for file in storage.list(_directory(kind, application_id, unquote(directory)))
        if file.path.endswith(".parquet")
    ]
    files = session.createDataFrame(paths, "path string")
    return in_workers(files.repartition(max(1, min(len(paths), 32))), _Read(kind, storage), kind.ddl)


def _directory(kind: Kind, application_id: str, name: str) -> str:
    return f"{application_id}/{kind.directory}/{quote(name, safe='')}"

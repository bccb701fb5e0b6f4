"""The rows that come out of a verb, on their way from an operator to the columns of a DataFrame.

Rule of this module: between the two nobody but Arrow touches a value. Rows leave the operator as leaves of their
columns (``adapters/spark/rows/leaves.py``). Where these have none, rows leave it as Arrow IPC streams of about
``BLOB_BYTES`` in a binary column, and become columns in a step of their own (``adapters/spark/rows/sink_blobs.py``),
which is one more way to Python and back.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN
from millpond.adapters.spark.rows.leaves import Leaves, has_leaves
from millpond.adapters.spark.rows.sink import arrow_schema, parsed, type_named
from millpond.adapters.spark.rows.sink_blobs import to_columns
from millpond.adapters.spark.session.sent import in_workers
from millpond.processors.distribution.exchange import BLOB_BYTES, to_ipc
from millpond.processors.rows.column_values import ColumnsOwner, ColumnValues, DictColumns, optional_columns
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.verbs.verb import Projection

_BLOBS: Final = pa.schema([("rows", pa.binary())])


@dataclass(frozen=True)
class RowSink(ABC):
    """The rows of a verb's result, as they leave the operator. Travels to the workers.

    Attributes:
        rows: the same as they are, for a verb in the same operator.
    """

    rows: PartRows

    @property
    def topic(self) -> str:
        return self.rows.topic

    @property
    @abstractmethod
    def columns(self) -> str | T.StructType:
        """The columns of the operator's output for Spark, or as its DDL."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The same for Arrow."""

    @abstractmethod
    def to_table(self, records: Records, first: int) -> pa.Table:
        """Return the output for the records, of which the first has that ``sequence``."""

    @abstractmethod
    def shown(self, output: DataFrame, *, manifests: bool = False) -> DataFrame:
        """Return the rows of the operator's output; in a backfill manifests stand beside them."""


@dataclass(frozen=True)
class LeafSink(RowSink):
    """Rows as leaves of their columns.

    Attributes:
        leaves: of the rows.
    """

    leaves: Leaves

    @property
    def columns(self) -> T.StructType:
        return self.leaves.columns

    @property
    def schema(self) -> pa.Schema:
        return self.leaves.schema

    def to_table(self, records: Records, first: int) -> pa.Table:
        return self.leaves.taken_apart(self.rows.to_table(records, first))

    def shown(self, output: DataFrame, *, manifests: bool = False) -> DataFrame:
        return self.leaves.put_together(output, *([MANIFEST_COLUMN] if manifests else []))


@dataclass(frozen=True)
class BlobSink(RowSink):
    """Rows as blobs.

    Attributes:
        shape: the columns that come of them.
    """

    shape: T.StructType

    @property
    def columns(self) -> str:
        return "rows binary"

    @property
    def schema(self) -> pa.Schema:
        return _BLOBS

    def to_table(self, records: Records, first: int) -> pa.Table:
        table = self.rows.to_table(records, first)
        step = max(1, table.num_rows * BLOB_BYTES // max(1, table.nbytes))
        blobs: Any = pa.array([to_ipc(table.slice(start, step)) for start in range(0, table.num_rows, step)])
        return pa.Table.from_arrays([blobs], schema=_BLOBS)

    def shown(self, output: DataFrame, *, manifests: bool = False) -> DataFrame:
        if not manifests:
            return to_columns(output, self.shape)
        fields = [T.StructField(column.name, column.dataType) for column in self.shape]
        beside = T.StructType([*fields, T.StructField(MANIFEST_COLUMN, T.StringType())])
        return in_workers(output, UnpackBesideManifests(arrow_schema(beside)), beside)


@dataclass(frozen=True)
class UnpackBesideManifests:
    """The function of ``mapInArrow`` that makes rows of an operator's output, and lets manifests pass.

    Attributes:
        schema: the columns of the rows for Arrow, each nullable, and that of the manifests.
    """

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob, manifest in zip(batch.column("rows"), batch.column(MANIFEST_COLUMN), strict=True):
                if manifest.is_valid:
                    yield self._beside(1, manifest=manifest.as_py())
                else:
                    for rows in pa.ipc.open_stream(blob.as_buffer()):
                        yield self._beside(rows.num_rows, rows.columns)

    def _beside(self, number: int, columns: list[Any] | None = None, *, manifest: str | None = None) -> pa.RecordBatch:
        """Return so many rows of the columns, or of nulls, with that manifest."""
        *fields, last = self.schema
        columns = columns or [pa.nulls(number, field.type) for field in fields]
        return pa.RecordBatch.from_arrays([*columns, pa.array([manifest] * number, last.type)], schema=self.schema)


def announced_columns(
    verb: str, ddl: str | T.StructType, optional: Collection[str]
) -> tuple[T.StructType, DictColumns]:
    """Return the columns of ``ddl``, and the part that fills them from dicts.

    Raises:
        TopologyError: the schema cannot be read, or lacks an optional column.
    """
    owner = ColumnsOwner(verb, verb=True)
    columns, schema = parsed(owner, ddl)
    return columns, DictColumns(ColumnValues(owner, optional_columns(owner, schema, optional), type_named), schema)


def row_sink(topic: str, columns: T.StructType, parts: Sequence[Projection]) -> RowSink:
    """Return the sink whose rows have these columns, which are those of the parts."""
    rows = PartRows(parts, arrow_schema(columns), topic)
    return LeafSink(rows, Leaves(columns)) if has_leaves(columns) else BlobSink(rows, columns)


def column_sink(topic: str, columns: T.StructType, parts: Sequence[Projection]) -> RowSink:
    """Return the same of rows that leave the map side, where Spark takes Arrow's columns as they are."""
    return LeafSink(PartRows(parts, arrow_schema(columns), topic), Leaves(columns, nested=True))

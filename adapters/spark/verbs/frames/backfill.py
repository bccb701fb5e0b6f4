"""``Backfill``: a run of verbs over inputs that have an end; the verbs on streams begin with its state.

Rule of this module: it knows what a user says of such a run, and what its results are in files, which hold columns of
Spark's types, and manifests beside them. When it runs, and what makes it count, is up to
``millpond.adapters.spark.job.backfill``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import join
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN
from millpond.adapters.spark.rows.column_types import check_leaf_types
from millpond.adapters.spark.rows.intervals import from_months, traveling
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.adapters.spark.session.sent import in_workers
from millpond.errors import StreamingOrStaticError


@dataclass(frozen=True)
class Backfill:
    """The settings of a backfill of verbs.

    Attributes:
        complete: a static DataFrame any row of which says that no row follows; None if streams go on in time.
        results: the directory for the results, as Spark reaches it; None for one in the state directory.

    Raises:
        ConfigurationError: ``complete`` is a stream.
    """

    complete: DataFrame | None
    results: str | None

    def __post_init__(self) -> None:
        if self.complete is not None and self.complete.isStreaming:
            raise StreamingOrStaticError(
                "a backfill takes inputs that have an end, and complete is a streaming DataFrame; give a static one, "
                "such as spark.range(1), or none"
            )

    def results_of(self, name: str) -> str | None:
        """Return the directory for the results of a verb; None for one in the state directory."""
        return None if self.results is None else join(self.results, name)


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


def check_storable(name: str, columns: T.StructType) -> None:
    """Refuse results that Parquet cannot hold.

    Args:
        name: of the verb.
        columns: of its results.

    Raises:
        ConfigurationError: a column is of no type.
    """

    def objection(_: str, type_: T.DataType) -> str | None:
        if isinstance(type_, T.NullType):
            return "which the files of a backfill's results cannot hold; cast it to what it is in the stream"
        return None

    for column in columns:
        check_leaf_types(f"the result of {name!r}", column.name, column.dataType, objection)


def to_results(blobs: DataFrame, columns: T.StructType) -> DataFrame:
    """Return the output of an operator in a backfill as it is written: the columns of the results, and manifests."""
    fields = [T.StructField(column.name, column.dataType) for column in columns]
    beside = T.StructType([*fields, T.StructField(MANIFEST_COLUMN, T.StringType())])
    packed = traveling(beside)
    return from_months(in_workers(blobs, UnpackBesideManifests(arrow_schema(packed)), packed), beside)

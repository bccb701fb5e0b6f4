"""Rows of sinks as blobs, in which they leave an operator that cannot put them out as columns.

Rule of this module: between the two nobody but Arrow touches a value. Rows of several sinks leave one query in blobs of
the exchange (``millpond.processors.distribution.exchange``): ``task`` is the task that made them, whose own operator
comes before any that could take it for one of its tasks; ``input`` is the number of the sink; ``records`` is an Arrow
IPC stream of the sink's columns.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.session.sent import in_workers
from millpond.processors.distribution.exchange import EXCHANGE_SCHEMA, Blob, BlobWriter
from millpond.processors.distribution.execution import Outputs
from millpond.processors.rows.sink_rows import SinkRows

EXCHANGE_DDL: Final = "task int, input int, split int, chunk int, records binary"
"""``EXCHANGE_SCHEMA`` as Spark writes it."""

_, _SINK, *_ORDER, _RECORDS = EXCHANGE_SCHEMA.names


class SinkBlobs:
    """The rows that one task writes to several sinks in one micro-batch; in each sink they have numbers of their own.

    Args:
        sinks: the sinks, by number.
        task: the number of the task.
        batch: the number of the micro-batch.
        writer: numbers the blobs.
    """

    def __init__(self, sinks: Mapping[int, SinkColumns], task: int, batch: int, writer: BlobWriter) -> None:
        self._rows = {number: SinkRows(sink, batch) for number, sink in sinks.items()}
        self._task = task
        self._writer = writer

    def blobs(self, outputs: Outputs) -> Iterator[Blob]:
        """Yield the rows of all sinks among a task's output.

        Raises:
            UserFunctionError: a value does not fit its column, or lacks its entry, and the policy is not to leave such
                records out.
        """
        for number, rows in self._rows.items():
            for table in rows.to_tables(outputs):
                yield from self._writer.cut(table, self._task, number)


def rows_of(blobs: DataFrame, number: int, sink: SinkColumns) -> DataFrame:
    """Return the rows of the sink with that number, those of each task in their order."""
    own = blobs.where(F.col(_SINK) == number).sortWithinPartitions(EXCHANGE_SCHEMA.names[0], *_ORDER)
    return to_columns(own.select(_RECORDS), sink.columns)


def to_columns(blobs: DataFrame, columns: T.StructType | str) -> DataFrame:
    """Return the columns of the rows whose blobs are the only column of ``blobs``."""
    return in_workers(blobs, _unpacked, columns)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for blob in batch.column(0):
            yield from pa.ipc.open_stream(blob.as_buffer())

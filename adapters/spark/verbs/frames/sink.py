"""The rows that come out of a verb, on their way from an operator to the columns of a DataFrame.

Rule of this module: between the two nobody but Arrow touches a value. Spark takes the output of its operator for Python
state through pandas, which has no exact form for nested values, so rows leave it as Arrow IPC streams of about
``BLOB_BYTES`` in a binary column, and become columns in a step of their own (``adapters/spark/rows/sink_blobs.py``).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T

from millpond.adapters.spark.rows.sink import arrow_schema, parsed, type_named
from millpond.processors.distribution.exchange import BLOB_BYTES, to_ipc
from millpond.processors.rows.column_values import ColumnsOwner, ColumnValues, DictColumns, optional_columns
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.verbs.verb import Projection

_BLOBS: Final = pa.schema([("rows", pa.binary())])


@dataclass(frozen=True)
class RowSink:
    """The rows of a verb's result, as they leave the operator. Travels to the workers.

    Attributes:
        rows: the same as they are, for a verb in the same operator.
    """

    rows: PartRows

    @property
    def topic(self) -> str:
        return self.rows.topic

    @property
    def ddl(self) -> str:
        return "rows binary"

    @property
    def schema(self) -> pa.Schema:
        return _BLOBS

    def to_table(self, records: Records, first: int) -> pa.Table:
        """Return the rows of the records, of which the first has that ``sequence``, as blobs."""
        table = self.rows.to_table(records, first)
        step = max(1, table.num_rows * BLOB_BYTES // max(1, table.nbytes))
        blobs: Any = pa.array([to_ipc(table.slice(start, step)) for start in range(0, table.num_rows, step)])
        return pa.Table.from_arrays([blobs], schema=_BLOBS)


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
    return RowSink(PartRows(parts, arrow_schema(columns), topic))

"""The rows that a task writes to a sink, numbered, whatever columns they have; those of a verb's result among them.

Rule of this module: nobody but Arrow touches a value between a record and the columns that a verb's parts make of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millpond.processors.distribution.exchange import WINDOW_ROWS
from millpond.processors.distribution.execution import Outputs
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.verbs.verb import Projection
from millpond.stores.encoding.rows.physical import around, elements, null_mask


def in_type(column: Any, type_: Any) -> Any:
    """Return the column, an array or a chunked one, in another form of its type.

    No value changes. Arrow's own cast refuses a null struct with fields that are NOT NULL, at every level and even to
    the same type, so nested types are taken apart here.
    """
    if column.type == type_:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([in_type(chunk, type_) for chunk in column.chunks], type_)
    if pa.types.is_struct(type_):
        fields = [in_type(column.field(number), type_.field(number).type) for number in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, len(column), [_validity(column)], children=fields)
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        inner = pa.struct([type_.key_field, type_.item_field]) if pa.types.is_map(type_) else type_.value_type
        within, ends = elements(column)
        offsets = pa.py_buffer(np.array(ends, np.int32).tobytes())
        return around(in_type(within, inner), type_, len(column), [_validity(column), offsets])
    return column.cast(type_)


def _validity(column: Any) -> pa.Buffer | None:
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(~null_mask(column), bitorder="little").tobytes())


@dataclass(frozen=True)
class PartRows:
    """Rows that parts make of records. Travels to the workers.

    Attributes:
        parts: make the columns.
        schema: the columns for Arrow.
        topic: the name of the verb whose results they are; empty for what a store keeps.
    """

    parts: Sequence[Projection]
    schema: pa.Schema
    topic: str = ""

    def to_table(self, records: Records, first: int = 0) -> pa.Table:
        """Return the rows of the records, the first of which has that ``sequence``."""
        made = [column for part in self.parts for column in part.of(records, first)]
        columns = [in_type(column, field.type) for column, field in zip(made, self.schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)


class SinkTables(Protocol):
    """The maker of tables from the records of a sink. Travels to the workers."""

    @property
    def topic(self) -> str:
        """The sink's topic."""

    def to_table(self, records: Records, first: int) -> pa.Table:
        """Return the rows of the records, the first of which has that ``sequence``.

        Raises:
            RecordError: a record does not fit.
        """


class SinkRows:
    """The rows that one task writes to a sink in one micro-batch, numbered in their order.

    Numbers grow from micro-batch to micro-batch, also across restarts, because they begin with the number of the
    micro-batch; one that is repeated gives the same numbers again.

    Args:
        sink: makes rows of records.
        batch: the number of the micro-batch.
    """

    def __init__(self, sink: SinkTables, batch: int) -> None:
        self._sink = sink
        self._next = batch << 32

    def to_tables(self, outputs: Outputs, most: int = WINDOW_ROWS) -> Iterator[pa.Table]:
        """Yield the sink's rows among a task's output, at most so many in a table.

        Raises:
            UserFunctionError: a value does not fit its column, or lacks its entry, and the policy is not to leave such
                records out.
        """
        topic = self._sink.topic
        for part in outputs.parts(topic, most):
            yield outputs.task.written(topic, part, partial(self._sink.to_table, first=self._next))
            self._next += len(part)

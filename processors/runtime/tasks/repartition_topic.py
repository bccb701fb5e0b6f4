"""A repartition topic inside one process: records become bytes and are read back, as if they had traveled."""

from typing import Any, NamedTuple, Self

import pyarrow as pa

from millpond.errors import MissingSerdeError
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, Records
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.typed.store import column_of


class _Passage(NamedTuple):
    """The writing and reading of keys, or of values, on their way.

    Attributes:
        writer, reader: the serdes.
        writer_columns, reader_columns: the same for whole columns; None if they need objects.
    """

    writer: Serde[Any]
    reader: Serde[Any]
    writer_columns: ColumnSerde | None
    reader_columns: ColumnSerde | None

    @classmethod
    def between(cls, writer: Serde[Any], reader: Serde[Any]) -> Self:
        return cls(writer, reader, column_serde(writer), column_serde(reader))

    def moved(self, column: list[Any]) -> list[Any]:
        """Return objects as they arrive; None stays None."""
        written = self.writer.serialize_many([one for one in column if one is not None])
        return column_of(self.reader.deserialize_many(written), column)

    def moved_column(self, column: Array) -> Array | None:
        """Return a column as it arrives; None if it has to become objects."""
        writer, reader = self.writer_columns, self.reader_columns
        if writer is None or reader is None or not writer.takes(column.type):
            return None
        try:
            return reader.read(writer.write(column))
        except pa.ArrowInvalid:
            return None


class Repartition(NamedTuple):
    """The passage of keys and values through a repartition topic."""

    keys: _Passage
    values: _Passage

    @classmethod
    def between(cls, topic: str, produced: Produced, consumed: Consumed) -> Self:
        """Return the repartition topic ``topic`` between its writer and its reader.

        Raises:
            TopologyError: one of the four serdes is not known.
        """
        names = (produced.key_serde, produced.value_serde, consumed.key_serde, consumed.value_serde)
        serdes = [serde(name) for name in names if name is not None]
        if len(serdes) < len(names):
            raise MissingSerdeError(
                f"writer and reader of the repartition topic {topic!r} each need a key and a value serde"
            )
        return cls(*map(_Passage.between, serdes[:2], serdes[2:]))

    def transfer(self, records: Records) -> Records:
        """Return the records as the reader gets them, as columns if they are and can stay so; a null stays null."""
        if isinstance(records, Columns):
            keys, values = self.keys.moved_column(records.keys), self.values.moved_column(records.values)
            if keys is not None and values is not None:
                return Columns(keys, values, records.timestamps)
        batch = records.to_batch()
        keys, values = self.keys.moved(batch.keys), self.values.moved(batch.values)
        return Batch(keys, values, batch.timestamps, headers=batch.headers)

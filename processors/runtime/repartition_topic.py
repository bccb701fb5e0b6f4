"""A repartition topic inside one process: records become bytes and are read back, as if they had traveled."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from millpond.errors import TopologyError
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Records
from millpond.stores.serdes import serde
from millpond.stores.typed.store import column_of


class Repartition(NamedTuple):
    """How keys and values are written and read on the way."""

    write_keys: Callable[[list[Any]], list[bytes]]
    write_values: Callable[[list[Any]], list[bytes]]
    read_keys: Callable[[list[bytes]], list[Any]]
    read_values: Callable[[list[bytes]], list[Any]]

    @classmethod
    def between(cls, topic: str, produced: Produced, consumed: Consumed) -> Self:
        """The repartition topic ``topic`` between its writer and its reader.

        Raises:
            TopologyError: one of the four serdes is not known.
        """
        names = (produced.key_serde, produced.value_serde, consumed.key_serde, consumed.value_serde)
        serdes = [serde(name) for name in names if name is not None]
        if len(serdes) < len(names):
            raise TopologyError(
                f"writer and reader of the repartition topic {topic!r} each need a key and a value serde"
            )
        writers, readers = serdes[:2], serdes[2:]
        return cls(*(one.serialize_many for one in writers), *(one.deserialize_many for one in readers))

    def transfer(self, records: Records) -> Batch:
        """The records as the reader gets them; a null key or value stays null."""
        batch = records.to_batch()
        return Batch(
            _moved(batch.keys, self.write_keys, self.read_keys),
            _moved(batch.values, self.write_values, self.read_values),
            batch.timestamps,
        )


def _moved(
    column: list[Any], write: Callable[[list[Any]], list[bytes]], read: Callable[[list[bytes]], list[Any]]
) -> list[Any]:
    return column_of(read(write([one for one in column if one is not None])), column)

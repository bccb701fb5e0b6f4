"""A repartition topic inside one process: records become bytes and are read back, as if they had traveled."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from millpond.errors import TopologyError
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.columns import Records
from millpond.stores.serdes import serde


class Repartition(NamedTuple):
    """How keys and values are written and read on the way."""

    write_key: Callable[[Any], bytes]
    write_value: Callable[[Any], bytes]
    read_key: Callable[[bytes], Any]
    read_value: Callable[[bytes], Any]

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
        return cls(serdes[0].serialize, serdes[1].serialize, serdes[2].deserialize, serdes[3].deserialize)

    def transfer(self, records: Records) -> Batch:
        """The records as the reader gets them; a null key or value stays null."""
        batch = records.to_batch()
        return Batch(
            [None if key is None else self.read_key(self.write_key(key)) for key in batch.keys],
            [None if value is None else self.read_value(self.write_value(value)) for value in batch.values],
            batch.timestamps,
        )

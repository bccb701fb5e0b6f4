"""``TimestampedFacade``: the interface of ``TimestampedKeyValueStore`` on the rows of a ``KeyValueStore`` (KIP-258).

For a store that has to stay in format version 1, because others read it: timestamps are dropped on the way in and come
back as ``UNKNOWN_TIMESTAMP``. Whoever can, migrates instead; see ``millpond.stores.migration``.
"""

from collections.abc import Iterable, Sequence

from millpond.stores.keys import DATA
from millpond.stores.serdes import Serde
from millpond.stores.times import Instant
from millpond.stores.transaction import Transaction
from millpond.stores.typed.store import K, V
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, TimestampedKeyValueStore, ValueAndTimestamp


class TimestampedFacade(TimestampedKeyValueStore[K, V]):
    """A timestamped store without timestamps on the disk.

    >>> from millpond.stores.memory import MemoryBackend
    >>> from millpond.stores.serdes import INT64, STRING
    >>> store = TimestampedFacade("counts", Transaction(MemoryBackend()), STRING, INT64)
    >>> store.put("a", 1, 1000)
    >>> store.get("a")
    ValueAndTimestamp(value=1, timestamp=-1)
    """

    def __init__(self, name: str, transaction: Transaction, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        super().__init__(name, transaction, key_serde, value_serde)
        self._encode_value = lambda stamped: self._encode_plain(stamped.value)
        self._decode_value = lambda data: ValueAndTimestamp(self._decode_plain(data), UNKNOWN_TIMESTAMP)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        value = self.get_value(key)
        return None if value is None else ValueAndTimestamp(value, UNKNOWN_TIMESTAMP)

    def get_many(self, keys: Iterable[K]) -> list[ValueAndTimestamp[V] | None]:
        decode = self._decode_value
        rows = [DATA + key for key in self._keys_bytes(keys)]
        return [None if data is None else decode(data) for data in self._read_many(rows)]

    def get_value(self, key: K) -> V | None:
        data = self._read(DATA + self._key_bytes(key))
        return None if data is None else self._decode_plain(data)

    def put(self, key: K, value: V | None, timestamp: Instant) -> None:
        self._write(DATA + self._key_bytes(key), None if value is None else self._encode_plain(value))

    def put_many(self, keys: Iterable[K], values: Sequence[V | None], timestamps: Sequence[int]) -> None:
        self.put_all(
            (key, None if value is None else ValueAndTimestamp(value, timestamp))
            for key, value, timestamp in zip(keys, values, timestamps, strict=True)
        )

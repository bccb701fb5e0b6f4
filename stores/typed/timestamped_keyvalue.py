"""``TimestampedKeyValueStore``: one value per key, with its timestamp (KIP-258).

The layout; the value is byte for byte that of Kafka Streams::

    row    0x01 key
    value  timestamp (8 bytes, big-endian, signed) value
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, TypeVar

from millpond.errors import CorruptStoreError, SerdeError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import Instant, to_instant
from millpond.stores.typed.keyvalue import ReadOnlyKeyValueStore
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, Store, V, WritableStore, column_of, reading, reading_many

T = TypeVar("T")

UNKNOWN_TIMESTAMP: Final = -1
"""The timestamp of a value that was written before its store kept timestamps."""

TIMESTAMP_SIZE: Final = 8

_LAYOUT = struct.Struct(">q")
_pack = _LAYOUT.pack
_unpack = _LAYOUT.unpack_from
_new = tuple.__new__


class ValueAndTimestamp(NamedTuple, Generic[T]):
    """A value, and its time in milliseconds."""

    value: T
    timestamp: int


class ValueAndTimestampSerde(Serde[ValueAndTimestamp[T]]):
    """The timestamp in eight bytes, big-endian, then the value as its own serde writes it."""

    name = "value-and-timestamp"

    def __init__(self, value_serde: Serde[T]) -> None:
        self._value_serde = value_serde

    def serialize(self, value: ValueAndTimestamp[T]) -> bytes:
        return pack_timestamp(value.timestamp) + self._value_serde.serialize(value.value)

    def deserialize(self, data: bytes) -> ValueAndTimestamp[T]:
        if len(data) < TIMESTAMP_SIZE:
            raise SerdeError(f"{data!r} is too short for a value with its timestamp; was it written without one?")
        return ValueAndTimestamp(self._value_serde.deserialize(data[TIMESTAMP_SIZE:]), unpack_timestamp(data))


def pack_timestamp(timestamp: Instant) -> bytes:
    """The eight bytes before a value."""
    try:
        return _pack(timestamp)
    except struct.error:
        return _pack(to_instant(timestamp))


def unpack_timestamp(data: bytes) -> int:
    """The timestamp at the beginning of a stored value.

    Raises:
        CorruptStoreError: there is none.
    """
    try:
        timestamp: int = _unpack(data)[0]
    except struct.error as error:
        raise _without_timestamp() from error
    return timestamp


def _without_timestamp() -> CorruptStoreError:
    return CorruptStoreError("a value is too short for the timestamp that its format needs; restore the store")


class TimestampedStore(Store[K, ValueAndTimestamp[V]]):
    """Makes a kind's class its timestamped twin: mixed in before it, it stores a timestamp in front of each value.

    Args:
        name: what errors call the store.
        transaction: where it reads and writes.
        key_serde: how its keys become bytes.
        value_serde: how its values become bytes, without their timestamps.
        limits: those of the kind.
    """

    def __init__(
        self, name: str, transaction: Transaction, key_serde: Serde[K], value_serde: Serde[V], **limits: Any
    ) -> None:
        super().__init__(name, transaction, key_serde, ValueAndTimestampSerde(value_serde), **limits)
        self._value_serde = value_serde
        self._encode_plain = value_serde.serialize
        self._decode_plain = reading(name, "value", value_serde)
        self._encode_plain_many = value_serde.serialize_many
        self._decode_plain_many = reading_many(name, "value", value_serde)


class ReadOnlyTimestampedKeyValueStore(TimestampedStore[K, V], ReadOnlyKeyValueStore[K, ValueAndTimestamp[V]]):
    """The reading half of ``TimestampedKeyValueStore``: what ``ReadOnlyKeyValueStore`` does, with timestamps."""

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """The value of ``key`` and its timestamp, or None."""
        if key is None:
            raise self._null_key()
        data = self._read(DATA + self._encode_key(key))
        try:
            return None if data is None else _new(ValueAndTimestamp, (self._decode_plain(data[8:]), _unpack(data)[0]))
        except struct.error as error:
            raise _without_timestamp() from error

    def get_many(self, keys: Iterable[K]) -> list[ValueAndTimestamp[V] | None]:
        """The value of each key with its timestamp, in the order of ``keys``; None where there is none."""
        found = self._read_many([DATA + key for key in self._keys_bytes(keys)])
        data = [one for one in found if one is not None]
        try:
            times = struct.unpack(f">{len(data)}q", b"".join([one[:TIMESTAMP_SIZE] for one in data]))
        except struct.error as error:
            raise _without_timestamp() from error
        values = self._decode_plain_many([one[TIMESTAMP_SIZE:] for one in data])
        read: list[ValueAndTimestamp[V]] = list(map(_new, repeat(ValueAndTimestamp), zip(values, times, strict=True)))
        return column_of(read, found)

    def get_value(self, key: K) -> V | None:
        """The value of ``key`` without its timestamp, or None."""
        if key is None:
            raise self._null_key()
        data = self._read(DATA + self._encode_key(key))
        if data is None:
            return None
        if len(data) < TIMESTAMP_SIZE:
            raise _without_timestamp()
        return self._decode_plain(data[TIMESTAMP_SIZE:])


class TimestampedKeyValueStore(ReadOnlyTimestampedKeyValueStore[K, V], WritableStore[K, ValueAndTimestamp[V]]):
    """One value per key, with its timestamp. A later put replaces the value even if its timestamp is earlier.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> store = TimestampedKeyValueStore("counts", Transaction(MemoryBackend()), STRING, INT64)
    >>> store.put("a", 1, 1000)
    >>> store.get("a")
    ValueAndTimestamp(value=1, timestamp=1000)
    """

    @property
    def transaction(self) -> Transaction:
        """Where the store reads and writes."""
        return self._transaction

    def put(self, key: K, value: V | None, timestamp: Instant) -> None:
        """Set ``key`` to ``value`` as of ``timestamp``; the value None deletes the key."""
        if key is None:
            raise self._null_key()
        row = DATA + self._encode_key(key)
        self._write(row, None if value is None else pack_timestamp(timestamp) + self._encode_plain(value))

    def put_many(self, keys: Iterable[K], values: Sequence[V | None], timestamps: Sequence[int]) -> None:
        """Set each of ``keys`` to the value and timestamp at the same position; a repeated key's last one counts."""
        rows = [DATA + key for key in self._keys_bytes(keys)]
        try:
            heads = list(map(_pack, timestamps))
        except struct.error:
            heads = list(map(pack_timestamp, timestamps))
        plain = column_of(self._encode_plain_many([value for value in values if value is not None]), values)
        data = [None if value is None else head + value for head, value in zip(heads, plain, strict=True)]
        self._write_many(dict(zip(rows, data, strict=True)))

    def put_all(self, items: Iterable[tuple[K, ValueAndTimestamp[V] | None]]) -> None:
        """Set every key to its value and timestamp, as ``put`` does, all or none of them."""
        encode = self._encode_value
        pairs = list(items)
        rows = [DATA + key for key in self._keys_bytes([key for key, _ in pairs])]
        data = [None if value is None else encode(value) for _, value in pairs]
        self._write_many(dict(zip(rows, data, strict=True)))

    def put_if_absent(self, key: K, value: V | None, timestamp: Instant) -> ValueAndTimestamp[V] | None:
        """Set ``key`` if it has no value; the value that it had with its timestamp, or None."""
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def delete(self, key: K) -> ValueAndTimestamp[V] | None:
        """Delete ``key``; the value that it had with its timestamp, or None."""
        old = self.get(key)
        if old is not None:
            self._write(DATA + self._encode_key(key), None)
        return old

    def _set_back(self, done: SetBack) -> None:
        head = pack_timestamp(done.limit)
        for row, data in self._scan_rows(DATA, INDEX):
            if unpack_timestamp(data) > done.limit:
                self._write(row, head + data[TIMESTAMP_SIZE:])
                done.retimed += 1

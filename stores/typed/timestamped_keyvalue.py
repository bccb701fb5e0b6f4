"""``TimestampedKeyValueStore``: one value per key, with its timestamp (KIP-258).

The layout; the value is byte for byte that of Kafka Streams::

    row    0x01 key
    value  timestamp (8 bytes, big-endian, signed) value

With a time to live there are timers as well (``millpond.stores.typed.expiry``), and expired entries are not found.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, Generic, NamedTuple, TypeVar

from millpond.errors import CorruptStoreError, SerdeError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX, terminated, unterminated
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MIN_TIME, Duration, Instant, to_instant
from millpond.stores.typed.expiry import Entry, Expired, ExpiringRows, Expiry, Horizon, has_expiry, to_ttl
from millpond.stores.typed.keyvalue import MOST_COUNTED, ReadOnlyKeyValueStore
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.scans import Scan
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
            raise SerdeError(f"{data!r} is too short for a value with its timestamp")
        return ValueAndTimestamp(self._value_serde.deserialize(data[TIMESTAMP_SIZE:]), unpack_timestamp(data))


def pack_timestamp(timestamp: Instant) -> bytes:
    """Return the eight bytes before a value."""
    try:
        return _pack(timestamp)
    except struct.error:
        return _pack(to_instant(timestamp))


def unpack_timestamp(data: bytes) -> int:
    """Return the timestamp at the beginning of a stored value.

    Raises:
        CorruptStoreError: there is none.
    """
    try:
        timestamp: int = _unpack(data)[0]
    except struct.error as error:
        raise _without_timestamp() from error
    return timestamp


def _without_timestamp() -> CorruptStoreError:
    return CorruptStoreError("a value is too short for the timestamp that its format needs")


class TimestampedStore(Store[K, ValueAndTimestamp[V]]):
    """The mixin that makes a kind's class its timestamped twin: it stores a timestamp in front of each value.

    Args:
        name: the name of the store for errors.
        transaction: its transaction.
        key_serde: the serde of its keys.
        value_serde: the serde of its values, without their timestamps.
        limits: the limits of the kind.
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
    """The reading half of ``TimestampedKeyValueStore``, as ``ReadOnlyKeyValueStore``, with timestamps.

    Args:
        name: the name of the store for errors.
        transaction: its transaction.
        key_serde: the serde of its keys.
        value_serde: the serde of its values, without their timestamps.
        ttl: the time for which an entry lives after its timestamp, by the observed stream time; None for ever.
        expired: the treatment of entries that have expired, besides that no read finds them.
    """

    def __init__(
        self,
        name: str,
        transaction: Transaction,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        ttl: Duration | None = None,
        expired: Expired = Expired.SILENT,
    ) -> None:
        super().__init__(name, transaction, key_serde, value_serde)
        self._horizon = Horizon(self, None if ttl is None else to_ttl(ttl, name))
        self._prepare_to_write(expired)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return the value of ``key`` and its timestamp, or None."""
        if key is None:
            raise self._null_key()
        data = self._read(DATA + self._encode_key(key))
        if data is None or self._gone(data):
            return None
        try:
            return _new(ValueAndTimestamp, (self._decode_plain(data[8:]), _unpack(data)[0]))
        except struct.error as error:
            raise _without_timestamp() from error

    def get_many(self, keys: Iterable[K]) -> list[ValueAndTimestamp[V] | None]:
        """Return the value of each key with its timestamp, in the order of ``keys``; None where there is none."""
        return self._decoded(self._present(self._read_many([DATA + key for key in self._keys_bytes(keys)])))

    def get_value(self, key: K) -> V | None:
        """Return the value of ``key`` without its timestamp, or None."""
        if key is None:
            raise self._null_key()
        data = self._read(DATA + self._encode_key(key))
        if data is None or self._gone(data):
            return None
        if len(data) < TIMESTAMP_SIZE:
            raise _without_timestamp()
        return self._decode_plain(data[TIMESTAMP_SIZE:])

    def len_estimate(self) -> int:
        counted = sum(1 for _ in islice(self._live_rows(DATA, INDEX), MOST_COUNTED))
        return counted if counted < MOST_COUNTED else max(counted, self._transaction.backend.entry_count())

    def _prepare_to_write(self, expired: Expired) -> None:
        """Prepare what the writing half needs from the beginning."""

    def _gone(self, data: bytes) -> bool:
        """Return whether an entry has expired."""
        horizon = self._horizon.time
        return horizon is not None and unpack_timestamp(data) <= horizon

    def _present(self, found: list[bytes | None]) -> list[bytes | None]:
        """Return what was read, with None for entries that have expired."""
        if self._horizon.time is None:
            return found
        return [None if data is None or self._gone(data) else data for data in found]

    def _decoded(self, found: list[bytes | None]) -> list[ValueAndTimestamp[V] | None]:
        data = [one for one in found if one is not None]
        try:
            times = struct.unpack(f">{len(data)}q", b"".join([one[:TIMESTAMP_SIZE] for one in data]))
        except struct.error as error:
            raise _without_timestamp() from error
        values = self._decode_plain_many([one[TIMESTAMP_SIZE:] for one in data])
        read: list[ValueAndTimestamp[V]] = list(map(_new, repeat(ValueAndTimestamp), zip(values, times, strict=True)))
        return column_of(read, found)

    def _live_rows(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        rows = self._scan_rows(start, stop, reverse=reverse)
        return rows if self._horizon.time is None else (row for row in rows if not self._gone(row[1]))

    def _entries(self, start: bytes, stop: bytes | None, reverse: bool) -> Scan[tuple[K, ValueAndTimestamp[V]]]:
        decode_key, decode_value = self._decode_key, self._decode_value
        rows = self._live_rows(start, stop, reverse=reverse)
        return self._scans.begin((decode_key(row[1:]), decode_value(data)) for row, data in rows)


class _Rows(ExpiringRows):
    """The rows of a store with one value a key."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def row_of(self, encoded_key: bytes) -> bytes:
        return DATA + unterminated(encoded_key)

    def encoded_key(self, row: bytes) -> bytes:
        return terminated(row[len(DATA) :])

    def time_of(self, data: bytes) -> int:
        return unpack_timestamp(data)

    def has_value(self, data: bytes) -> bool:
        return True

    def entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._transaction.scan(start, INDEX)

    def remove(self, entry: Entry) -> None:
        self._transaction.put(entry.row, None)


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
        """The transaction in which the store reads and writes."""
        return self._transaction

    @property
    def expiry(self) -> Expiry | None:
        """The expiry of its entries; None if no entry has ever had a time to live."""
        return self._expiry

    @property
    def observed_stream_time(self) -> int | None:
        """The greatest time that those who fill the store have reported to it; None if no entry has a time to live."""
        return self._observed.time

    def put(self, key: K, value: V | None, timestamp: Instant) -> None:
        """Set ``key`` to ``value`` as of ``timestamp``; the value None deletes the key."""
        if key is None:
            raise self._null_key()
        if self._expiry is not None:
            self._expiry.observe(to_instant(timestamp))
        row = DATA + self._encode_key(key)
        self._put_rows({row: None if value is None else pack_timestamp(timestamp) + self._encode_plain(value)})

    def put_many(self, keys: Iterable[K], values: Sequence[V | None], timestamps: Sequence[int]) -> None:
        """Set each of ``keys`` to the value and timestamp at the same position; a repeated key's last one counts."""
        if self._expiry is not None:
            self._expiry.observe(max(timestamps, default=MIN_TIME))
        rows = [DATA + key for key in self._keys_bytes(keys)]
        try:
            heads = list(map(_pack, timestamps))
        except struct.error:
            heads = list(map(pack_timestamp, timestamps))
        plain = column_of(self._encode_plain_many([value for value in values if value is not None]), values)
        data = [None if value is None else head + value for head, value in zip(heads, plain, strict=True)]
        self._put_rows(dict(zip(rows, data, strict=True)))

    def get_many_at(
        self, keys: Iterable[K], reached: Sequence[int]
    ) -> tuple[list[ValueAndTimestamp[V] | None], list[ValueAndTimestamp[V] | None]]:
        """Return what ``get_many`` returns, for readers at times that may be beyond the observed stream time.

        Returns:
            For each key the entry at its reader's time, and the entry that has expired by then and was not told
            (``Expiry.take``).
        """
        found = self._read_many([DATA + key for key in self._keys_bytes(keys)])
        if self._expiry is None:
            return self._decoded(found), [None] * len(found)
        limits = list(map(self._expiry.gone_at, reached))
        times = [limit if data is None else unpack_timestamp(data) for data, limit in zip(found, limits, strict=True)]
        told = self._expiry.told
        there = [data if time > limit else None for data, time, limit in zip(found, times, limits, strict=True)]
        new = [data if told < time <= limit else None for data, time, limit in zip(found, times, limits, strict=True)]
        return self._decoded(there), self._decoded(new)

    def put_all(self, items: Iterable[tuple[K, ValueAndTimestamp[V] | None]]) -> None:
        """Set every key to its value and timestamp, as ``put`` does, all or none of them."""
        encode = self._encode_value
        pairs = list(items)
        rows = [DATA + key for key in self._keys_bytes([key for key, _ in pairs])]
        data = [None if value is None else encode(value) for _, value in pairs]
        self._put_rows(dict(zip(rows, data, strict=True)))

    def put_if_absent(self, key: K, value: V | None, timestamp: Instant) -> ValueAndTimestamp[V] | None:
        """Set ``key`` if it has no value; return the value that it had with its timestamp, or None."""
        if self._expiry is not None:
            self._expiry.observe(to_instant(timestamp))
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def delete(self, key: K) -> ValueAndTimestamp[V] | None:
        """Delete ``key``; return the value that it had with its timestamp, or None."""
        old = self.get(key)
        if old is not None:
            self._write(DATA + self._encode_key(key), None)
        return old

    def take_expired(self) -> list[tuple[K, V, int]]:
        """Return key, value and time of the entries that have expired since the last time; only if ``Expiry.tells``."""
        assert self._expiry is not None, "nothing expires"
        return [
            (self._decode_key(row[len(DATA) :]), self._decode_plain(data[TIMESTAMP_SIZE:]), time)
            for row, data, time in self._expiry.take()
        ]

    def flush(self) -> None:
        if self._expiry is not None:
            self._expiry.flush()
        super().flush()

    def _prepare_to_write(self, expired: Expired) -> None:
        self._observed = ObservedStreamTime(self)
        self._expiry: Expiry | None = None
        if has_expiry(self, self._horizon):
            rows = _Rows(self._transaction)
            self._expiry = Expiry(self, self._transaction, self._observed, self._horizon, rows, expired)

    def _put_rows(self, changes: Mapping[bytes, bytes | None]) -> None:
        expiry = self._expiry
        if expiry is not None:
            put = {row: unpack_timestamp(data) for row, data in changes.items() if data is not None}
            expiry.observe(max(put.values(), default=MIN_TIME))
            before = dict(zip(changes, self._read_many(list(changes)), strict=True))
            for row, time in put.items():
                expiry.put(row, before[row], time)
        self._write_many(changes)

    def _set_back(self, done: SetBack) -> None:
        if self._expiry is not None and self._observed.set_back(done):
            self._expiry.set_back(done)
        head = pack_timestamp(done.limit)
        for row, data in self._scan_rows(DATA, INDEX):
            if unpack_timestamp(data) > done.limit:
                self._write(row, head + data[TIMESTAMP_SIZE:])
                done.retimed += 1

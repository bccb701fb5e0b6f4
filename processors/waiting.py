r"""Records of a stream-stream join that have no partner yet: they wait for their window and grace to be over.

One key-value store serves both sides of the join, and its metadata hold the time of both::

    key       closing time, record time (8 bytes each), side (0x00 right, 0x01 left), key
    value     for each record: length of the value (4 bytes, big-endian), value
    metadata  "clock": stream time, and a time before which no window closes (8 bytes each, big-endian)

A window that closes at ``c`` is over when stream time, the largest timestamp of either side, has passed ``c``.
"""

from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple

from millpond.stores.keys import TIME_SIZE, pack_time, unpack_time
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import Serde
from millpond.stores.timestamps import MAX_TIME, MIN_TIME

_CLOCK: Final = Struct(">qq")
_CLOCK_NAME: Final = "clock"
_LENGTH: Final = Struct(">I")


class Side(Enum):
    """A side of a join; the value is its place in the order of results."""

    RIGHT = b"\x00"
    LEFT = b"\x01"


class Waiting(NamedTuple):
    """A record that has waited in vain."""

    timestamp: int
    side: Side
    key: Any
    value: Any


class WaitingRecords:
    """The records of both sides that have no partner yet, and the stream time of both.

    Both processors of a join use the same store: each calls ``load`` before and ``save`` after a batch.

    Args:
        store: of bytes; nobody else uses it.
        key_serde: of the records' keys.
        value_serdes: of the values of each side.
    """

    def __init__(
        self, store: KeyValueStore[bytes, bytes], key_serde: Serde[Any], value_serdes: dict[Side, Serde[Any]]
    ) -> None:
        self._store = store
        self._key_serde = key_serde
        self._value_serdes = value_serdes
        self.load()

    def load(self) -> None:
        """Take over the clock from the store."""
        kept = self._store.get_metadata(_CLOCK_NAME)
        self._kept = (MIN_TIME, MAX_TIME) if kept is None else _CLOCK.unpack(kept)
        self.stream_time, self._next_close = self._kept

    def save(self) -> None:
        """Leave the clock in the store."""
        clock = (self.stream_time, self._next_close)
        if clock != self._kept:
            self._store.put_metadata(_CLOCK_NAME, _CLOCK.pack(*clock))
            self._kept = clock

    def advance(self, timestamp: int) -> list[Waiting]:
        """Move stream time, and take out the records whose time is over, the oldest first."""
        if timestamp <= self.stream_time:
            return []
        self.stream_time = timestamp
        if self._next_close >= timestamp:
            return []
        over: list[tuple[bytes, bytes]] = []
        self._next_close = MAX_TIME
        with self._store.scan() as entries:
            for row, values in entries:
                close = unpack_time(row)
                if close >= timestamp:
                    self._next_close = close
                    break
                over.append((row, values))
        for row, _ in over:
            self._store.put(row, None)
        over.sort(key=lambda entry: entry[0][TIME_SIZE:])
        return [record for entry in over for record in self._records(*entry)]

    def add(self, close: int, timestamp: int, side: Side, key: Any, value: Any) -> None:
        """Let a record wait until stream time has passed ``close``."""
        row = self._row(close, timestamp, side, key)
        data = self._value_serdes[side].serialize(value)
        self._store.put(row, (self._store.get(row) or b"") + _LENGTH.pack(len(data)) + data)
        self._next_close = min(self._next_close, close)

    def remove(self, close: int, timestamp: int, side: Side, key: Any) -> None:
        """The records of ``key`` with this time and side have found a partner."""
        if close >= self.stream_time:
            self._store.delete(self._row(close, timestamp, side, key))

    def _row(self, close: int, timestamp: int, side: Side, key: Any) -> bytes:
        return pack_time(close) + pack_time(timestamp) + side.value + self._key_serde.serialize(key)

    def _records(self, row: bytes, values: bytes) -> Iterator[Waiting]:
        side = Side(row[2 * TIME_SIZE : 2 * TIME_SIZE + 1])
        key = self._key_serde.deserialize(row[2 * TIME_SIZE + 1 :])
        decode = self._value_serdes[side].deserialize
        offset = 0
        while offset < len(values):
            start = offset + _LENGTH.size
            offset = start + _LENGTH.unpack_from(values, offset)[0]
            yield Waiting(unpack_time(row, TIME_SIZE), side, key, decode(values[start:offset]))

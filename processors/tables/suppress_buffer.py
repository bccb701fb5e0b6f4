"""The updates that ``suppress`` holds back, in a store: one per key, in the order of their buffer times.

The rows of the store (keys and values are bytes), ``SUPPRESS_BUFFER``::

    "k" key                          buffer time (8 bytes)
    "t" buffer time (8 bytes) key    timestamp (8 bytes), then the value, the value before the last update and the value
                                     before the first held one, each as length (4 bytes; -1 for None, -2 for the same
                                     as the one before it) and bytes; then the headers, if there are any
    metadata "totals"                how many updates are held, and their bytes (8 bytes each); if it is missing, they
                                     are counted
    metadata "stream-time"           a ``KeptTime``

Reads and writes are for whole batches: ``load`` reads what a batch can touch, ``save`` writes what it changed. Bytes
are counted as in Kafka Streams: those of key, values and headers, and an overhead for the times and the origin of each
update.
"""

import struct
from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Final

from millpond.errors import CorruptStoreError
from millpond.processors.runtime.batches.headers import Headers, headers_from_bytes, headers_to_bytes, size_of
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.stores.encoding.keys import pack_time, unpack_time
from millpond.stores.encoding.serdes import BYTES, Serde
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.evolution.carriage import LayoutCarriage, forgotten, greatest
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import reading
from millpond.stores.typed.terms import Terms

_BY_KEY, _BY_TIME, _END = b"k", b"t", b"u"
_TOTALS = struct.Struct(">qq")
_NO_TOTALS = _TOTALS.pack(0, 0)
_LENGTH = struct.Struct(">i")
_NONE, _SAME = -1, -2
_FIXED = 8 + 3 * _LENGTH.size
_TOTALS_NAME = "totals"


def _set_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the stream time back, and the times of updates that wait for time to pass."""
    if not KeptTime(store, STREAM_TIME).set_back(done):
        return
    limit = pack_time(done.limit)
    for row, data in list(store.scan(_BY_TIME, _END)):
        time, key = row[1:9], row[9:]
        if max(time, data[:8]) > limit:
            store.delete(row)
            store.put(_BY_TIME + min(time, limit) + key, min(data[:8], limit) + data[8:])
            store.put(_BY_KEY + key, min(time, limit))
            done.retimed += 1


def _set_final_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the stream time back. What waits for the end of a window goes on waiting for it."""
    KeptTime(store, STREAM_TIME).set_back(done)


SUPPRESS_BUFFER: Final = Layout("suppress-buffer", 1, _set_back)
FINAL_SUPPRESS_BUFFER: Final = replace(SUPPRESS_BUFFER, set_back=_set_final_back)
"""The same rows, whose buffer times are the ends of windows."""


def suppress_buffer_spec(name: str, key_serde: Serde[Any], *, final: bool = False) -> StoreSpec:
    """Return the spec of the store for ``SuppressBuffer``.

    Args:
        name: the store's name.
        key_serde: the serde of the keys whose updates are held.
        final: whether buffer times are the ends of windows.
    """
    layout = FINAL_SUPPRESS_BUFFER if final else SUPPRESS_BUFFER
    layout = replace(layout, key_serde=key_serde.name)
    until = "window closes" if final else "time limit"
    terms = Terms((("until", until),), maker="suppress")
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, layout=layout, terms=terms)


def _key(row: bytes) -> bytes:
    return row[1:] if row[:1] == _BY_KEY else row[9:]


SUPPRESS_BUFFER_CARRIAGE: Final = LayoutCarriage(_key, {STREAM_TIME: greatest, _TOTALS_NAME: forgotten})


class Held:
    """One held update.

    Attributes:
        time: the buffer time, that of the key's first held update.
        timestamp, value, old, headers: the last update's.
        prior: the value before the first held update: what operators downstream still know.
        first: whether it is the first held update, so that ``prior`` is ``old``.
        size: how many bytes it counts, if known.
    """

    __slots__ = ("first", "headers", "old", "prior", "size", "time", "timestamp", "value")

    def __init__(
        self,
        time: int,
        timestamp: int,
        value: Any,
        old: Any,
        prior: Any,
        *,
        first: bool,
        headers: Headers,
        size: int = 0,
    ) -> None:
        self.first = first
        self.time = time
        self.timestamp = timestamp
        self.value = value
        self.old = old
        self.prior = prior
        self.headers = headers
        self.size = size


class SuppressBuffer:
    """The buffer of one task.

    Args:
        store: its store.
        value_serde: the serde of the values.
        measure: keep ``bytes`` exact at all times, not only after ``save``.
        overhead: how many bytes an update counts besides its key and values.

    Attributes:
        stream_time: the greatest timestamp seen, None before the first.
        records, bytes: how much is held.
    """

    def __init__(
        self, store: KeyValueStore[bytes, bytes], value_serde: Serde[Any], *, measure: bool = False, overhead: int = 0
    ) -> None:
        self._store = store
        self._overhead = overhead
        self._serde = value_serde
        self._read_value = reading(store.name, "value", value_serde)
        self._measure = measure
        self._kept_time = KeptTime(store, STREAM_TIME)
        self._saved_time = self.stream_time = self._kept_time.get()
        self._saved_totals = store.get_metadata(_TOTALS_NAME)
        if self._saved_totals is None:
            self.records, self.bytes = self._count()
        elif len(self._saved_totals) == _TOTALS.size:
            self.records, self.bytes = _TOTALS.unpack(self._saved_totals)
        else:
            raise self._damage(f"the totals {self._saved_totals!r}")
        self._held: dict[bytes, Held] = {}
        self._stored: dict[bytes, Held] = {}
        self._order: list[tuple[int, bytes]] = []

    def load(self, keys: Iterable[bytes], until: int | None) -> None:
        """Load the held updates of ``keys``, and all updates with a buffer time up to ``until`` (None: all of them)."""
        stop = _END if until is None or until >= MAX_TIME else _BY_TIME + pack_time(until + 1)
        rows: dict[bytes, bytes | None] = dict(self._store.scan(_BY_TIME, stop))
        distinct = list(dict.fromkeys(keys))
        times = self._store.get_many([_BY_KEY + key for key in distinct])
        wanted = [_BY_TIME + time + key for key, time in zip(distinct, times, strict=True) if time is not None]
        missing = [row for row in wanted if row not in rows]
        rows.update(zip(missing, self._store.get_many(missing), strict=True))
        self._held = {row[9:]: self._decode(row, data) for row, data in rows.items()}
        self._stored = dict(self._held)
        self._order = [(held.time, key) for key, held in self._held.items()]
        heapify(self._order)

    def put(self, key: bytes, time: int, timestamp: int, value: Any, old: Any, headers: Headers) -> None:
        """Hold an update; one that is held already keeps its buffer time and its prior value."""
        before = self._held.get(key)
        if before is None:
            held = Held(time, timestamp, value, old, old, first=True, headers=headers)
            heappush(self._order, (time, key))
            self.records += 1
        else:
            held = Held(before.time, timestamp, value, old, before.prior, first=False, headers=headers)
            self.bytes -= before.size
        if self._measure:
            held.size = self._size(key, self._encode(held), headers)
            self.bytes += held.size
        self._held[key] = held

    def first_time(self) -> int | None:
        """Return the least buffer time among what was loaded and is still held."""
        return self._order[0][0] if self._order else None

    def take_first(self) -> tuple[bytes, Held]:
        """Remove and return the key and update with the least buffer time; ties go by key."""
        _, key = heappop(self._order)
        held = self._held.pop(key)
        self.records -= 1
        self.bytes -= held.size
        return key, held

    def save(self) -> None:
        """Write what changed since ``load``."""
        rows: dict[bytes, bytes | None] = {}
        for key, before in self._stored.items():
            if key not in self._held or self._held[key].time != before.time:
                rows[_BY_KEY + key] = None
                rows[_BY_TIME + pack_time(before.time) + key] = None
        for key, held in self._held.items():
            if self._stored.get(key) is not held:
                time = pack_time(held.time)
                rows[_BY_KEY + key] = time
                rows[_BY_TIME + time + key] = data = self._encode(held)
                if not self._measure:
                    self.bytes += self._size(key, data, held.headers)
        if rows:
            self._store.put_many(list(rows), list(rows.values()))
        self._held, self._stored, self._order = {}, {}, []

    def save_totals(self) -> None:
        """Write the stream time and the totals, if they changed."""
        if self.stream_time is not None and self.stream_time != self._saved_time:
            self._kept_time.put(self.stream_time)
            self._saved_time = self.stream_time
        totals = _TOTALS.pack(self.records, self.bytes)
        if totals != (self._saved_totals or _NO_TOTALS):
            self._store.keep_metadata(_TOTALS_NAME, totals)
            self._saved_totals = totals

    def prior(self, key: bytes) -> tuple[bool, Any]:
        """Return whether ``key`` is held, and the value before its first held update."""
        time = self._store.get(_BY_KEY + key)
        if time is None:
            return False, None
        row = _BY_TIME + time + key
        return True, self._decode(row, self._store.get(row)).prior

    def _encode(self, held: Held) -> bytes:
        parts = [pack_time(held.timestamp)]
        for value in (held.value, held.old) if held.first else (held.value, held.old, held.prior):
            data = None if value is None else self._serde.serialize(value)
            parts.append(_LENGTH.pack(_NONE) if data is None else _LENGTH.pack(len(data)) + data)
        if held.first:
            parts.append(_LENGTH.pack(_SAME))
        if held.headers:
            parts.append(headers_to_bytes(held.headers))
        return b"".join(parts)

    def _decode(self, row: bytes, data: bytes | None) -> Held:
        if data is None:
            raise self._damage(f"no update in the row {row!r}, which another row names")
        values: list[Any] = []
        offset = 8
        try:
            for _ in range(3):
                (length,) = _LENGTH.unpack_from(data, offset)
                offset += 4
                if length < 0:
                    values.append(values[-1] if length == _SAME else None)
                else:
                    values.append(self._read_value(data[offset : offset + length]))
                    offset += length
            headers = headers_from_bytes(data[offset:])
        except (struct.error, IndexError, ValueError) as error:
            raise self._damage(f"the row {row!r}: {data!r}") from error
        if offset > len(data) or length < _SAME:
            raise self._damage(f"the row {row!r}: {data!r}")
        value, old, prior = values
        held = Held(unpack_time(row, 1), unpack_time(data), value, old, prior, first=length == _SAME, headers=headers)
        held.size = self._size(row[9:], data, headers)
        return held

    def _count(self) -> tuple[int, int]:
        """Return how many updates the store holds, and their bytes."""
        with self._store.scan(_BY_TIME, _END) as rows:
            sizes = [self._decode(row, data).size for row, data in rows]
        return len(sizes), sum(sizes)

    def _damage(self, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"store {self._store.name!r} has damaged updates: {what}")

    def _size(self, key: bytes, data: bytes, headers: Headers) -> int:
        framing = _FIXED + len(headers_to_bytes(headers)) - size_of(headers) if headers else _FIXED
        return self._overhead + len(key) + len(data) - framing

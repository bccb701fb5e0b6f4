"""A buffer that holds records back for a grace period and releases them in time order.

Stream time here is the greatest timestamp of the records that were buffered. A record that is older than stream time
minus the grace period is late: it is neither buffered nor dropped, but passes at once. The others leave as soon as
stream time has reached their timestamp plus the grace period, by timestamp, then by the bytes of the key, then by
arrival. What is still in the buffer at the end of a stream stays there until a later record advances stream time, or
until it is drained because the input is complete.

The layout in its key-value store, ``TIME_ORDERED_BUFFER``::

    key       timestamp (time), 0x00, sequence number (8 bytes)  a record without a key
    key       timestamp (time), 0x01 key (terminated), sequence  any other
    value     0x00 for None, or 0x01 value; where the record has headers, their size in bytes (4 bytes) and the headers
              behind 0x02 for None, or 0x03 and then value
    metadata  "stream-time", a ``KeptTime``; "sequence": the last sequence number (8 bytes)
              "waiting": how many records, ``WaitingCounts`` as of the stream time

So the buffer is part of the changelog, and commits together with the effects of its records.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

import pyarrow as pa

from millpond.errors import CorruptStoreError, MissingSerdeError, SerdeError
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, nulls
from millpond.processors.runtime.batches.headers import Headers, headers_from_bytes, headers_to_bytes
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.processors.runtime.waiting_counts import WAITING, WaitingCounts
from millpond.processors.tables.buffer_columns import columns_of, data_of, in_time_order, rows_of
from millpond.stores.encoding.keys import pack_time, terminated, unpack_time, unterminated
from millpond.stores.encoding.serdes import BYTES, Serde, serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, to_millis
from millpond.stores.evolution.carriage import LayoutCarriage, forgotten, greatest
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.keyvalue_columns import put_columns
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import reading


def _set_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the stream time back, and remove the records beyond it."""
    if KeptTime(store, STREAM_TIME).set_back(done):
        later = [row for row, _ in store.scan(pack_time(done.limit + 1))]
        store.put_many(later, [None] * len(later))
        done.removed += len(later)


TIME_ORDERED_BUFFER: Final = Layout("time-ordered-buffer", 1, _set_back)

_NONE: Final = b"\x00"
_SOME: Final = b"\x01"
_HEADED_NONE: Final = b"\x02"
_HEADED_SOME: Final = b"\x03"
_HEADED: Final = (_HEADED_NONE, _HEADED_SOME)
_SIZE: Final = Struct(">I")
_SEQUENCE: Final = "sequence"
_SEQUENCE_SIZE: Final = 8
_LARGEST_BYTE: Final = 0x7F
"""The first byte of the greatest number that can be reached, so there is room for every record to come."""


_Held: TypeAlias = tuple[Any, Any, int, Headers | None]
"""Key, value, timestamp and headers of a record."""


@dataclass(frozen=True)
class BufferSpec:
    """The parameters of a buffer.

    Attributes:
        store: the name of its key-value store.
        grace: how long records are held back, in milliseconds.
        key_serde, value_serde: make bytes of records.
    """

    store: str
    grace: int
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    @property
    def store_spec(self) -> StoreSpec:
        """The spec of the store."""
        layout = replace(TIME_ORDERED_BUFFER, key_serde=self.key_serde.name)
        return StoreSpec(self.store, StoreKind.KEY_VALUE, BYTES, BYTES, layout=layout)


def buffer_spec(
    store: str, grace: Duration, key_serde: SerdeLike | None, value_serde: SerdeLike | None, where: str
) -> BufferSpec:
    """Return the description of a buffer.

    Raises:
        TopologyError: a serde is not known.
    """
    if key_serde is None or value_serde is None:
        missing = "key" if key_serde is None else "value"
        raise MissingSerdeError(
            f"{where} holds records back for a grace period, but their {missing} serde is not known; name it in "
            "Consumed or Joined"
        )
    return BufferSpec(store, to_millis(grace, "grace"), serde(key_serde), serde(value_serde))


class TimeOrderedBuffer:
    """The buffer over its store.

    Attributes:
        waiting: how many records are held back.
        earliest: none of them has a lesser timestamp; None if there are none.
    """

    def __init__(self, spec: BufferSpec, store: KeyValueStore[bytes, bytes]) -> None:
        self._store = store
        self._grace = spec.grace
        self._key_serde = spec.key_serde
        self._value_serde = spec.value_serde
        self._read_key = reading(store.name, "key", spec.key_serde)
        self._read_value = reading(store.name, "value", spec.value_serde)
        self._kept_time = KeptTime(store, STREAM_TIME)
        self._time = self._kept_time.get()
        sequence = store.get_metadata(_SEQUENCE)
        if sequence is not None and (len(sequence) != _SEQUENCE_SIZE or sequence[0] > _LARGEST_BYTE):
            raise CorruptStoreError(f"store {store.name!r} has the damaged sequence {sequence!r}")
        self._sequence = 0 if sequence is None else int.from_bytes(sequence)
        self._kept_count = WaitingCounts(store, WAITING, 1, self._count)
        (self.waiting,) = self._kept_count.bring_up(self._time)
        with store.scan() as rows:
            first = next(rows, None)
        self.earliest = None if first is None else unpack_time(first[0])

    def pass_through(self, batch: Batch) -> tuple[Batch, int]:
        """Buffer records; return those that leave, in order, and how many of them were late.

        Raises:
            SerdeError: a record cannot be kept; then nothing has changed.
        """
        time, sequence = self._time, self._sequence
        until = max(MIN_TIME if time is None else time, max(batch.timestamps, default=MIN_TIME)) - self._grace
        try:
            with self._passage(until) as passage:
                late = self._take_in(passage, batch)
            self._save(passage, until)
        except SerdeError:
            self._time, self._sequence = time, sequence
            raise
        return passage.out.build(), late

    def advance(self, time: int) -> Batch:
        """Let stream time be ``time``, if it is not later; returns the records that leave, in order."""
        if self._time is not None and time <= self._time:
            return BatchBuilder().build()
        self._time = time
        return self.drain(time - self._grace)

    def move_columns(self, columns: Columns, time: int) -> Columns:
        """Let records in, and those out that are due once stream time is ``time`` or later, in order.

        Args:
            columns: records whose keys and values are bytes, without nulls; none of them is late.
            time: not less than their times.

        Raises:
            CorruptStoreError: a record that waits is damaged; then nothing has changed in the store.
        """
        time = time if self._time is None else max(time, self._time)
        until = time - self._grace
        stored = self._due(until)
        waited = columns_of(stored, self.read)
        self._time = time
        due = columns.timestamps <= until
        held = columns.select(~due)
        rows = rows_of(held, self._sequence)
        self._sequence += len(held)
        gone: Any = pa.array([row for row, _ in stored], pa.binary())
        data = pa.concat_arrays([nulls(len(gone), pa.binary()), data_of(held)])
        put_columns(self._store, pa.concat_arrays([gone, rows]), data)
        self._note(len(stored), len(held), [int(held.timestamps.min())] if len(held) else [], until)
        return in_time_order(waited, columns.select(due))

    def _take_in(self, passage: "_Passage", batch: Batch) -> int:
        """Let new records into the buffer, and due ones out; return how many were late."""
        late = 0
        rows = zip(batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for key, value, timestamp, headers in rows:
            if self._time is not None and timestamp < self._time - self._grace:
                passage.let_out(key, value, timestamp, headers)
                late += 1
                continue
            passage.hold(key, value, timestamp, headers)
            if self._time is None or timestamp > self._time:
                self._time = timestamp
            passage.release(self._time - self._grace)
        return late

    @property
    def stream_time(self) -> int | None:
        """The greatest timestamp of the buffered records, or a time that it was told; None before the first."""
        return self._time

    def drain(self, until: int = MAX_TIME) -> Batch:
        """Remove and return waiting records up to a timestamp, in order; stream time does not change."""
        with self._passage(until) as passage:
            passage.release(until)
        self._save(passage, until)
        return passage.out.build()

    @contextmanager
    def _passage(self, until: int) -> Iterator["_Passage"]:
        """A passage in which stored records with timestamps up to ``until`` may leave. It reads no others."""
        if self.earliest is None or self.earliest > until:
            yield _Passage(self, iter(()))
            return
        with self._store.scan(pack_time(self.earliest), None if until >= MAX_TIME else pack_time(until + 1)) as stored:
            yield _Passage(self, stored)

    def _due(self, until: int) -> list[tuple[bytes, bytes]]:
        """Return the stored records with timestamps up to ``until``."""
        if self.earliest is None or self.earliest > until:
            return []
        with self._store.scan(pack_time(self.earliest), None if until >= MAX_TIME else pack_time(until + 1)) as stored:
            return list(stored)

    def row(self, key: Any, timestamp: int) -> bytes:
        """Return a new row for a record, unlike any other."""
        self._sequence += 1
        raw = _NONE if key is None else _SOME + terminated(self._key_serde.serialize(key))
        return pack_time(timestamp) + raw + self._sequence.to_bytes(8)

    def read(self, row: bytes, data: bytes) -> "_Held":
        """Return key, value, timestamp and headers of a stored record."""
        raw = _raw_key(row)
        headers, value = None, data[1:]
        try:
            if data[:1] in _HEADED:
                start = 1 + _SIZE.size
                stop = start + _SIZE.unpack_from(data, 1)[0]
                headers, value = headers_from_bytes(data[start:stop]), data[stop:]
            elif data[:1] not in (_NONE, _SOME):
                raise ValueError("no such form")
            if value and data[:1] not in (_SOME, _HEADED_SOME):
                raise ValueError("None has no bytes")
        except (ValueError, StructError) as error:
            raise CorruptStoreError(f"the buffer has a damaged row {row!r}: {data[:40]!r}") from error
        key = None if raw is None else self._read_key(raw)
        there = data[:1] in (_SOME, _HEADED_SOME)
        return key, self._read_value(value) if there else None, unpack_time(row), headers

    def _data(self, value: Any, headers: Headers | None) -> bytes:
        """Return the data in the row of a record."""
        data = None if value is None else self._value_serde.serialize(value)
        if not headers:
            return _NONE if data is None else _SOME + data
        raw = headers_to_bytes(headers)
        head = _HEADED_NONE if data is None else _HEADED_SOME
        return head + _SIZE.pack(len(raw)) + raw + (data or b"")

    def _save(self, passage: "_Passage", until: int) -> None:
        """Keep what a passage has changed, in which all records up to ``until`` have left."""
        held = [(row, passage.held[row]) for row in passage.waiting]
        data = [self._data(value, headers) for _, (_, value, _, headers) in held]
        rows = [row for row, _ in held]
        self._store.put_many([*passage.gone, *rows], [*([None] * len(passage.gone)), *data])
        self._note(len(passage.gone), len(rows), [unpack_time(row) for row in passage.waiting[:1]], until)

    def _note(self, gone: int, added: int, bounds: list[int], until: int) -> None:
        """Keep how many wait once some, up to ``until``, have left, and others have come, none before ``bounds``."""
        older = self.waiting - gone
        self.waiting = older + added
        if older and self.earliest is not None:
            bounds = [*bounds, max(self.earliest, until + 1)]
        self.earliest = min(bounds, default=None)
        if self._time is not None:
            self._kept_count.put(self._time, [self.waiting])
            self._kept_time.put(self._time)
            self._store.keep_metadata(_SEQUENCE, self._sequence.to_bytes(8))

    def _count(self) -> list[int]:
        with self._store.scan() as rows:
            return [sum(1 for _ in rows)]


def _raw_key(row: bytes) -> bytes | None:
    """Return the bytes of the key in a row; None for a record without a key."""
    raw = row[8:-8]
    if raw != _NONE and raw[:1] != _SOME:
        raise CorruptStoreError(f"the buffer has a damaged row {row!r}")
    return None if raw == _NONE else unterminated(raw[1:])


TIME_ORDERED_BUFFER_CARRIAGE: Final = LayoutCarriage(
    _raw_key, {STREAM_TIME: greatest, _SEQUENCE: greatest, WAITING: forgotten}
)


class _Passage:
    """One batch's way through the buffer: stored records are read as they leave, what stays is written at the end."""

    def __init__(self, buffer: TimeOrderedBuffer, stored: Iterator[tuple[bytes, bytes]]) -> None:
        self._buffer = buffer
        self._stored = stored
        self._next = next(stored, None)
        self.waiting: list[bytes] = []
        self.held: dict[bytes, _Held] = {}
        self.gone: list[bytes] = []
        self.out = BatchBuilder()

    def hold(self, key: Any, value: Any, timestamp: int, headers: Headers | None) -> None:
        row = self._buffer.row(key, timestamp)
        heappush(self.waiting, row)
        self.held[row] = key, value, timestamp, headers

    def let_out(self, key: Any, value: Any, timestamp: int, headers: Headers | None) -> None:
        self.out.current = headers
        self.out.add(key, value, timestamp)

    def release(self, until: int) -> None:
        """Release all records with timestamps up to ``until``."""
        if until < MIN_TIME:
            return
        limit = pack_time(until + 1) if until < MAX_TIME else b"\xff" * 9
        while True:
            new = self.waiting[0] if self.waiting else limit
            if self._next is not None and self._next[0] < new:
                if self._next[0] >= limit:
                    return
                self.gone.append(self._next[0])
                self.let_out(*self._buffer.read(*self._next))
                self._next = next(self._stored, None)
            elif new < limit:
                self.let_out(*self.held[heappop(self.waiting)])
            else:
                return

r"""Records of a stream-stream join that have no partner yet: they wait for their window and grace to pass.

One key-value store serves both sides of the join, and its metadata holds the time of both. ``UNPAIRED_RECORDS``::

    key       closing time, record time (8 bytes each), side (0x00 right, 0x01 left), key
    value     for each record: length of the value (4 bytes, big-endian), value
    metadata  "stream-time", a ``KeptTime``: the largest timestamp of either side
              "waiting": how many records of the right side and of the left, ``WaitingCounts`` as of the stream time

A window that closes at ``c`` is over when stream time has passed ``c``. So after each record the store holds no row
that closes before stream time, and a batch only has to look at rows that close before its own largest timestamp.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from struct import Struct, error
from typing import Any, Final, NamedTuple

from millpond.errors import CorruptStoreError
from millpond.processors.options.joins import Side
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.processors.runtime.waiting_counts import WAITING, WaitingCounts
from millpond.stores.evolution.carriage import LayoutCarriage, forgotten, least
from millpond.stores.keys import TIME_SIZE, pack_time, unpack_time
from millpond.stores.layouts import Layout
from millpond.stores.serdes import BYTES, Serde
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.times import MIN_TIME
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import reading


def _set_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the stream time back, and remove the records beyond it."""
    if KeptTime(store, STREAM_TIME).set_back(done):
        later = [row for row, _ in store.scan() if unpack_time(row, TIME_SIZE) > done.limit]
        store.put_many(later, [None] * len(later))
        done.removed += len(later)


UNPAIRED_RECORDS: Final = Layout("unpaired-records", 1, _set_back)

_LENGTH: Final = Struct(">I")
_HEAD: Final = Struct(">QQB")
_SIDE_AT: Final = 2 * TIME_SIZE
_SIDES: Final = (Side.RIGHT, Side.LEFT)
"""By their number in a row, which orders records of the same time: the right ones come out first."""


def unpaired_records_spec(name: str, key_serde: Serde[Any], backend: str | None = None) -> StoreSpec:
    """The spec of the store for ``WaitingRecords``, which have keys of ``key_serde``."""
    layout = replace(UNPAIRED_RECORDS, key_serde=key_serde.name)
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, backend=backend, layout=layout)


class Waiting(NamedTuple):
    """A record for which no partner came."""

    timestamp: int
    side: Side
    key: Any
    value: Any


class WaitingRecords:
    """The records of both sides that have no partner yet, and the stream time of both.

    Whoever uses the store calls ``begin`` before a batch and ``end`` after it. In between, what closes within the batch
    is in memory as a whole, and of the rest only what the batch has changed: what comes and goes within a batch never
    reaches the store.

    Args:
        store: of bytes; nobody else uses it.
        key_serde: of the records' keys.
        value_serdes: of the values of each side.
    """

    def __init__(
        self, store: KeyValueStore[bytes, bytes], key_serde: Serde[Any], value_serdes: dict[Side, Serde[Any]]
    ) -> None:
        self._store = store
        self._kept_time = KeptTime(store, STREAM_TIME)
        self._read_key = reading(store.name, "key", key_serde)
        self._read_value = [reading(store.name, "value", value_serdes[side]) for side in _SIDES]
        self._closes: list[int] = []
        self._closing: dict[int, list[bytes]] = {}
        self._added: dict[bytes, list[bytes]] = {}
        self._removed: set[bytes] = set()
        self._taken: set[bytes] = set()
        self._changes = [0] * len(_SIDES)
        self.stream_time = MIN_TIME
        self._counts = WaitingCounts(store, WAITING, len(_SIDES), self._scan_counts)
        self._counts.bring_up(self._kept_time.get())

    def count(self, side: Side) -> int:
        """How many records of that side wait, as of the last ``end``."""
        return self._counts.bring_up(self._kept_time.get())[_number(side)]

    def begin(self, until: int) -> None:
        """Read the stream time, and what closes before ``until``, the batch's largest timestamp, from the store."""
        self._before = self._kept_time.get()
        self.stream_time = MIN_TIME if self._before is None else self._before
        self._until = until
        self._added, self._removed = {}, set()
        if self.stream_time < until:
            with self._store.scan(pack_time(self.stream_time), pack_time(until)) as rows:
                self._added = {row: list(_parts(values)) for row, values in rows}
        self._taken = set(self._added)
        self._closes, self._closing = [], {}
        for row in self._added:
            self._let_close(_head(row)[0] + MIN_TIME, row)

    def end(self) -> None:
        """Write what has changed to the store: records, their counts, and the stream time."""
        self._write_records()
        changes, self._changes = self._changes, [0] * len(_SIDES)
        moved = self._before is None or self.stream_time > self._before
        if moved or any(changes):
            counts = self._counts.bring_up(self._before)
            self._counts.put(self.stream_time, [sum(pair) for pair in zip(counts, changes, strict=True)])
        if moved:
            self._kept_time.put(self.stream_time)

    def advance(self, timestamp: int) -> list[Waiting]:
        """Advance stream time; remove and return the records whose time is over, the oldest first."""
        if timestamp <= self.stream_time:
            return []
        self.stream_time = timestamp
        closes, added = self._closes, self._added
        over: list[tuple[bytes, list[bytes]]] = []
        while closes and closes[0] < timestamp:
            for row in self._closing.pop(heappop(closes)):
                values = added.pop(row, None)
                if values is not None:
                    over.append((row, values))
                    self._changes[row[_SIDE_AT]] -= len(values)
        return self._in_order(over) if over else []

    def drain(self) -> list[Waiting]:
        """Remove and return all records; stream time stays what it is."""
        with self._store.scan() as rows:
            waiting = [(row, list(_parts(values))) for row, values in rows]
        self._store.put_many([row for row, _ in waiting], [None] * len(waiting))
        time = self._kept_time.get()
        if time is not None:
            self._counts.put(time, [0] * len(_SIDES))
        return self._in_order(waiting)

    def add(self, close: int, timestamp: int, side: Side, key: bytes, value: bytes) -> None:
        """Let a record wait until stream time has passed ``close``, which it has not yet."""
        row = _row(close, timestamp, side, key)
        values = self._added.get(row)
        if values is not None:
            values.append(value)
        else:
            self._added[row] = [value]
            if close < self._until:
                self._let_close(close, row)
        self._changes[_number(side)] += 1

    def remove(self, close: int, timestamp: int, side: Side, key: bytes) -> None:
        """Forget the records of ``key`` with this time and side: they have found a partner."""
        if close >= self.stream_time:
            row = _row(close, timestamp, side, key)
            self._changes[_number(side)] -= len(self._added.pop(row, ()))
            if close >= self._until:
                self._removed.add(row)

    def _let_close(self, close: int, row: bytes) -> None:
        """Note that a row closes within the batch."""
        closing = self._closing.get(close)
        if closing is None:
            self._closing[close] = [row]
            heappush(self._closes, close)
        else:
            closing.append(row)

    def _write_records(self) -> None:
        """Lay what the batch has added and removed over what the store has."""
        added, removed = self._added, self._removed
        written: dict[bytes, bytes | None] = dict.fromkeys(self._taken)
        met = [row for row in (*added, *removed.difference(added)) if row not in self._taken]
        for row, values in zip(met, self._store.get_many(met), strict=True):
            if values is not None:
                gone = row in removed
                written[row] = None if gone else values
                self._changes[_head(row)[2]] -= sum(1 for _ in _parts(values)) if gone else 0
        for row, parts in added.items():
            before = written.get(row) or b""
            written[row] = before + b"".join([_LENGTH.pack(len(part)) + part for part in parts])
        self._store.put_many(written, list(written.values()))

    def _scan_counts(self) -> list[int]:
        counts = [0] * len(_SIDES)
        with self._store.scan() as rows:
            for row, values in rows:
                counts[_head(row)[2]] += sum(1 for _ in _parts(values))
        return counts

    def _in_order(self, rows: list[tuple[bytes, list[bytes]]]) -> list[Waiting]:
        """The records in the rows by time, then side, then key."""
        rows.sort(key=_behind_close)
        records = []
        for row, values in rows:
            _, time, number = _head(row)
            key, side, decode = self._read_key(row[_HEAD.size :]), _SIDES[number], self._read_value[number]
            records += [Waiting(time + MIN_TIME, side, key, decode(value)) for value in values]
        return records


def _number(side: Side) -> int:
    return 1 if side is Side.LEFT else 0


def _behind_close(entry: tuple[bytes, list[bytes]]) -> bytes:
    return entry[0][TIME_SIZE:]


def _row(close: int, timestamp: int, side: Side, key: bytes) -> bytes:
    try:
        return _HEAD.pack(close - MIN_TIME, timestamp - MIN_TIME, 1 if side is Side.LEFT else 0) + key
    except error:
        return pack_time(close) + pack_time(timestamp)  # raises an error that says which does not fit


def _head(row: bytes) -> tuple[int, int, int]:
    """Closing time and record time as they are packed, and the number of the side."""
    if len(row) < _HEAD.size or row[_SIDE_AT] >= len(_SIDES):
        raise CorruptStoreError(f"a row of records that wait has no side: {row!r}; restore the store")
    head: tuple[int, int, int] = _HEAD.unpack_from(row)
    return head


def _key(row: bytes) -> bytes:
    _head(row)
    return row[_HEAD.size :]


# With a later stream time, the records of the partition that is behind would be over and never come out.
UNPAIRED_RECORDS_CARRIAGE: Final = LayoutCarriage(_key, {STREAM_TIME: least, WAITING: forgotten})


def _parts(values: bytes) -> Iterator[bytes]:
    """The value of each record in a row."""
    offset = 0
    while offset < len(values):
        start = offset + _LENGTH.size
        offset = start + int.from_bytes(values[offset:start])
        if offset > len(values):
            raise CorruptStoreError(f"records that wait end too early: {values[:40]!r}; restore the store")
        yield values[start:offset]

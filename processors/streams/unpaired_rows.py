r"""The rows of records of a stream-stream join that have no partner yet: they wait for their window and grace to pass.

One key-value store serves both sides of the join, and its metadata holds the time of both. ``UNPAIRED_RECORDS``::

    key       closing time, record time (8 bytes each), side (0x00 right, 0x01 left), key
    value     for each record: length of the value (4 bytes, big-endian), value
    metadata  "stream-time", a ``KeptTime``: the largest timestamp of either side
              "waiting": how many records of the right side and of the left, ``WaitingCounts`` as of the stream time

A window that closes at ``c`` is over when stream time has passed ``c``. So after each record the store holds no row
that closes before stream time, and a batch only has to look at rows that close before its own largest timestamp.

Rule of this module: it knows the bytes, and what a store of them shows and counts, but not when records wait.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from struct import Struct, error
from typing import Any, Final

from millpond.errors import CorruptStoreError
from millpond.processors.options.joins import Side
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.processors.runtime.waiting_counts import WAITING, WaitingCounts
from millpond.stores.encoding.keys import DATA, TIME_SIZE, pack_time, unpack_time
from millpond.stores.encoding.serdes import BYTES, Serde
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.evolution.carriage import LayoutCarriage, forgotten, least
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.set_back import SetBack


def _set_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the stream time back, and remove the records beyond it."""
    if KeptTime(store, STREAM_TIME).set_back(done):
        later = [row for row, _ in store.scan() if unpack_time(row, TIME_SIZE) > done.limit]
        store.put_many(later, [None] * len(later))
        done.removed += len(later)


UNPAIRED_RECORDS: Final = Layout("unpaired-records", 1, _set_back)

SIDES: Final = (Side.RIGHT, Side.LEFT)
"""By their number in a row, which orders records of the same time: the right ones come out first."""

SIDE_AT: Final = 2 * TIME_SIZE
KEY_FROM: Final = SIDE_AT + 1
"""The places in a row where the side and the key begin."""

_LENGTH: Final = Struct(">I")
_HEAD: Final = Struct(">QQB")


def unpaired_records_spec(name: str, key_serde: Serde[Any], backend: str | None = None) -> StoreSpec:
    """Return the spec of the store, for records with keys of ``key_serde``."""
    layout = replace(UNPAIRED_RECORDS, key_serde=key_serde.name)
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, backend=backend, layout=layout)


def number_of(side: Side) -> int:
    """Return the number of a side in a row."""
    return 1 if side is Side.LEFT else 0


def row_of(close: int, timestamp: int, side: Side, key: bytes) -> bytes:
    """Return the row of the records of a key with this side and time."""
    try:
        return _HEAD.pack(close - MIN_TIME, timestamp - MIN_TIME, 1 if side is Side.LEFT else 0) + key
    except error:
        return pack_time(close) + pack_time(timestamp)  # raises an error that says which does not fit


def head_of(row: bytes) -> tuple[int, int, int]:
    """Return closing time, record time and the number of the side.

    Raises:
        CorruptStoreError: the row has no side.
    """
    if len(row) < KEY_FROM or row[SIDE_AT] >= len(SIDES):
        raise CorruptStoreError(f"a row of records that wait has no side: {row!r}")
    close, timestamp, number = _HEAD.unpack_from(row)
    return close + MIN_TIME, timestamp + MIN_TIME, number


def _key_of(row: bytes) -> bytes:
    head_of(row)
    return row[KEY_FROM:]


# With a later stream time, the records of the partition that is behind would be over and never come out.
UNPAIRED_RECORDS_CARRIAGE: Final = LayoutCarriage(_key_of, {STREAM_TIME: least, WAITING: forgotten})


def values_of(data: bytes) -> Iterator[bytes]:
    """Yield the value of each record in a row.

    Raises:
        CorruptStoreError: they end too early.
    """
    offset = 0
    while offset < len(data):
        start = offset + _LENGTH.size
        offset = start + int.from_bytes(data[offset:start])
        if offset > len(data):
            raise CorruptStoreError(f"records that wait end too early: {data[:40]!r}")
        yield data[start:offset]


def records_of(rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return row and value of each record, for rows with what they hold.

    Raises:
        CorruptStoreError: a record ends too early.
    """
    found = []
    for row, data in rows:
        if _LENGTH.size + int.from_bytes(data[: _LENGTH.size]) == len(data):
            found.append((row, data[_LENGTH.size :]))
        else:
            found += [(row, value) for value in values_of(data)]
    return found


def data_of(values: Iterable[bytes]) -> bytes:
    """Return the value of a row with these records."""
    return b"".join([_LENGTH.pack(len(value)) + value for value in values])


class UnpairedRows:
    """The summary of all rows in the store: the stream time of both sides, and how many records of each wait.

    Args:
        store: a store of bytes, used for nothing else.

    Attributes:
        store: the same.
    """

    def __init__(self, store: KeyValueStore[bytes, bytes]) -> None:
        self.store = store
        self._kept_time = KeptTime(store, STREAM_TIME)
        self._counts = WaitingCounts(store, WAITING, len(SIDES), self._scan_counts)
        self._counts.bring_up(self._kept_time.get())

    @property
    def stream_time(self) -> int:
        """The largest timestamp of either side; ``MIN_TIME`` before the first."""
        kept = self._kept_time.get()
        return MIN_TIME if kept is None else kept

    def count(self, side: Side) -> int:
        """Return how many records of a side wait."""
        return self._counts.bring_up(self._kept_time.get())[number_of(side)]

    def closing(self, until: int) -> list[tuple[bytes, bytes]]:
        """Return the rows that close before ``until``."""
        stream_time = self.stream_time
        if stream_time >= until:
            return []
        # The rows of this kind of store are its keys behind one byte, and nobody needs a serde for bytes.
        rows = self.store.transaction.scan(DATA + pack_time(stream_time), DATA + pack_time(until))
        return [(row[len(DATA) :], data) for row, data in rows]

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Remove and return all rows; stream time does not change."""
        with self.store.scan() as rows:
            waiting = list(rows)
        self.store.put_many([row for row, _ in waiting], [None] * len(waiting))
        time = self._kept_time.get()
        if time is not None:
            self._counts.put(time, [0] * len(SIDES))
        return waiting

    def note(self, stream_time: int, changes: Sequence[int]) -> None:
        """Keep the stream time, and how many more records of each side wait than before, by its number."""
        before = self._kept_time.get()
        moved = before is None or stream_time > before
        if moved or any(changes):
            counts = self._counts.bring_up(before)
            self._counts.put(stream_time, [sum(pair) for pair in zip(counts, changes, strict=True)])
        if moved:
            self._kept_time.put(stream_time)

    def _scan_counts(self) -> list[int]:
        counts = [0] * len(SIDES)
        with self.store.scan() as rows:
            for row, data in rows:
                counts[head_of(row)[2]] += sum(1 for _ in values_of(data))
        return counts

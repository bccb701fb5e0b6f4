"""The timers of keys: one for each key and name, in a store, found by time or by key and name.

Rule of this module: it knows neither rules nor clocks; it is told which timers are due. Within a run of records timers
are set and fired in memory, and only the difference is written, so a timer that is set and canceled within a run never
reaches the store. The layout in a key-value store, ``KEYED_TIMERS``::

    key       "t" clock, time, key (terminated), name  what is due, in order
    value     nothing
    key       "n" clock, key (terminated), name        when a timer is due
    value     time
    metadata  "watermark", a ``KeptTime``: no record of an earlier time will be processed any more

``clock`` is 0x00 for event time and 0x01 for the wall clock. A time is in microseconds, a name in UTF-8.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from millpond.errors import CorruptStoreError
from millpond.processors.runtime.kept_time import KeptTime
from millpond.stores.encoding.keys import TERMINATOR, TIME_SIZE, pack_time, terminated, unpack_time, unterminated
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution.carriage import LayoutCarriage, greatest
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.set_back import SetBack

WATERMARK: Final = "watermark"
"""The name of the kept time."""


def _set_back(store: KeyValueStore[bytes, bytes], done: SetBack) -> None:
    """Set the watermark back. A timer stays: the rule has set it for its own reasons."""
    KeptTime(store, WATERMARK).set_back(done)


KEYED_TIMERS: Final = Layout("keyed-timers", 1, _set_back)

_BY_TIME: Final = b"t"
_BY_NAME: Final = b"n"
_HEAD: Final = 2


class TimerClock(Enum):
    """The clock that a timer waits for; the value is its byte in the rows."""

    EVENT_TIME = b"\x00"
    """The records' time."""

    WALL_CLOCK = b"\x01"
    """The clock of the machine."""


@dataclass(frozen=True)
class Timer:
    """A timer as ``KeyedProcessor.on_timer`` gets it.

    Attributes:
        name: its name; empty unless named.
        time: the time for which it was set, in UTC.
        clock: the clock that it waited for.
    """

    name: str
    time: datetime
    clock: TimerClock


class Due(NamedTuple):
    """A timer whose time has come; the time in microseconds. Timers fire in the order of these tuples."""

    time: int
    key: bytes
    name: bytes


def keyed_timers_spec(name: str, backend: str | None = None) -> StoreSpec:
    """Return the spec of the store for ``KeyTimers``."""
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, backend=backend, layout=KEYED_TIMERS)


class KeyTimers:
    """The timers by one clock.

    Before a run of records ``load`` brings timers that may become due from the store; after it ``save`` writes the
    changes.

    Args:
        store: the store, of bytes; it may have the timers by the other clock, too.
        clock: the clock.

    Attributes:
        clock: the clock.
    """

    def __init__(self, store: KeyValueStore[bytes, bytes], clock: TimerClock) -> None:
        self._store = store
        self.clock = clock
        self._mark = clock.value
        self._stored: dict[tuple[bytes, bytes], int | None] = {}
        self._now: dict[tuple[bytes, bytes], int | None] = {}
        self._waiting: list[Due] = []

    def load(self, before: int) -> set[bytes]:
        """Bring the timers for times before ``before``; returns the keys that have some."""
        head = _BY_TIME + self._mark
        with self._store.scan(head, head + pack_time(before)) as rows:
            self._waiting = [_due(row) for row, _ in rows]
        heapify(self._waiting)
        for time, key, name in self._waiting:
            self._stored[key, name] = self._now[key, name] = time
        return {due.key for due in self._waiting}

    def pop(self, before: int) -> Due | None:
        """Remove the first timer for a time before ``before``; None if there is none."""
        while self._waiting and self._waiting[0].time < before:
            due = heappop(self._waiting)
            if self._now[due.key, due.name] == due.time:
                self._now[due.key, due.name] = None
                return due
        return None

    def set(self, key: bytes, name: bytes, time: int) -> None:
        """Set a timer; one of the same key and name is replaced."""
        self._look_up(key, name)
        self._now[key, name] = time
        heappush(self._waiting, Due(time, key, name))

    def cancel(self, key: bytes, name: bytes) -> None:
        """Forget a timer, if it is there."""
        self._look_up(key, name)
        self._now[key, name] = None

    def now(self, key: bytes, name: bytes) -> int | None:
        """Return the time for which a timer is set; None if it is not."""
        self._look_up(key, name)
        return self._now[key, name]

    def reset(self, key: bytes, name: bytes, time: int | None) -> None:
        """Make a timer again what ``now`` said."""
        if time is None:
            self.cancel(key, name)
        else:
            self.set(key, name, time)

    def save(self) -> None:
        """Write the changes since ``load``."""
        changes: dict[bytes, bytes | None] = {}
        for (key, name), time in self._now.items():
            before = self._stored[key, name]
            if time == before:
                continue
            place = terminated(key) + name
            if before is not None:
                changes[_BY_TIME + self._mark + pack_time(before) + place] = None
            if time is not None:
                changes[_BY_TIME + self._mark + pack_time(time) + place] = b""
            changes[_BY_NAME + self._mark + place] = None if time is None else pack_time(time)
        self._store.put_many(changes, list(changes.values()))
        self._stored, self._now, self._waiting = {}, {}, []

    def _look_up(self, key: bytes, name: bytes) -> None:
        if (key, name) not in self._now:
            data = self._store.get(_BY_NAME + self._mark + terminated(key) + name)
            self._stored[key, name] = self._now[key, name] = None if data is None else unpack_time(data)


def _due(row: bytes) -> Due:
    """Return the timer of a row by time. A terminator cannot be met within an escaped key."""
    key, stop = _key_from(row, _HEAD + TIME_SIZE)
    return Due(unpack_time(row, _HEAD), key, row[stop:])


def _key_from(row: bytes, start: int) -> tuple[bytes, int]:
    """Return the key that begins at ``start``, and where its terminator ends."""
    found = row.find(TERMINATOR, start)
    if found < 0:
        raise CorruptStoreError(f"the timer {row!r} has no key that ends")
    stop = found + len(TERMINATOR)
    return unterminated(row[start:stop]), stop


def _record_key(row: bytes) -> bytes:
    return _key_from(row, _HEAD if row[:1] == _BY_NAME else _HEAD + TIME_SIZE)[0]


KEYED_TIMERS_CARRIAGE: Final = LayoutCarriage(_record_key, {WATERMARK: greatest})

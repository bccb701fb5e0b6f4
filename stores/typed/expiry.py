r"""The expiry of the entries of a store with a time to live (``ttl``), whatever its kind.

An entry whose last update has the time ``t`` is gone once the store's observed stream time is ``t + ttl`` or more. It
depends on the *horizon*, the greatest observed stream time less the ttl: an entry of a time up to the horizon is gone.
The horizon is kept among the metadata and never moves back, so that an entry that has gone stays away, whatever the ttl
is after a restart, and a reader needs to know no ttl.

Reads leave out entries that are gone; their rows are removed later: each commit removes up to twice as many as the one
before has put, and never fewer than ``LEAST_STEP``. So no commit has much more to do than others, and the rows that
wait to be removed get fewer as long as anything is put. *Timers* lead to it::

    row    0x02 0xFF (8 times) time key (terminated)
    value  empty

A row says: look at the entry of the key once the horizon is ``time``. An entry has a timer no later than at its own
time, and an update of one that has a timer writes none, so a key that is updated again and again has one timer. When
the timer's time has come, the entry has expired, or gets another timer at its present time. New timers lie at the
beginning of a bucket, so that the timers of a key that is deleted and put again and again become one.

A store that gets a ttl at a restart has no timers yet. They are written a bounded number of entries at a time, and the
metadata has their progress.

Rule of this module: it knows times, and rows only through ``ExpiringRows``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from millpond.errors import InvalidArgumentError, InvalidTimeError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import BEYOND, DATA, INDEX, TIME_SIZE, TIMERS, pack_time, unpack_time
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, to_millis
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import Store, WritableStore

HORIZON_NAME: Final = "expired_until"
"""Metadata: the horizon."""

CLOCK_NAME: Final = "expiry_stream_time"
"""Metadata of versioned stores, whose observed stream time may run ahead of the times reported to them: the latter."""

TIMED_NAME: Final = "expiry_timed_until"
"""Metadata: the first row whose entry may have no timer yet; ``INDEX`` if there is none."""

LEAST_STEP: Final = 1_000
"""The least number of timers that are seen to with a commit."""

_BUCKETS: Final = 8
_JUST_ABOVE: Final = b"\x00"


class Expired(Enum):
    """The treatment of an entry that has expired, besides that no read finds it."""

    SILENT = "silent"
    """Nothing: its rows are removed in bounded steps."""

    DELETE = "delete"
    """The processor that fills the store is told at once, and forwards the delete."""

    @classmethod
    def of(cls, value: object) -> Self:
        """Return the member of a name; a member is returned as it is.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            return cls(value)
        except ValueError as error:
            names = " or ".join(repr(one.value) for one in cls)
            raise InvalidArgumentError(f"expired is {value!r}; give {names}") from error


def to_ttl(ttl: Duration, store: str) -> int:
    """Return a time to live in milliseconds.

    Raises:
        ConfigurationError: it is not a length of time, or not positive.
    """
    length = to_millis(ttl, f"ttl of store {store!r}")
    if length <= 0:
        raise InvalidTimeError(
            f"ttl of store {store!r} is {length} ms; give a length of time that is positive, or leave it out"
        )
    return length


class Horizon:
    """The time up to which the entries of one store are gone.

    Attributes:
        time: the time; None until there is one.
        put_last: the number of entries that the last commit put.
        ttl: the time to live; None if there is none, or none any more.
    """

    __slots__ = ("_saved", "put_last", "time", "ttl")

    def __init__(self, store: Store[Any, Any], ttl: int | None) -> None:
        self.ttl = ttl
        self._saved = store.get_metadata(HORIZON_NAME)
        self.time: int | None = None if self._saved is None else unpack_time(self._saved)
        self.put_last = 0 if self._saved is None else unpack_time(self._saved, TIME_SIZE)

    @property
    def expires(self) -> bool:
        """True if entries expire, or did so in an earlier run."""
        return self.ttl is not None or self.time is not None

    def save(self, store: WritableStore[Any, Any]) -> None:
        """Write it into the metadata of the store's writing half, if it moved."""
        if self.time is None:
            return
        data = pack_time(self.time) + pack_time(self.put_last)
        if data != self._saved:
            store.keep_metadata(HORIZON_NAME, data)
            self._saved = data


def has_expiry(store: Store[Any, Any], horizon: Horizon) -> bool:
    """Return whether a store needs an ``Expiry``: entries expire, or a note about timers may soon be untrue."""
    return horizon.expires or store.get_metadata(TIMED_NAME) not in (None, DATA)


class Entry(NamedTuple):
    """An entry that has expired.

    Attributes:
        row: its row, which may be gone.
        data: the data of the row.
        time: the time of its last update.
    """

    row: bytes
    data: bytes
    time: int


class ExpiringRows(ABC):
    """The rows of entries, as one kind of store has them."""

    kept: int = 0
    """The time for which an expired entry is still read as of earlier times."""

    @abstractmethod
    def row_of(self, encoded_key: bytes) -> bytes:
        """Return the row of the entry of a terminated key."""

    @abstractmethod
    def encoded_key(self, row: bytes) -> bytes:
        """Return the terminated key of an entry."""

    @abstractmethod
    def time_of(self, data: bytes) -> int:
        """Return the time of an entry's last update."""

    @abstractmethod
    def has_value(self, data: bytes) -> bool:
        """Return whether the entry has a value, and is no mark of a delete."""

    @abstractmethod
    def entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from a row on."""

    @abstractmethod
    def remove(self, entry: Entry) -> None:
        """Remove all rows of an entry that nobody can see any more."""


class Expiry:
    """The horizon and the timers of one store that is written.

    Args:
        store: the store.
        transaction: its transaction.
        observed: its observed stream time.
        horizon: its horizon.
        rows: its entries.
        expired: the treatment of expired entries.

    Attributes:
        ttl: the time to live; None if entries do not expire any more.
        expired: as given.
        told: the time up to which the processor that fills the store knows of expired entries.
    """

    def __init__(
        self,
        store: WritableStore[Any, Any],
        transaction: Transaction,
        observed: ObservedStreamTime,
        horizon: Horizon,
        rows: ExpiringRows,
        expired: Expired,
    ) -> None:
        ttl = self.ttl = horizon.ttl
        self.expired = expired
        self._store = store
        self._transaction = transaction
        self._observed = observed
        self._horizon = horizon
        self._rows = rows
        self._width = max(1, (ttl or 0) // _BUCKETS)
        self.told = MIN_TIME - 1 if horizon.time is None else horizon.time
        self._timed_until = store.get_metadata(TIMED_NAME) or DATA
        self._first = self._find_first()
        self._begun = False
        if observed.time is not None:
            self._move(observed.time)

    @property
    def tells(self) -> bool:
        """True if the processor that fills the store asks for expired entries (``take``)."""
        return self.ttl is not None and self.expired is Expired.DELETE

    @property
    def observed(self) -> int | None:
        """The greatest time that it was told of, or that was put; None before the first."""
        return self._observed.time

    @property
    def due(self) -> int:
        """The time before which no further entry expires, as far as timers tell."""
        if self.ttl is None:
            return MAX_TIME
        observed, horizon = self._observed.time, self._horizon.time
        if observed is None or horizon is None:
            return MIN_TIME
        if self._timed_until < INDEX or self._first <= horizon:
            return min(observed + 1, MAX_TIME)
        return min(self._first + self.ttl, MAX_TIME)

    def gone_at(self, reached: int) -> int:
        """Return the time up to which entries are gone at a reached time, which may be beyond the observed stream time.

        No entry is gone if the result is less than all times.
        """
        least = MIN_TIME - 1 if self._horizon.time is None else self._horizon.time
        return least if self.ttl is None else max(least, reached - self.ttl)

    def observe(self, time: int) -> None:
        """Move the observed stream time to ``time``, if that is later, and the horizon with it."""
        self.begin()
        if time > MIN_TIME and (self._observed.time is None or time > self._observed.time):
            self._observed.time = time
            self._move(time)

    def begin(self) -> None:
        """Take the steps of a commit, before the first change, on the committed entries."""
        if self._begun:
            return
        self._begun = True
        if self.ttl is None and self._horizon.time is None:
            return
        most = None if self.tells else max(LEAST_STEP, 2 * self._horizon.put_last)
        self._horizon.put_last = 0
        self._write_timers(most)
        if not self.tells:
            self._see_to(most)

    def put(self, row: bytes, before: bytes | None, time: int) -> None:
        """Note that an entry is put.

        Args:
            row: its row.
            before: the data of the row before.
            time: the time of the update.
        """
        self._horizon.put_last += 1
        if self.ttl is not None and self._needs_timer(before, time):
            self._add(self._rows.encoded_key(row), self.bucket_of(time))

    def wrote(self, number: int, first: int) -> None:
        """Note that entries were put, and timers of which the earliest is at ``first``, by other means."""
        self._horizon.put_last += number
        self._first = min(self._first, first)

    def bucket_of(self, time: int) -> int:
        """Return the time of the bucket in which a new timer lies for an entry of that time."""
        return max(time - time % self._width, MIN_TIME)

    @property
    def width(self) -> int:
        """The width of the buckets of new timers."""
        return self._width

    def take(self) -> list[Entry]:
        """Return the entries with a value that have expired since the last time, in the order of their times and rows.

        Call it only if ``tells``; any other store removes them by itself.
        """
        self.begin()
        found = self._see_to(None)
        if self._horizon.time is not None:
            self.told = max(self.told, self._horizon.time)
        return sorted(found, key=lambda entry: (entry.time, entry.row))

    def flush(self) -> None:
        """Write what is only in memory, before a commit."""
        self.begin()
        self._begun = False
        self._observed.save(self._store)
        self._horizon.save(self._store)
        if self.ttl is None and self._timed_until != DATA and self._transaction.changed_keys:
            # From now on there may be entries without timers.
            self._mark(DATA)

    def set_back(self, done: SetBack) -> None:
        """Set the horizon back after the observed stream time, and remove the entries that are gone before."""
        gone = self._horizon.time
        entries = [Entry(row, data, self._rows.time_of(data)) for row, data in self._rows.entries(DATA)]
        for entry in entries:
            if gone is not None and entry.time <= gone:
                self._rows.remove(entry)
                done.removed += 1
        self._transaction.put_many(dict.fromkeys(row for row, _ in self._transaction.scan(TIMERS, BEYOND)))
        self._mark(DATA)
        self._first = self._find_first()
        self._horizon.time = None if gone is None else MIN_TIME
        self.told = MIN_TIME - 1
        self._move(done.limit)

    def _move(self, time: int) -> None:
        if self.ttl is not None and (self._horizon.time is None or time - self.ttl > self._horizon.time):
            self._horizon.time = max(time - self.ttl, MIN_TIME)

    def _needs_timer(self, before: bytes | None, time: int) -> bool:
        """Return whether an entry may have no timer in time: it is new, or older than before, or had expired."""
        if before is None:
            return True
        old = self._rows.time_of(before)
        return old > time or (self._horizon.time is not None and old <= self._horizon.time)

    def _add(self, encoded_key: bytes, time: int) -> None:
        self._transaction.put(TIMERS + pack_time(time) + encoded_key, b"")
        self._first = min(self._first, time)

    def _find_first(self) -> int:
        """Return the time of the first timer; beyond all times if there is none."""
        for row, _ in self._transaction.scan(TIMERS, BEYOND):
            return unpack_time(row, len(TIMERS))
        return -MIN_TIME

    def _write_timers(self, most: int | None) -> None:
        """Write timers for up to so many entries that may have none."""
        if self.ttl is None or self._timed_until >= INDEX:
            return
        last = None
        for row, data in islice(self._rows.entries(self._timed_until), most):
            last = row
            self._add(self._rows.encoded_key(row), self.bucket_of(self._rows.time_of(data)))
        self._mark(INDEX if last is None else last + _JUST_ABOVE)

    def _mark(self, until: bytes) -> None:
        if until != self._timed_until:
            self._timed_until = until
            self._store.keep_metadata(TIMED_NAME, until)

    def _see_to(self, most: int | None) -> list[Entry]:
        """See to the entries of up to so many timers whose time has come, and return those that have expired.

        The entries are read as they are now; those without a value are left to the store.
        """
        horizon = self._horizon.time
        if horizon is None or self._first > horizon:
            return []
        due = self._transaction.scan(TIMERS, TIMERS + pack_time(horizon + 1))
        timers = [row for row, _ in islice(due, most)]
        self._transaction.put_many(dict.fromkeys(timers))
        keys = list(dict.fromkeys(timer[len(TIMERS) + TIME_SIZE :] for timer in timers))
        found = self._seen(keys, horizon)
        self._first = self._find_first()
        return found

    def _seen(self, keys: Iterable[bytes], horizon: int) -> list[Entry]:
        encoded = list(keys)
        rows = list(map(self._rows.row_of, encoded))
        expired = []
        for key, row, data in zip(encoded, rows, self._transaction.get_many(rows), strict=True):
            if data is None:
                continue
            entry = Entry(row, data, self._rows.time_of(data))
            if entry.time > horizon:
                bucket = self.bucket_of(entry.time)
                self._add(key, bucket if bucket > horizon else entry.time)
            elif self._rows.has_value(data):
                if entry.time > self.told:
                    expired.append(entry)
                if entry.time + self._rows.kept <= horizon:
                    self._rows.remove(entry)
                else:
                    self._add(key, entry.time + self._rows.kept)
        return expired

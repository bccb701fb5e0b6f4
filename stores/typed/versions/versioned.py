"""``VersionedKeyValueStore``: the versions of each key, back to a limit of history (KIP-889, 914).

Rule of this module: it decides which versions are put and which are too late.
``millpond.stores.typed.versions.version_history`` knows the rows of versions and their changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import (
    DATA,
    INDEX,
    LATEST_END,
    TERMINATOR,
    TIME_SIZE,
    latest_row,
    pack_time,
    unpack_time,
    unterminated,
)
from millpond.stores.encoding.times import MIN_TIME, Instant, to_instant
from millpond.stores.typed.expiry import CLOCK_NAME, Entry, Expired, ExpiringRows, Expiry, has_expiry
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, V, WritableStore, column_of
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.read_only_versioned import (
    HISTORY,
    ReadOnlyVersionedKeyValueStore,
    VersionedRecord,
)
from millpond.stores.typed.versions.version_history import VersionHistory
from millpond.stores.typed.versions.version_rows import (
    HEAD_SIZE,
    JUST_ABOVE,
    LIVE,
    TOMBSTONE,
    VALUE_START,
    is_latest_row,
    latest_row_of,
)

VALID_TO_UNDEFINED: Final = -1
"""The result of ``put`` for a version that is the key's latest: its end is not known yet."""

NOT_PUT: Final = -(2**63)
"""The result of ``put`` for a version that came after the grace period, and was not put."""

_BUCKETS = 4
_SHORTEST_BUCKET = 1000
_END: Final = len(LATEST_END)


class Straggler(Protocol):
    """A reader that looks up versions as of times that may be over before it does."""

    @property
    def earliest(self) -> int | None:
        """The least time as of which it has yet to look up; None if there is none."""

    def catch_up(self, before: int) -> None:
        """Do all look-ups as of times less than ``before``."""


class VersionedKeyValueStore(ReadOnlyVersionedKeyValueStore[K, V], WritableStore[K, V]):
    """The versions of each key, back to the history retention.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.encoding.serdes import STRING
    >>> from millpond.stores.backend.transaction import Transaction
    >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=1000)
    >>> store.put("tea", "3.10", 50)
    -1
    >>> store.put("tea", "2.90", 20)
    50
    >>> store.get("tea", as_of=30)
    VersionedRecord(value='2.90', timestamp=20, valid_to=50)

    Attributes:
        stragglers: the readers that look up before versions are forgotten; code that moves the observed stream time
            calls their ``catch_up`` before.
    """

    stragglers: list[Straggler]

    @property
    def transaction(self) -> Transaction:
        """The transaction in which the store reads and writes."""
        return self._transaction

    @property
    def rows(self) -> VersionHistory:
        """Its rows, for code that puts many versions at once, which moves the observed stream time, too."""
        return self._history

    @property
    def expiry(self) -> Expiry | None:
        """The expiry of its versions; None if no version has ever had a time to live."""
        return self._expiry

    @property
    def straggler_until(self) -> int | None:
        """The observed stream time up to which no version is forgotten that a straggler still needs; None for any."""
        earliest = [time for time in (one.earliest for one in self.stragglers) if time is not None]
        return min(earliest) + self._retention if earliest else None

    def catch_up(self, time: int) -> None:
        """Let stragglers look up versions that the store forgets once ``time`` is observed, by a put or otherwise."""
        before, begin = time - self._retention, self._begin_at(time)
        if begin != self._begin:
            before = max(before, begin)
        for straggler in self.stragglers:
            straggler.catch_up(before)

    def observe(self, time: int) -> None:
        """Move the observed stream time to ``time``, if that is later."""
        self._admits(time)

    def put(self, key: K, value: V | None, timestamp: Instant) -> int:
        """Put a version that is valid from ``timestamp`` on; the value None is a tombstone.

        A version of the same timestamp is replaced.

        Returns:
            The end of the new version: the timestamp of the next one (0 if that is -1, which has another meaning), or
            ``VALID_TO_UNDEFINED`` if it is the latest, or ``NOT_PUT`` if the timestamp is older than the observed
            stream time minus the grace period, unless ``late_puts`` allows it.
        """
        if key is None:
            raise self._null_key()
        time = timestamp if timestamp.__class__ is int else to_instant(timestamp, "timestamp")
        row = latest_row(self._encode_key(key))
        start = pack_time(time)
        version = TOMBSTONE if value is None else LIVE + self._encode_value(value)
        if self._expiry is not None:
            self._expiry.observe(time)
        if not self._admits(time):
            return self._put_late(row, self._read(row), start, version)[1]
        _, valid_to = self._put_version(row, self._read(row), start, version)
        self._expire()
        return _told(valid_to)

    def put_many(self, keys: Iterable[K], values: Sequence[V | None], timestamps: Sequence[int]) -> list[int]:
        """Put a version for each of ``keys``, in this order, as ``put`` does, with one read for all of them.

        Nothing is put if a key, value or timestamp cannot be.

        Returns:
            For each the result that ``put`` would have had.

        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.encoding.serdes import STRING
        >>> from millpond.stores.backend.transaction import Transaction
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> store.put_many(["tea", "tea", "tea"], ["3.10", "2.90", None], [50, 45, 40])
        [-1, 50, -9223372036854775808]
        """
        rows = list(map(latest_row, self._keys_bytes(keys)))
        data = column_of(self._encode_values([value for value in values if value is not None]), values)
        versions = [TOMBSTONE if one is None else LIVE + one for one in data]
        return self.put_rows(rows, versions, list(map(pack_time, timestamps)), timestamps)

    def put_rows(
        self, rows: Sequence[bytes], versions: Sequence[bytes], starts: Sequence[bytes], timestamps: Sequence[int]
    ) -> list[int]:
        """Put versions as ``put_many`` does, from encoded arguments.

        Args:
            rows: the rows of the latest versions of the keys.
            versions: the bytes of the versions, as ``millpond.stores.typed.versions.version_rows`` draws them.
            starts: the packed timestamps.
            timestamps: the same as numbers.
        """
        if self._expiry is not None:
            self._expiry.observe(max(timestamps, default=MIN_TIME))
        put, latest = self._put_version, self._history.latest(rows)
        ends = []
        for row, version, start, time in zip(rows, versions, starts, timestamps, strict=True):
            if not self._admits(time):
                latest[row], end = self._put_late(row, latest[row], start, version)
                ends.append(end)
                continue
            latest[row], valid_to = put(row, latest[row], start, version)
            ends.append(_told(valid_to))
            if self._expire():
                latest = self._history.latest(latest)
        return ends

    def delete(self, key: K, timestamp: Instant) -> VersionedRecord[V] | None:
        """Put a tombstone; return the version that was valid at ``timestamp`` until now, or None.

        If the timestamp is older than the grace period, nothing changes, and the result is None, too.
        """
        replaced = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == NOT_PUT else replaced

    def get_many_at(
        self, keys: Iterable[K], reached: Sequence[int]
    ) -> tuple[list[ValueAndTimestamp[V] | None], list[ValueAndTimestamp[V] | None]]:
        """Return what ``get_many`` returns, for readers at times that may be beyond the puts so far.

        Returns:
            For each key the entry at its reader's time, and the entry that has expired by then and was not told
            (``Expiry.take``).
        """
        found = self._read_many(list(map(latest_row, self._keys_bytes(keys))))
        if self._expiry is None:
            return self._decoded_latest(found), [None] * len(found)
        limits = list(map(self._expiry.gone_at, reached))
        times = [limit if data is None else unpack_time(data) for data, limit in zip(found, limits, strict=True)]
        told = self._expiry.told
        there = [data if time > limit else None for data, time, limit in zip(found, times, limits, strict=True)]
        new = [data if told < time <= limit else None for data, time, limit in zip(found, times, limits, strict=True)]
        return self._decoded_latest(there), self._decoded_latest(new)

    def latest_times(self, keys: Iterable[K]) -> list[int | None]:
        """Return the time from which each key's latest version or tombstone is valid; None where there is none.

        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.encoding.serdes import STRING
        >>> from millpond.stores.backend.transaction import Transaction
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> store.put_many(["tea", "tea"], ["3.10", None], [45, 50])
        [-1, -1]
        >>> store.latest_times(["tea", "milk"])
        [50, None]
        """
        found = self._read_many(list(map(latest_row, self._keys_bytes(keys))))
        return [None if data is None else unpack_time(data) for data in found]

    def take_expired(self) -> list[tuple[K, V, int]]:
        """Return key, value and time of the keys that have expired since the last time; only if ``Expiry.tells``."""
        assert self._expiry is not None, "nothing expires"
        return [
            (
                self._decode_key(unterminated(encoded_key(row))),
                self._decode_value(data[VALUE_START:]),
                time,
            )
            for row, data, time in self._expiry.take()
        ]

    def flush(self) -> None:
        if self._expiry is not None:
            self._expiry.flush()
        self._observed.save(self)
        self._history.settle()
        if self._observed.time is not None and self._begin is not None:
            self.note(HISTORY, self._observed.time - self._begin)
        super().flush()

    def _set_back(self, done: SetBack) -> None:
        beyond = self._observed.set_back(done)
        if beyond and self._begin is not None:
            self._begin = min(self._begin, done.limit - self._retention)
        if self._expiry is not None and self._clock.set_back(done):
            self._expiry.set_back(done)
        if beyond:
            done.removed += self._history.set_back(done.limit)

    def _prepare_to_write(self, expired: Expired) -> None:
        # Here and not at the first put: a transaction that is scanned after a put has to keep its changes in order.
        self._history = VersionHistory(self._transaction, max(self._retention // _BUCKETS, _SHORTEST_BUCKET))
        self._recent = self._history.recent
        self.stragglers = []
        self._expiry: Expiry | None = None
        if has_expiry(self, self._horizon):
            self._clock = ObservedStreamTime(self, CLOCK_NAME)
            rows = LatestVersions(self._transaction, self._history, self._retention)
            self._expiry = Expiry(self, self._transaction, self._clock, self._horizon, rows, expired)

    def _admits(self, time: int) -> bool:
        """Move the observed stream time to ``time``, or return whether that is within the grace period.

        A version from before the history, which was shorter in an earlier run, would meet none of the versions and
        tombstones that were there.
        """
        observed = self._observed.time
        if observed is None or time > observed:
            self._observed.time = observed = time
        begin = observed - self._retention
        if self._begin is None or begin > self._begin:
            self._begin = begin
        return time >= observed - self._grace and time >= self._begin

    def _begin_at(self, time: int) -> int:
        """Return the time at which the history begins once a version of ``time`` was put, or that was observed."""
        observed = self._observed.time
        begin = (time if observed is None else max(time, observed)) - self._retention
        return begin if self._begin is None else max(begin, self._begin)

    def _put_late(self, row: bytes, latest: bytes | None, start: bytes, version: bytes) -> tuple[bytes | None, int]:
        """Put a version that is older than the grace period, if it is one of those that are put all the same.

        Returns:
            The value of ``row`` now, and the result of ``put``.
        """
        if self._late_puts is LatePuts.REFUSED:
            return latest, NOT_PUT
        assert self._begin is not None, "otherwise nothing is late"
        horizon = self._begin
        latest = self._history.forget(row, latest, horizon)
        first = start if self._late_puts is LatePuts.VALID_FIRST else start + JUST_ABOVE
        if latest is not None and self._history.has_version(row, latest, first, pack_time(horizon)):
            return latest, NOT_PUT
        latest, valid_to = self._put_version(row, latest, start, version)
        return latest, _told(valid_to)

    def _put_version(self, row: bytes, latest: bytes | None, start: bytes, version: bytes) -> tuple[bytes, int | None]:
        """Put a version as ``VersionHistory.put`` does, with a timer for the latest version, if it needs one."""
        if self._expiry is not None and (latest is None or start >= latest[:TIME_SIZE]):
            self._expiry.put(row, latest, unpack_time(start))
        return self._history.put(row, latest, start, version)

    def _expire(self) -> bool:
        """Remove versions that nobody can see anymore; return whether rows of latest versions may have changed."""
        assert self._begin is not None, "something has been put"
        return self._history.expire(self._begin)


def _told(valid_to: int | None) -> int:
    """Return the result of ``put`` for a version with this end."""
    if valid_to is None:
        return VALID_TO_UNDEFINED
    return 0 if valid_to == VALID_TO_UNDEFINED else valid_to


def encoded_key(row: bytes) -> bytes:
    """Return the terminated key of the row of a latest version."""
    return row[len(DATA) : -_END] + TERMINATOR


class LatestVersions(ExpiringRows):
    """The latest versions of one store's keys, as entries that expire.

    A key whose latest version has expired is gone with all of its versions once the expiry is longer ago than the
    history: until then they are read as of earlier times.

    Args:
        transaction: the store's transaction.
        history: removes versions that nobody can see any more.
        kept: the history retention.
    """

    def __init__(self, transaction: Transaction, history: VersionHistory, kept: int) -> None:
        self._transaction = transaction
        self._history = history
        self.kept = kept

    def row_of(self, encoded_key: bytes) -> bytes:
        return latest_row_of(encoded_key)

    def encoded_key(self, row: bytes) -> bytes:
        return encoded_key(row)

    def time_of(self, data: bytes) -> int:
        return unpack_time(data)

    def has_value(self, data: bytes) -> bool:
        return data[HEAD_SIZE:VALUE_START] == LIVE

    def entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return (entry for entry in self._transaction.scan(start, INDEX) if is_latest_row(entry[0]))

    def remove(self, entry: Entry) -> None:
        self._history.remove(entry.row, entry.data)

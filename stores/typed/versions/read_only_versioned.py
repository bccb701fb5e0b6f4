"""``ReadOnlyVersionedKeyValueStore``: reading the versions of each key, back to a limit of history (KIP-960, 968).

Rule of this module: a read of the latest version of a key, or as of a time from it on, is one read of that version's
own row; only older times look at the rows of older versions (``millpond.stores.typed.versions.version_rows`` draws
both). A version is valid from its own timestamp to the next version's, so ``valid_to`` is not stored. Versions that
nobody can see anymore are found by the index of ``millpond.stores.typed.versions.version_history``.

Where Kafka Streams breaks its own contract, this store keeps it: a tombstone that replaces the first version of a key
at the same timestamp is remembered, and ``history`` finds the version that is valid at its upper bound.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Final, Generic, NamedTuple, TypeVar

from millpond.errors import ArgumentConflictError, NoHistoryError
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import (
    DATA,
    INDEX,
    TIME_SIZE,
    TIMERS,
    last_time,
    latest_row,
    pack_time,
    terminated,
    unpack_time,
    unpack_times,
    unterminated,
)
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, Instant, to_instant, to_length
from millpond.stores.typed.expiry import Expired, Horizon, to_ttl
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.scans import Scan
from millpond.stores.typed.store import K, Store, V, column_of
from millpond.stores.typed.terms import KeptTerms
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.versions.earlier_versions import RecentVersions, VersionWalk
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.version_rows import (
    ALONE,
    HEAD_SIZE,
    JUST_ABOVE,
    LIVE,
    OLDER,
    VALUE_START,
    damaged_latest,
    history_prefix,
    is_latest_row,
    is_tombstone,
    plain_entries,
    plain_entry,
)

T = TypeVar("T")

HISTORY: Final = "history_retention"
"""The noted term of the reach of the store's history, back from the observed stream time. It is less than the retention
after that has become longer, until time has passed, and more after it has become shorter, until something is put.
"""

_FLAG = slice(HEAD_SIZE, VALUE_START)
_new = tuple.__new__


class VersionedRecord(NamedTuple, Generic[T]):
    """A value, and the times from which (included) and to which (excluded) it was valid; None for the latest's end."""

    value: T
    timestamp: int
    valid_to: int | None


class ReadOnlyVersionedKeyValueStore(Store[K, V]):
    """The reading half of ``VersionedKeyValueStore``.

    Args:
        name: the name of the store for errors.
        transaction: its transaction.
        key_serde: the serde of its keys.
        value_serde: the serde of its values.
        history_retention: the time, back from the observed stream time, for which versions can be read.
        grace: the time by which a put may be older than the observed stream time; ``history_retention`` if not given.
        late_puts: the treatment of older puts.
        ttl: the time for which the latest version lives after its timestamp, by the time of the puts; None for ever.
        expired: the treatment of a key whose latest version has expired, besides that no read finds it.
    """

    def __init__(
        self,
        name: str,
        transaction: Transaction,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        history_retention: Duration,
        grace: Duration | None = None,
        late_puts: LatePuts = LatePuts.REFUSED,
        ttl: Duration | None = None,
        expired: Expired = Expired.SILENT,
    ) -> None:
        super().__init__(name, transaction, key_serde, value_serde)
        self._retention = to_length(history_retention, f"history_retention of store {name!r}")
        self._grace = self._retention if grace is None else to_length(grace, f"grace of store {name!r}")
        self._late_puts = late_puts
        check_grace(name, self._grace, self._retention, late_puts)
        self._observed = ObservedStreamTime(self)
        observed = self._observed.time
        self._begin = None if observed is None else observed - self._retention
        self._recent: RecentVersions | None = None
        self._horizon = Horizon(self, None if ttl is None else to_ttl(ttl, name))
        self._prepare_to_write(expired)

    @property
    def history_retention(self) -> int:
        """The time, in milliseconds, for which versions are kept to be read, back from the observed stream time."""
        return self._retention

    @property
    def grace(self) -> int:
        """The time, in milliseconds, by which a put may be older than the observed stream time."""
        return self._grace

    @property
    def late_puts(self) -> LatePuts:
        """The treatment of puts that are older than the grace."""
        return self._late_puts

    @property
    def observed_stream_time(self) -> int | None:
        """The greatest timestamp that was ever put, over all keys; None before the first."""
        return self._observed.time

    def get(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """Return the latest version of ``key``, or the one that was valid at ``as_of``; None where there is none.

        A version from before the history retention is not found, unless it is still the latest.
        """
        if key is None:
            raise self._null_key()
        latest = latest_row(self._encode_key(key))
        data = self._read(latest)
        if data is None:
            return None
        since = unpack_time(data)
        if as_of is None:
            return None if self._gone(since) else self._latest_record(data)
        time = as_of if as_of.__class__ is int else to_instant(as_of, "as_of")
        if time >= since:
            return None if self._gone(since, time) else self._latest_record(data)
        older = None if self._beyond_history(time) else self._older(latest, time)
        if older is None or self._gone(last_time(older[0]), time):
            return None
        return self._record(older, self._next_time(older[0], latest, since))

    def get_value(self, key: K, as_of: Instant | None = None) -> V | None:
        """Return only the value of the version that ``get`` finds, in less time."""
        data = self._read(latest_row(self._key_bytes(key)))
        if data is None:
            return None
        time = MAX_TIME if as_of is None else to_instant(as_of, "as_of")
        if time >= unpack_time(data):
            found = self._latest_value_and_timestamp(data)
        else:
            older = None if self._beyond_history(time) else self._older(latest_row(self._encode_key(key)), time)
            found = self._value_and_timestamp(older)
        return None if found is None or self._gone(found.timestamp, None if as_of is None else time) else found.value

    def get_many(self, keys: Iterable[K]) -> list[ValueAndTimestamp[V] | None]:
        """Return the latest value of each key and its timestamp, in the order of ``keys``."""
        found = self._read_many(list(map(latest_row, self._keys_bytes(keys))))
        return self._decoded_latest(self._present(found))

    def _present(self, found: list[bytes | None]) -> list[bytes | None]:
        """Return what was read, with None for versions that have expired."""
        if not self._horizon.expires:
            return found
        return [None if data is None or self._gone(unpack_time(data)) else data for data in found]

    def _decoded_latest(self, found: list[bytes | None]) -> list[ValueAndTimestamp[V] | None]:
        live = [data if data is None or data[_FLAG] == LIVE else _none_if_tombstone(data) for data in found]
        present = [data for data in live if data is not None]
        values = self._decode_values([data[VALUE_START:] for data in present])
        read: list[ValueAndTimestamp[V]] = list(
            map(_new, repeat(ValueAndTimestamp), zip(values, unpack_times(present), strict=True))
        )
        return column_of(read, live)

    def get_many_as_of(self, keys: Sequence[K], timestamps: Sequence[int]) -> list[ValueAndTimestamp[V] | None]:
        """Return, for each key, the value that was valid at the timestamp at the same position, and since when.

        The latest versions of all keys are read at once. Many lookups of older versions of one key share one walk.
        """
        rows = list(map(latest_row, self._keys_bytes(keys)))
        distinct = list(dict.fromkeys(rows))
        latest = dict(zip(distinct, self._read_many(distinct), strict=True))
        starts = {row: MIN_TIME if data is None else unpack_time(data) for row, data in latest.items()}
        decoded: dict[bytes, ValueAndTimestamp[V] | None] = {}
        found: list[ValueAndTimestamp[V] | None] = []
        older: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, (row, time) in enumerate(zip(rows, timestamps, strict=True)):
            if time < starts[row]:
                found.append(None)
                older[row].append(place)
                continue
            if row not in decoded:
                data = latest[row]
                decoded[row] = None if data is None else self._latest_value_and_timestamp(data)
            found.append(decoded[row])
        all_recent = not timestamps or not self._beyond_history(min(timestamps))
        for row, places in older.items():
            if (latest[row] or b"")[TIME_SIZE:HEAD_SIZE] != ALONE:
                recent = places if all_recent else [p for p in places if not self._beyond_history(timestamps[p])]
                self._look_up(row, recent, timestamps, found)
        if self._horizon.expires:
            pairs = zip(found, timestamps, strict=True)
            return [None if one is None or self._gone(one.timestamp, time) else one for one, time in pairs]
        return found

    def get_many_from(
        self, keys: Sequence[K], earliest: Sequence[int], latest: Sequence[int]
    ) -> list[ValueAndTimestamp[V] | None]:
        """Return, for each key, the first value that became valid from ``earliest`` to ``latest``, included, and when.

        Tombstones are passed over. Nothing is found if ``earliest`` is before the history retention, since the first
        value then may be forgotten. A value that has expired since it became valid is found.

        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.encoding.serdes import STRING
        >>> from millpond.stores.backend.transaction import Transaction
        >>> from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> store.put_many(["tea", "tea"], [None, "3.10"], [3, 5])
        [-1, -1]
        >>> store.get_many_from(["tea", "tea", "tea"], [2, 5, 6], [9, 5, 9])
        [ValueAndTimestamp(value='3.10', timestamp=5), ValueAndTimestamp(value='3.10', timestamp=5), None]
        """
        rows = list(map(latest_row, self._keys_bytes(keys)))
        distinct = list(dict.fromkeys(rows))
        newest = dict(zip(distinct, self._read_many(distinct), strict=True))
        bounds = zip(rows, earliest, latest, strict=True)
        return [self._first(row, newest[row], first, last) for row, first, last in bounds]

    def walk_back(self, latest: bytes) -> VersionWalk:
        """Return a walk back through the older versions of the key with that latest row; the next put ends it."""
        return VersionWalk(self._last_row, self._scan_rows, latest, self._recent)

    @property
    def horizon(self) -> int | None:
        """The time before which as-of reads find nothing older than the latest; None before the first put.

        It moves when something is put. So versions that an earlier run has forgotten stay forgotten under a longer
        retention, and versions that it has kept can be read until then under a shorter one.
        """
        return self._begin

    def know_terms(self, kept: KeptTerms) -> None:
        super().know_terms(kept)
        reach = self.noted(HISTORY)
        if reach is not None and self._observed.time is not None:
            self._begin = self._observed.time - reach

    def history(
        self, key: K, earliest: Instant | None = None, latest: Instant | None = None, *, reverse: bool = False
    ) -> Scan[VersionedRecord[V]]:
        """Return the versions of ``key`` that were valid at some time from ``earliest`` to ``latest``, both included.

        None leaves that side open. They come oldest first, or with ``reverse`` newest first. Tombstones are left out.
        So are versions that were valid only before the history retention, and, if ``latest`` is before it, all but the
        latest version.

        Raises:
            ConfigurationError: ``earliest`` is after ``latest``.
        """
        row = latest_row(self._key_bytes(key))
        first = None if earliest is None else to_instant(earliest, "earliest")
        last = MAX_TIME if latest is None else to_instant(latest, "latest")
        if first is not None and first > last:
            raise ArgumentConflictError(f"history from {first} to {last}: earliest must not be after latest")
        return self._scans.begin(self._alive(self._versions(row, first, last, reverse), first))

    def version_times(self, key: K, earliest: Instant, latest: Instant | None = None) -> list[int]:
        """Return the timestamps of ``key``'s versions, tombstones too, from ``earliest`` to ``latest``, both included.

        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.encoding.serdes import STRING
        >>> from millpond.stores.backend.transaction import Transaction
        >>> from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> for value, timestamp in ((None, 3), ("3.10", 5), (None, 7)):
        ...     _ = store.put("tea", value, timestamp)
        >>> store.version_times("tea", 3), store.version_times("tea", 4, 6)
        ([3, 5, 7], [5])
        """
        row = latest_row(self._key_bytes(key))
        first, last = to_instant(earliest, "earliest"), MAX_TIME if latest is None else to_instant(latest, "latest")
        prefix, data = history_prefix(row), self._read(row)
        if data is None:
            return []
        older = self._scan_rows(prefix + pack_time(first), prefix + pack_time(last) + JUST_ABOVE)
        times = [last_time(row) for row, _ in older]
        newest = unpack_time(data)
        return [*times, newest] if first <= newest <= last else times

    def next_version_time(self, key: K, after: Instant) -> int | None:
        """Return the timestamp of ``key``'s first version after a time, a tombstone's too; None if there is none.

        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.encoding.serdes import STRING
        >>> from millpond.stores.backend.transaction import Transaction
        >>> from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> store.put_many(["tea", "tea"], [None, "3.10"], [3, 5])
        [-1, -1]
        >>> store.next_version_time("tea", 2), store.next_version_time("tea", 3), store.next_version_time("tea", 5)
        (3, 5, None)
        """
        row, time = latest_row(self._key_bytes(key)), to_instant(after, "after")
        data = self._read(row)
        if data is None or unpack_time(data) <= time:
            return None
        return self._next_time(history_prefix(row) + pack_time(time), row, unpack_time(data))

    def scan(self, start: K | None = None, stop: K | None = None) -> Scan[tuple[K, VersionedRecord[V]]]:
        """Return every version within the history retention of keys with ``start <= key < stop``, oldest first per key.

        Keys come in the order of their bytes; None leaves that side open.
        """
        first = DATA if start is None else self._prefix(start)
        end = INDEX if stop is None else self._prefix(stop)
        return self._scans.begin(self._all_versions(plain_entries(self._scan_rows(first, end))))

    def _check_row(self, row: bytes, data: bytes) -> None:
        if row[:1] == INDEX:
            head = TIMERS if row.startswith(TIMERS) else INDEX
            self._decode_key(unterminated(row[len(head) + TIME_SIZE :]))
            return
        if is_latest_row(row):
            if data[TIME_SIZE:HEAD_SIZE] not in (ALONE, OLDER):
                raise damaged_latest(data)
            row, data = plain_entry(row, data)
        self._decode_key(unterminated(row[1:-TIME_SIZE]))
        if not is_tombstone(data):
            self._decode_value(data[1:])
        if self._observed.time is None or last_time(row) > self._observed.time:
            raise ValueError(f"it is newer than the observed stream time {self._observed.time}")

    def _prepare_to_write(self, expired: Expired) -> None:
        """Prepare what the writing half needs from the beginning."""

    def _gone(self, since: int, as_of: int | None = None) -> bool:
        """Return whether a version that was the last one has expired, now or as of a time."""
        ttl, horizon = self._horizon.ttl, self._horizon.time
        if as_of is not None and ttl is not None and since + ttl <= as_of:
            return True
        observed = self._observed.time
        now = as_of is None or observed is None or as_of >= observed
        return now and horizon is not None and since <= horizon

    def _alive(self, records: Iterator[VersionedRecord[V]], first: int | None) -> Iterator[VersionedRecord[V]]:
        """Yield versions with the ends of expired ones, without those expired by ``first`` or before the history."""
        if not self._horizon.expires:
            return records
        begin = max(MIN_TIME if first is None else first, MIN_TIME if self._begin is None else self._begin)
        capped = map(self._capped, records)
        return (record for record in capped if record.valid_to is None or record.valid_to > begin)

    def _capped(self, record: VersionedRecord[V]) -> VersionedRecord[V]:
        """Return a version with its end at its expiry."""
        ttl, since, until = self._horizon.ttl, record.timestamp, record.valid_to
        if until is None and not self._gone(since):
            return record
        if ttl is None:
            return record if until is not None else record._replace(valid_to=since)
        return record._replace(valid_to=since + ttl if until is None else min(until, since + ttl))

    def _prefix(self, key: K) -> bytes:
        return DATA + terminated(self._key_bytes(key))

    def _beyond_history(self, time: int) -> bool:
        return self._begin is not None and time < self._begin

    def _older(self, latest: bytes, time: int) -> tuple[bytes, bytes] | None:
        """Return the last of the older versions up to ``time``, of the key whose latest is at ``latest``."""
        prefix = history_prefix(latest)
        return self._last_row(prefix, prefix + pack_time(time) + JUST_ABOVE)

    def _first(self, row: bytes, newest: bytes | None, first: int, last: int) -> ValueAndTimestamp[V] | None:
        """Return the first value of one key that became valid between two times; its newest version is at ``row``."""
        if newest is None or first > last or unpack_time(newest) < first or self._beyond_history(first):
            return None
        if newest[TIME_SIZE:HEAD_SIZE] != ALONE:
            prefix = history_prefix(row)
            for older in self._scan_rows(prefix + pack_time(first), prefix + pack_time(last) + JUST_ABOVE):
                if not is_tombstone(older[1]):
                    return self._value_and_timestamp(older)
        return self._latest_value_and_timestamp(newest) if unpack_time(newest) <= last else None

    def _next_time(self, row: bytes, latest: bytes, since: int) -> int:
        """Return the time at which the version after ``row`` begins; ``since`` is that of the latest, at ``latest``."""
        for following, _ in self._scan_rows(row + JUST_ABOVE, latest):
            return last_time(following)
        return since

    def _record(self, row: tuple[bytes, bytes], valid_to: int | None) -> VersionedRecord[V] | None:
        if is_tombstone(row[1]):
            return None
        return VersionedRecord(self._decode_value(row[1][1:]), last_time(row[0]), valid_to)

    def _latest_record(self, data: bytes) -> VersionedRecord[V] | None:
        if data[_FLAG] != LIVE:
            _check_tombstone(data)
            return None
        return _new(VersionedRecord, (self._decode_value(data[VALUE_START:]), unpack_time(data), None))

    def _value_and_timestamp(self, row: tuple[bytes, bytes] | None) -> ValueAndTimestamp[V] | None:
        if row is None or is_tombstone(row[1]):
            return None
        return ValueAndTimestamp(self._decode_value(row[1][1:]), last_time(row[0]))

    def _latest_value_and_timestamp(self, data: bytes) -> ValueAndTimestamp[V] | None:
        if data[_FLAG] != LIVE:
            _check_tombstone(data)
            return None
        return _new(ValueAndTimestamp, (self._decode_value(data[VALUE_START:]), unpack_time(data)))

    def _look_up(
        self, latest: bytes, places: list[int], timestamps: Sequence[int], found: list[ValueAndTimestamp[V] | None]
    ) -> None:
        """Fill ``found`` for one key, newest first, in one walk back through its versions."""
        places.sort(key=timestamps.__getitem__, reverse=True)
        walk = self.walk_back(latest)
        version: tuple[bytes, bytes] | None = None
        decoded: ValueAndTimestamp[V] | None = None
        for place in places:
            row = walk.back_to(timestamps[place])
            if row is not version:
                version, decoded = row, self._value_and_timestamp(row)
            found[place] = decoded

    def _versions(self, latest: bytes, first: int | None, last: int, reverse: bool) -> Iterator[VersionedRecord[V]]:
        """Return the live versions of one key that overlap the bounds and the history."""
        begin, data = self._begin, self._read(latest)
        if begin is None or data is None:
            return iter(())
        newest = plain_entry(latest, data)
        newest_time = last_time(newest[0])
        horizon = max(MIN_TIME, begin)
        since = horizon if first is None else max(first, horizon)
        if last < horizon or newest_time <= since:
            record = self._latest_record(data)
            return iter(() if record is None or newest_time > last else (record,))
        prefix = history_prefix(latest)
        valid_then = self._older(latest, since)
        start = prefix + pack_time(since) if valid_then is None else valid_then[0]
        bound = prefix + pack_time(last)
        rows = self._scan_rows(start, bound + JUST_ABOVE, reverse=reverse)
        after = None if newest_time <= last else self._next_time(bound, latest, newest_time)
        if after is None:
            rows = chain((newest,), rows) if reverse else chain(rows, (newest,))
        return self._newest_first(rows, after) if reverse else self._oldest_first(rows, after)

    def _oldest_first(self, rows: Entries, after: int | None) -> Iterator[VersionedRecord[V]]:
        row = next(rows, None)
        while row is not None:
            following = next(rows, None)
            record = self._record(row, after if following is None else last_time(following[0]))
            if record is not None:
                yield record
            row = following

    def _newest_first(self, rows: Entries, after: int | None) -> Iterator[VersionedRecord[V]]:
        for row in rows:
            record = self._record(row, after)
            if record is not None:
                yield record
            after = last_time(row[0])

    def _all_versions(self, rows: Entries) -> Iterator[tuple[K, VersionedRecord[V]]]:
        begin = self._begin
        for prefix, versions in groupby(rows, key=_prefix_of):
            key = self._decode_key(unterminated(prefix[1:]))
            records = self._oldest_first(versions, None)
            for record in map(self._capped, records) if self._horizon.expires else records:
                if record.valid_to is None or begin is None or record.valid_to > begin:
                    yield key, record


def check_grace(store: str, grace: int, history_retention: int, late_puts: LatePuts) -> None:
    """Refuse a grace period, in milliseconds, longer than the history, or shorter without refusing late puts.

    Raises:
        ConfigurationError: it is refused.
    """
    if grace > history_retention:
        raise NoHistoryError(
            f"store {store!r}: a grace of {grace} ms is longer than its history retention of {history_retention} ms, "
            "so puts would be accepted that nobody can read; make history_retention as long, or grace shorter"
        )
    if grace < history_retention and late_puts is not LatePuts.REFUSED:
        raise ArgumentConflictError(
            f"store {store!r}: a grace of {grace} ms says which puts are refused, but with late_puts "
            f"{late_puts.value!r} those that are valid within the history of {history_retention} ms are put; leave out "
            "one of the two"
        )


def _check_tombstone(data: bytes) -> None:
    """Refuse a latest version that is not live and no tombstone either."""
    if len(data) <= HEAD_SIZE:
        raise damaged_latest(data)
    is_tombstone(data[HEAD_SIZE:])


def _none_if_tombstone(data: bytes) -> bytes | None:
    """Return None for a latest version that is not live."""
    _check_tombstone(data)
    return None


def _prefix_of(entry: tuple[bytes, bytes]) -> bytes:
    """Return the row type and the terminated key of a data row."""
    return entry[0][:-TIME_SIZE]

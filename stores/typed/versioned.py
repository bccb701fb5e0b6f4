"""``VersionedKeyValueStore``: the versions of each key, back to a limit of history (KIP-889, 914, 960, 968).

The layout; a tombstone is a version like any other::

    row    0x01 key (terminated) valid_from (time)
    value  0x01 value, or 0x00 for a tombstone

A version is valid from its own timestamp to the next version's, so ``valid_to`` is not stored. Versions that nobody can
see anymore are found by the index of ``millpond.stores.typed.superseded_index``.

Where Kafka Streams breaks its own contract, this store keeps it: a tombstone that replaces the first version of a key
at the same timestamp is remembered, and ``history`` finds the version that is valid at its upper bound.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Generic, NamedTuple, TypeVar

from millpond.errors import ConfigurationError, CorruptStoreError
from millpond.stores.backend import Entries
from millpond.stores.keys import (
    DATA,
    INDEX,
    TERMINATOR,
    TIME_SIZE,
    last_time,
    pack_time,
    terminated,
    unterminated,
)
from millpond.stores.serdes import Serde
from millpond.stores.times import MAX_TIME, MIN_TIME, Duration, Instant, to_instant, to_length
from millpond.stores.transaction import Transaction
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.scans import Scan
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, Store, V, WritableStore
from millpond.stores.typed.superseded_index import SupersededIndex
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.version_walk import VersionWalk

T = TypeVar("T")

VALID_TO_UNDEFINED: Final = -1
"""What ``put`` returns for a version that is the key's latest: its end is not known yet."""

NOT_PUT: Final = -(2**63)
"""What ``put`` returns for a version that came after the grace period, and was not put."""

_TOMBSTONE = b"\x00"
_LIVE = b"\x01"
_KEY_END = TERMINATOR[:1] + b"\x01"
_JUST_ABOVE = b"\x00"
_BUCKETS = 4
_SHORTEST_BUCKET = 1000


class VersionedRecord(NamedTuple, Generic[T]):
    """A value, and from when (included) to when (excluded) it was valid; ``valid_to`` is None for the latest."""

    value: T
    timestamp: int
    valid_to: int | None


class ReadOnlyVersionedKeyValueStore(Store[K, V]):
    """The reading half of ``VersionedKeyValueStore``.

    Args:
        name: what errors call the store.
        transaction: where it reads and writes.
        key_serde: how its keys become bytes.
        value_serde: how its values become bytes.
        history_retention: how far back from the observed stream time versions can be read.
        grace: how much older than the observed stream time a put may be; ``history_retention`` where not given.
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
    ) -> None:
        super().__init__(name, transaction, key_serde, value_serde)
        self._retention = to_length(history_retention, f"history_retention of store {name!r}")
        self._grace = self._retention if grace is None else to_length(grace, f"grace of store {name!r}")
        check_grace(name, self._grace, self._retention)
        self._observed = ObservedStreamTime(self)
        self._prepare_to_write()

    @property
    def history_retention(self) -> int:
        """How far back from the observed stream time versions can be read, in milliseconds."""
        return self._retention

    @property
    def grace(self) -> int:
        """How much older than the observed stream time a put may be, in milliseconds."""
        return self._grace

    @property
    def observed_stream_time(self) -> int | None:
        """The greatest timestamp that was ever put, over all keys; None before the first."""
        return self._observed.time

    def get(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """The latest version of ``key``, or the one that was valid at ``as_of``; None where there is none.

        A version from before the history retention is not found, unless it is still the latest.
        """
        prefix = self._prefix(key)
        end = prefix[:-2] + _KEY_END
        if as_of is None:
            return self._record(self._last_row(prefix, end), None)
        time = to_instant(as_of, "as_of")
        row = self._last_row(prefix, prefix + pack_time(time) + _JUST_ABOVE)
        if row is None or _is_tombstone(row[1]):
            return None
        valid_to = self._next_time(row[0], end)
        if valid_to is not None and self._beyond_history(time):
            return None
        return self._record(row, valid_to)

    def get_value(self, key: K, as_of: Instant | None = None) -> V | None:
        """Only the value of what ``get`` finds, in less time."""
        if as_of is not None:
            time = to_instant(as_of, "as_of")
            if not self._beyond_history(time):
                prefix = self._prefix(key)
                found = self._value_and_timestamp(self._last_row(prefix, prefix + pack_time(time) + _JUST_ABOVE))
                return None if found is None else found.value
        record = self.get(key, as_of)
        return None if record is None else record.value

    def get_many(self, keys: Iterable[K]) -> list[ValueAndTimestamp[V] | None]:
        """The latest value of each key and its timestamp, in the order of ``keys``."""
        prefixes = [DATA + terminated(key) for key in self._keys_bytes(keys)]
        last, decode = self._last_row, self._value_and_timestamp
        return [decode(last(prefix, prefix[:-2] + _KEY_END)) for prefix in prefixes]

    def get_many_as_of(self, keys: Sequence[K], timestamps: Sequence[int]) -> list[ValueAndTimestamp[V] | None]:
        """For each key, the value that was valid at the timestamp at the same position, and since when.

        Many lookups of one key share one walk through its versions.
        """
        places = defaultdict(list)
        for place, (key, _) in enumerate(zip(self._keys_bytes(keys), timestamps, strict=True)):
            places[key].append(place)
        found: list[ValueAndTimestamp[V] | None] = [None] * len(timestamps)
        all_recent = not timestamps or not self._beyond_history(min(timestamps))
        for key, wanted in places.items():
            prefix = DATA + terminated(key)
            recent = wanted if all_recent else [p for p in wanted if not self._beyond_history(timestamps[p])]
            if recent:
                self._look_up(prefix, recent, timestamps, found)
            if len(recent) < len(wanted):
                latest = self._value_and_timestamp(self._last_row(prefix, prefix[:-2] + _KEY_END))
                for place in wanted:
                    if latest is not None and latest.timestamp <= timestamps[place]:
                        found[place] = latest
        return found

    def history(
        self, key: K, earliest: Instant | None = None, latest: Instant | None = None, *, reverse: bool = False
    ) -> Scan[VersionedRecord[V]]:
        """The versions of ``key`` that were valid at some time from ``earliest`` to ``latest``, both included.

        None leaves that side open. Oldest first; ``reverse``: newest first. Tombstones are left out. So is what was
        valid only before the history retention, and, where ``latest`` is before it, all but the latest version.

        Raises:
            ConfigurationError: ``earliest`` is after ``latest``.
        """
        prefix = self._prefix(key)
        first = None if earliest is None else to_instant(earliest, "earliest")
        last = MAX_TIME if latest is None else to_instant(latest, "latest")
        if first is not None and first > last:
            raise ConfigurationError(f"history from {first} to {last}: earliest must not be after latest")
        return self._scans.begin(self._versions(prefix, first, last, reverse))

    def version_times(self, key: K, earliest: Instant, latest: Instant | None = None) -> list[int]:
        """The timestamps of ``key``'s versions, tombstones too, from ``earliest`` to ``latest``, both included.

        >>> from millpond.stores.memory import MemoryBackend
        >>> from millpond.stores.serdes import STRING
        >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> for value, timestamp in ((None, 3), ("3.10", 5), (None, 7)):
        ...     _ = store.put("tea", value, timestamp)
        >>> store.version_times("tea", 3), store.version_times("tea", 4, 6)
        ([3, 5, 7], [5])
        """
        prefix = self._prefix(key)
        last = MAX_TIME if latest is None else to_instant(latest, "latest")
        rows = self._scan_rows(
            prefix + pack_time(to_instant(earliest, "earliest")), prefix + pack_time(last) + _JUST_ABOVE
        )
        return [last_time(row) for row, _ in rows]

    def scan(self, start: K | None = None, stop: K | None = None) -> Scan[tuple[K, VersionedRecord[V]]]:
        """Every version within the history retention of the keys with ``start <= key < stop``, oldest first per key.

        Keys come in the order of their bytes; None leaves that side open.
        """
        first = DATA if start is None else self._prefix(start)
        end = INDEX if stop is None else self._prefix(stop)
        return self._scans.begin(self._all_versions(self._scan_rows(first, end)))

    def _check_row(self, row: bytes, data: bytes) -> None:
        if row[:1] == INDEX:
            self._decode_key(unterminated(row[1 + TIME_SIZE :]))
            return
        self._decode_key(unterminated(row[1:-TIME_SIZE]))
        if not _is_tombstone(data):
            self._decode_value(data[1:])
        if self._observed.time is None or last_time(row) > self._observed.time:
            raise ValueError(f"it is newer than the observed stream time {self._observed.time}")

    def _prepare_to_write(self) -> None:
        """What the writing half needs from the beginning."""

    def _prefix(self, key: K) -> bytes:
        return DATA + terminated(self._key_bytes(key))

    def _beyond_history(self, time: int) -> bool:
        observed = self._observed.time
        return observed is not None and time < observed - self._retention

    def _next_time(self, row: bytes, end: bytes) -> int | None:
        """When the version after ``row`` begins, or None if ``row`` is the key's latest."""
        for following, _ in self._scan_rows(row + _JUST_ABOVE, end):
            return last_time(following)
        return None

    def _record(self, row: tuple[bytes, bytes] | None, valid_to: int | None) -> VersionedRecord[V] | None:
        if row is None or _is_tombstone(row[1]):
            return None
        return VersionedRecord(self._decode_value(row[1][1:]), last_time(row[0]), valid_to)

    def _value_and_timestamp(self, row: tuple[bytes, bytes] | None) -> ValueAndTimestamp[V] | None:
        if row is None or _is_tombstone(row[1]):
            return None
        return ValueAndTimestamp(self._decode_value(row[1][1:]), last_time(row[0]))

    def _look_up(
        self, prefix: bytes, places: list[int], timestamps: Sequence[int], found: list[ValueAndTimestamp[V] | None]
    ) -> None:
        """Fill ``found`` for one key, newest first, in one walk back through its versions."""
        places.sort(key=timestamps.__getitem__, reverse=True)
        walk = VersionWalk(self._last_row, self._scan_rows, prefix)
        version: tuple[bytes, bytes] | None = None
        decoded: ValueAndTimestamp[V] | None = None
        for place in places:
            row = walk.back_to(timestamps[place])
            if row is None:
                return
            if row is not version:
                version, decoded = row, self._value_and_timestamp(row)
            found[place] = decoded

    def _versions(self, prefix: bytes, first: int | None, last: int, reverse: bool) -> Iterator[VersionedRecord[V]]:
        """The live versions of one key that overlap the bounds and the history."""
        observed = self._observed.time
        if observed is None:
            return iter(())
        horizon = max(MIN_TIME, observed - self._retention)
        if last < horizon:
            latest = self._record(self._last_row(prefix, prefix[:-2] + _KEY_END), None)
            return iter(() if latest is None or latest.timestamp > last else (latest,))
        since = horizon if first is None else max(first, horizon)
        valid_then = self._last_row(prefix, prefix + pack_time(since) + _JUST_ABOVE)
        start = prefix + pack_time(since) if valid_then is None else valid_then[0]
        bound = prefix + pack_time(last)
        after = self._next_time(bound, prefix[:-2] + _KEY_END)
        rows = self._scan_rows(start, bound + _JUST_ABOVE, reverse=reverse)
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
        observed = self._observed.time
        for prefix, versions in groupby(rows, key=_prefix_of):
            key = self._decode_key(unterminated(prefix[1:]))
            for record in self._oldest_first(versions, None):
                if record.valid_to is None or observed is None or record.valid_to > observed - self._retention:
                    yield key, record


class VersionedKeyValueStore(ReadOnlyVersionedKeyValueStore[K, V], WritableStore[K, V]):
    """The versions of each key, back to the history retention.

    >>> from millpond.stores.memory import MemoryBackend
    >>> from millpond.stores.serdes import STRING
    >>> store = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=1000)
    >>> store.put("tea", "3.10", 50)
    -1
    >>> store.put("tea", "2.90", 20)
    50
    >>> store.get("tea", as_of=30)
    VersionedRecord(value='2.90', timestamp=20, valid_to=50)
    """

    def put(self, key: K, value: V | None, timestamp: Instant) -> int:
        """Put a version that is valid from ``timestamp`` on; the value None is a tombstone.

        A version of the same timestamp is replaced.

        Returns:
            The end of the new version: the timestamp of the next one, or ``VALID_TO_UNDEFINED`` if it is the latest, or
            ``NOT_PUT`` if the timestamp is older than the observed stream time minus the grace period.
        """
        if key is None:
            raise self._null_key()
        time = timestamp if timestamp.__class__ is int else to_instant(timestamp, "timestamp")
        encoded = terminated(self._encode_key(key))
        row = DATA + encoded + pack_time(time)
        data = _TOMBSTONE if value is None else _LIVE + self._encode_value(value)
        observed = self._observed.time
        valid_to = None
        if observed is None or time >= observed:
            self._observed.time = observed = time
        elif time < observed - self._grace:
            return NOT_PUT
        else:
            valid_to = self._next_time(row, row[: -TIME_SIZE - 2] + _KEY_END)
        self._write(row, data)
        self._superseded.add(encoded, time)
        if valid_to is not None:
            self._superseded.add(encoded, valid_to)
        self._superseded.expire(observed - self._retention, self._remove_invisible)
        return VALID_TO_UNDEFINED if valid_to is None else valid_to

    def delete(self, key: K, timestamp: Instant) -> VersionedRecord[V] | None:
        """Put a tombstone; the version that was valid at ``timestamp`` until now, or None.

        Also None, and nothing changes, if the timestamp is older than the grace period.
        """
        replaced = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == NOT_PUT else replaced

    def flush(self) -> None:
        self._observed.save(self)
        super().flush()

    def _set_back(self, done: SetBack) -> None:
        if not self._observed.set_back(done):
            return
        # The index does not lead to all of them: it has forgotten the keys whose latest version is beyond the history.
        later = [row for row, _ in self._scan_rows(DATA, INDEX) if last_time(row) > done.limit]
        self._write_many(dict.fromkeys(later))
        self._superseded.set_back(done.limit)
        done.removed += len(later)

    def _prepare_to_write(self) -> None:
        # Here and not at the first put: a transaction that is scanned after a put has to keep its changes in order.
        self._superseded = SupersededIndex(self._transaction, max(self._retention // _BUCKETS, _SHORTEST_BUCKET))

    def _remove_invisible(self, encoded_key: bytes, horizon: int) -> None:
        """Delete what ended by ``horizon``: all versions until then, except the one that is still valid."""
        prefix = DATA + encoded_key
        rows = list(self._scan_rows(prefix, prefix + pack_time(horizon) + _JUST_ABOVE))
        if rows and rows[-1][1] != _TOMBSTONE:
            rows.pop()
        self._write_many({row: None for row, _ in rows})


def check_grace(store: str, grace: int, history_retention: int) -> None:
    """Refuse a grace period, in milliseconds, that is longer than the history.

    Raises:
        ConfigurationError: it is.
    """
    if grace > history_retention:
        raise ConfigurationError(
            f"store {store!r}: a grace of {grace} ms is longer than its history retention of {history_retention} ms; "
            "puts would be accepted that nobody can read"
        )


def _is_tombstone(data: bytes) -> bool:
    """Whether a row says that there is no value; else it begins with ``_LIVE``."""
    if data[:1] == _LIVE:
        return False
    if data == _TOMBSTONE:
        return True
    raise CorruptStoreError(f"the value {data[:20]!r} is neither a version nor a tombstone; restore the store")


def _prefix_of(entry: tuple[bytes, bytes]) -> bytes:
    """Row type and terminated key of a data row."""
    return entry[0][:-TIME_SIZE]

"""``SessionStore``: a value per key and session, for as long as the retention says.

The layout is that of ``millpond.stores.typed.windows.segments``, by the session's end::

    row    0x01 segment (time) key (terminated) end (time) start (time)
    value  value
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from millpond.errors import ArgumentConflictError, ConfigurationError
from millpond.stores.backend.contract import Entries
from millpond.stores.encoding.keys import TIME_SIZE, last_time, pack_time, terminated, unpack_time, unterminated
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Instant, to_instant
from millpond.stores.typed.scans import Scan
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, V, WritableStore
from millpond.stores.typed.windows.segments import SegmentedStore, key_part
from millpond.stores.typed.windows.windowed import Windowed

_REST: Final = 2 * TIME_SIZE

LONGEST_GAP: Final = "at_most"
"""The term of the longest gap, of sessions that last until the gaps of their records are over."""


def _end(row: bytes) -> int:
    """Return the end of a row's session."""
    return unpack_time(row, len(row) - _REST)


class ReadOnlySessionStore(SegmentedStore[K, V]):
    """The reading half of ``SessionStore``.

    A session is visible if it ends after the observed stream time minus the retention, to the millisecond. The observed
    stream time is the greatest session end that was ever put. Both start and end belong to a session.

    The sessions of one key are ordered by end, then start. Sessions of several keys come segment by segment: each key's
    in that order, the keys in no particular order.
    """

    def fetch_session(self, key: K, start: Instant, end: Instant) -> V | None:
        """Return the value of the session of ``key`` with exactly that start and end, or None."""
        row, last = self._row(key, to_instant(start, "start"), to_instant(end, "end"))
        data = None if last <= self._segments.horizon() else self._read(row)
        return None if data is None else self._decode_value(data)

    def fetch(self, key: K, *, reverse: bool = False) -> Scan[tuple[Windowed[K], V]]:
        """Return every session of ``key``."""
        return self.find_sessions(key, MIN_TIME, MAX_TIME, reverse=reverse)

    def fetch_keys(
        self, start: K | None = None, stop: K | None = None, *, reverse: bool = False
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return every session of the keys with ``start <= key < stop``; None leaves that side open."""
        return self.find_sessions_of_keys(start, stop, MIN_TIME, MAX_TIME, reverse=reverse)

    def find_sessions(
        self, key: K, earliest_end: Instant, latest_start: Instant, *, reverse: bool = False
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return the sessions of ``key`` that end at ``earliest_end`` or later and start by ``latest_start``."""
        first, last_start = to_instant(earliest_end, "earliest_end"), to_instant(latest_start, "latest_start")
        rows = self._segments.rows_of_key(terminated(self._key_bytes(key)), first, MAX_TIME, reverse=reverse)
        return self._scans.begin(self._sessions(rows, last_start))

    def find_sessions_of_each(
        self, keys: Iterable[K], earliest_ends: Sequence[int], latest_starts: Sequence[int]
    ) -> list[list[tuple[int, int, V]]]:
        """Return the results of ``find_sessions`` for many different keys, each with the times at the same position.

        Returns:
            Start, end and value of the sessions of each key, in the order of ``keys``.
        """
        encoded = list(map(terminated, self._keys_bytes(keys)))
        bounds = dict(zip(encoded, latest_starts, strict=True))
        found: dict[bytes, list[tuple[int, int, V]]] = {key: [] for key in encoded}
        decode = self._decode_value
        times = {key: [(earliest, MAX_TIME)] for key, earliest in zip(encoded, earliest_ends, strict=True)}
        for key, (row, data) in self._segments.rows_between(times):
            start = last_time(row)
            if start <= bounds[key]:
                found[key].append((start, _end(row), decode(data)))
        return list(found.values())

    def find_sessions_of_keys(
        self, start: K | None, stop: K | None, earliest_end: Instant, latest_start: Instant, *, reverse: bool = False
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return the same for the keys with ``start <= key < stop``; None leaves that side open."""
        first, last_start = to_instant(earliest_end, "earliest_end"), to_instant(latest_start, "latest_start")
        rows = self._segments.rows_of_keys(
            b"" if start is None else terminated(self._encode_key(start)),
            None if stop is None else terminated(self._encode_key(stop)),
            first,
            MAX_TIME,
            -_REST,
            reverse=reverse,
        )
        return self._scans.begin(self._sessions(rows, last_start))

    def find_sessions_ended(
        self, earliest_end: Instant, latest_end: Instant, *, reverse: bool = False
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return the sessions of all keys that end from ``earliest_end`` to ``latest_end``, both included."""
        first, last = to_instant(earliest_end, "earliest_end"), to_instant(latest_end, "latest_end")
        rows = self._segments.rows_of_keys(b"", None, first, last, -_REST, reverse=reverse)
        return self._scans.begin(self._sessions(rows, MAX_TIME))

    def _check_row(self, row: bytes, data: bytes) -> None:
        self._segments.check(row, _REST)
        self._decode_key(unterminated(key_part(row, _REST)))
        self._decode_value(data)
        if last_time(row) > _end(row):
            raise ValueError("the session ends before it starts")

    def _row(self, key: K, start: int, end: int) -> tuple[bytes, int]:
        return self._segments.row(terminated(self._key_bytes(key)), end) + pack_time(start), end

    def _sessions(self, rows: Entries, latest_start: int) -> Iterator[tuple[Windowed[K], V]]:
        decode_key, decode_value = self._decode_key, self._decode_value
        for row, data in rows:
            start = last_time(row)
            if start <= latest_start:
                key = decode_key(unterminated(key_part(row, _REST)))
                yield Windowed(key, start, _end(row)), decode_value(data)


class WritableSessionStore(ReadOnlySessionStore[K, V], WritableStore[K, V]):
    """The base of the writing halves of plain and timestamped session stores."""

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session; it is no error if there is none."""
        self._put(session, None)

    def flush(self) -> None:
        self._segments.save(self)
        super().flush()

    def _set_back(self, done: SetBack) -> None:
        # Where each record has a gap of its own, a session may end so much later than its last record.
        ahead = 0 if self._terms is None else int(dict(self._terms.fixed).get(LONGEST_GAP, 0))
        self._segments.set_back(done, _REST, lambda row: _end(row) > done.limit + ahead or last_time(row) > done.limit)

    def _put(self, session: Windowed[K], data: bytes | None) -> None:
        encoded = terminated(self._key_bytes(session.key))
        start, end = to_instant(session.start, "start"), to_instant(session.end, "end")
        if start > end:
            raise self._ends_before_it_starts(session)
        if self._segments.advance(end):
            self._write(self._segments.row_to_write(encoded, end) + pack_time(start), data)

    def _put_many(self, keys: Iterable[K], spans: Sequence[tuple[int, int]], data: Sequence[bytes | None]) -> None:
        if not spans:
            return
        for start, end in spans:
            if start > end:
                raise self._ends_before_it_starts((start, end))
        starts, ends = zip(*spans, strict=True)
        encoded = map(terminated, self._keys_bytes(keys))
        rows = [row + pack_time(start) for row, start in zip(self._segments.rows(encoded, ends), starts, strict=True)]
        self._segments.put(ends, zip(rows, data, strict=True))

    def _ends_before_it_starts(self, session: object) -> ConfigurationError:
        return ArgumentConflictError(f"the session {session} ends before it starts; give the start first")


class SessionStore(WritableSessionStore[K, V]):
    """A value per key and session.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> from millpond.stores.backend.transaction import Transaction
    >>> store = SessionStore("visits", Transaction(MemoryBackend()), STRING, INT64, retention=1000)
    >>> store.put(Windowed("a", 10, 30), 3)
    >>> list(store.find_sessions("a", earliest_end=25, latest_start=35))
    [(Windowed(key='a', start=10, end=30), 3)]
    """

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session; None deletes it. A session that has already expired is not put."""
        self._put(session, None if value is None else self._encode_value(value))

    def put_many(self, keys: Iterable[K], spans: Sequence[tuple[int, int]], values: Sequence[V | None]) -> None:
        """Put many sessions, as ``put`` does: key, start and end, and value at the same position.

        Sessions that another one of them causes to expire are not put. If a key or a value cannot be written, nothing
        has changed.
        """
        encode = self._encode_value
        self._put_many(keys, spans, [None if value is None else encode(value) for value in values])

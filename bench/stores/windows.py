"""Window and session stores: time goes on, segments expire, and the store's size stays bounded.

Rule of this module: the times of records follow from their place, so that every run, however small, goes through as
many retentions. A tenth of the records is late, none of them too late. Keys are so many that a window or session has a
few records. The engine alone keeps the same rows under key and time, and deletes those of a segment when it expires;
which they are, it is told.
"""

import random
from collections import deque
from itertools import count
from typing import Any, ClassVar, Final

from millpond.bench.rows import key_of
from millpond.bench.runs.recording import Values, Work
from millpond.bench.stores.pattern import EngineSide, Kind, Opened, Pattern, Plan, in_batches, require, sampled
from millpond.bench.stores.sizes import Sizes
from millpond.stores.encoding.keys import DATA, pack_time
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.windows.windowed import Windowed

HOUR: Final = 3_600_000
RETENTIONS: Final = 6
"""The length of a run, in retentions."""

RETENTION: Final = 4 * HOUR
SEGMENT: Final = RETENTION // 2
RECORDS_OF_A_KEY: Final = 60
"""The approximate number of records of each key in all."""

_ABOVE_DATA: Final = bytes([DATA[0] + 1])


class _Segmented(Pattern):
    """Records of some keys whose times go on from batch to batch; the store is empty before."""

    step: ClassVar[Kind]

    def plan(self, sizes: Sizes) -> Plan:
        chance, span = random.Random(sizes.seed), RETENTIONS * RETENTION
        keys = max(1, sizes.total // RECORDS_OF_A_KEY)
        steps = []
        for place in range(sizes.total):
            late = chance.randrange(HOUR) if chance.random() < 0.1 else 0
            time = max(0, place * span // sizes.total - late)
            steps.append((self.step, (key_of(chance.randrange(keys)), time)))
        return Plan([], *in_batches(steps, sizes, writes=True))


class Expiry:
    """The rows of an engine by segment, and which of them have expired."""

    def __init__(self) -> None:
        self._observed = 0
        self._rows: dict[int, dict[bytes, None]] = {}

    def add(self, row: bytes, time: int) -> list[bytes]:
        """Take note of a row; those that expire by it."""
        self._rows.setdefault(time // SEGMENT, {})[row] = None
        self._observed = max(self._observed, time)
        first = kept_from(self._observed) // SEGMENT
        return [row for segment in [one for one in self._rows if one < first] for row in self._rows.pop(segment)]

    def remove(self, row: bytes, time: int) -> None:
        """Forget a row."""
        self._rows.get(time // SEGMENT, {}).pop(row, None)


def kept_from(observed: int) -> int:
    """Return the beginning of the oldest segment that is kept."""
    oldest = max(0, observed - RETENTION + 1)
    return oldest - oldest % SEGMENT


def check_rows(opened: Opened, kept: int) -> None:
    """Check that the backend has so many rows of data, and so that all others are deleted.

    Raises:
        LookupError: it has not.
    """
    rows = sum(1 for _ in opened.transaction.backend.scan(DATA, _ABOVE_DATA))
    require(rows, kept, "the number of rows of windows that have not expired")


class WindowChurn(_Segmented):
    """The work of a windowed aggregate on each record."""

    name = "window churn"
    operation = "a fetch of a record's window and a put of what it is now, with its timestamp, expiry included"
    engine_does = "a get and a put under key and time, and deletions of what has expired"
    kind = StoreKind.TIMESTAMPED_WINDOW
    limits: ClassVar = {"retention": RETENTION, "window_size": HOUR}
    step = Kind.COUNT

    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        fetch, put = store.fetch, store.put

        def ready(at: tuple[str, int]) -> tuple[str, bytes, int, int]:
            key, time = at
            return key, values.next(), time, time - time % HOUR

        def count(record: tuple[str, bytes, int, int]) -> None:
            fetch(record[0], record[3])
            put(*record)

        return {self.step: (ready, count)}

    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        expiry = Expiry()

        def ready(at: tuple[str, int]) -> tuple[bytes, bytes, list[bytes]]:
            start = at[1] - at[1] % HOUR
            row = at[0].encode() + pack_time(start)
            return row, values.next(), expiry.add(row, start)

        def count(record: tuple[bytes, bytes, list[bytes]]) -> None:
            row, value, expired = record
            side.get(row)
            side.pending[row] = value
            side.pending.update(dict.fromkeys(expired))

        return {self.step: (ready, count)}

    def check(self, opened: Opened, plan: Plan) -> None:
        newest: dict[tuple[str, int], int] = {}
        for kind, argument in plan.steps():
            if kind is self.step:
                key, time = argument
                newest[key, time - time % HOUR] = time
        observed = max(start for _, start in newest)
        check_rows(opened, sum(start >= kept_from(observed) for _, start in newest))
        for key, start in sampled(newest):
            found = opened.store.fetch(key, start)
            expected = newest[key, start] if start > observed - RETENTION else None
            require(None if found is None else found.timestamp, expected, f"the window of {key} at {start}")


class SessionChurn(_Segmented):
    """The work of an aggregate by sessions on each record."""

    name = "session churn"
    operation = "a search for a record's sessions, their removal and a put of the one they become, expiry included"
    engine_does = "gets and deletions of the rows of these sessions, a put, and deletions of what has expired"
    kind = StoreKind.SESSION
    limits: ClassVar = {"retention": RETENTION}
    step = Kind.MERGE

    GAP: Final = HOUR // 2

    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        find, remove, put, gap = store.find_sessions, store.remove, store.put, self.GAP

        def merge(record: tuple[str, bytes, int]) -> None:
            key, value, time = record
            start = end = time
            for session, _ in list(find(key, time - gap, time + gap)):
                start, end = min(start, session.start), max(end, session.end)
                remove(session)
            put(Windowed(key, start, end), value)

        return {self.step: (lambda at: (at[0], values.next(), at[1]), merge)}

    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        sessions, expiry = Sessions(self.GAP), Expiry()

        def ready(at: tuple[str, int]) -> tuple[list[bytes], bytes, bytes, list[bytes]]:
            key, time = at
            merged, (start, end) = sessions.merge(key, time)
            gone = [_session_row(key, *session) for session in merged]
            for row, (_, last) in zip(gone, merged, strict=True):
                expiry.remove(row, last)
            row = _session_row(key, start, end)
            return gone, row, values.next(), expiry.add(row, end)

        def merge(record: tuple[list[bytes], bytes, bytes, list[bytes]]) -> None:
            gone, row, value, expired = record
            for one in gone:
                side.get(one)
                side.pending[one] = None
            side.pending[row] = value
            side.pending.update(dict.fromkeys(expired))

        return {self.step: (ready, merge)}

    def check(self, opened: Opened, plan: Plan) -> None:
        sessions, observed = Sessions(self.GAP), 0
        for kind, argument in plan.steps():
            if kind is self.step:
                _, (_, end) = sessions.merge(*argument)
                observed = max(observed, end)
        ends = [end for spans in sessions.of_key.values() for _, end in spans]
        check_rows(opened, sum(end >= kept_from(observed) for end in ends))
        for key in sampled(sessions.of_key):
            found = [(session.start, session.end) for session, _ in opened.store.fetch(key)]
            live = sorted(
                (span for span in sessions.of_key[key] if span[1] > observed - RETENTION), key=lambda s: s[::-1]
            )
            require(found, live, f"the sessions of {key}")


class Sessions:
    """Sessions of keys as lists of start and end."""

    def __init__(self, gap: int) -> None:
        self._gap = gap
        self.of_key: dict[str, list[tuple[int, int]]] = {}

    def merge(self, key: str, time: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        """Add a record; the sessions that are no more by it, and the one that there is."""
        spans = self.of_key.setdefault(key, [])
        merged = [(start, end) for start, end in spans if end >= time - self._gap and start <= time + self._gap]
        became = min([time, *(start for start, _ in merged)]), max([time, *(end for _, end in merged)])
        spans[:] = [span for span in spans if span not in merged] + [became]
        return merged, became


def _session_row(key: str, start: int, end: int) -> bytes:
    return key.encode() + pack_time(end) + pack_time(start)


class JoinChurn(_Segmented):
    """The work of a join of two streams on each record: one side's store is written, the other one's is read."""

    name = "join churn"
    operation = "a put of a record beside those of the same time, and a fetch of those of the hour before, with expiry"
    engine_does = "a put under key and time, a scan of the rows that are the answer, and deletions of what has expired"
    kind = StoreKind.WINDOW
    limits: ClassVar = {"retention": RETENTION, "window_size": HOUR, "retain_duplicates": True}
    step = Kind.JOIN

    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        put, fetch = store.put, store.fetch_range

        def join(record: tuple[str, bytes, int]) -> None:
            put(*record)
            key, _, time = record
            deque(fetch(key, time - HOUR, time), maxlen=0)

        return {self.step: (lambda at: (at[0], values.next(), at[1]), join)}

    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        expiry, kept, number = Expiry(), dict[str, deque[int]](), count()

        def ready(at: tuple[str, int]) -> tuple[bytes, bytes, bytes, int, list[bytes]]:
            key, time = at
            row = key.encode() + pack_time(time) + pack_time(next(number))
            recent = kept.setdefault(key, deque(maxlen=RECORDS_OF_A_KEY))
            recent.append(time)
            around = sum(time - HOUR <= other <= time for other in recent)
            return row, values.next(), key.encode() + pack_time(time - HOUR), around, expiry.add(row, time)

        def join(record: tuple[bytes, bytes, bytes, int, list[bytes]]) -> None:
            row, value, first, rows, expired = record
            side.pending[row] = value
            side.engine.scan(first, rows)
            side.pending.update(dict.fromkeys(expired))

        return {self.step: (ready, join)}

    def check(self, opened: Opened, plan: Plan) -> None:
        times: dict[str, list[int]] = {}
        for kind, argument in plan.steps():
            if kind is self.step:
                times.setdefault(argument[0], []).append(argument[1])
        observed = max(map(max, times.values()))
        check_rows(opened, sum(time >= kept_from(observed) for of_key in times.values() for time in of_key))
        for key in sampled(times):
            found = [start for start, _ in opened.store.fetch_range(key)]
            live = sorted(time for time in times[key] if time > observed - RETENTION)
            require(found, live, f"the records of {key}")

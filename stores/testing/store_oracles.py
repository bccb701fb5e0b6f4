"""The answers that typed stores must give, in plain Python: lists of tuples, searched from end to end.

Rule of this module: it shares no code with the stores, their layouts or their transactions; nothing in it is ever
removed because it expired, only hidden. It is slow and obvious. Answers are lists where stores give iterators.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

Entry: TypeAlias = tuple[Any, ...]

_NEVER = float("inf")


class KeyValueOracle:
    """Pairs of key and value. With timestamps a value is a pair itself."""

    def __init__(self) -> None:
        self.pairs: list[Entry] = []

    def get(self, key: str) -> Any:
        for known, value in self.pairs:
            if known == key:
                return value
        return None

    def get_many(self, keys: Iterable[str]) -> list[Any]:
        return [self.get(key) for key in keys]

    def put(self, key: str, value: Any) -> None:
        self.pairs = [pair for pair in self.pairs if pair[0] != key]
        if value is not None:
            self.pairs.append((key, value))

    def put_many(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def put_all(self, items: Iterable[Entry]) -> None:
        for key, value in items:
            self.put(key, value)

    def put_if_absent(self, key: str, value: Any) -> Any:
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def delete(self, key: str) -> Any:
        old = self.get(key)
        self.put(key, None)
        return old

    def scan(self, start: str | None = None, stop: str | None = None, *, reverse: bool = False) -> list[Entry]:
        inside = [pair for pair in self.pairs if _between(start, pair[0], stop)]
        return sorted(inside, key=lambda pair: _bytes(pair[0]), reverse=reverse)

    def prefix_scan(self, prefix: str, *, reverse: bool = False) -> list[Entry]:
        return [pair for pair in self.scan(reverse=reverse) if _bytes(pair[0]).startswith(_bytes(prefix))]

    def len_estimate(self) -> int:
        return len(self.pairs)


class TimestampedOracle(KeyValueOracle):
    """The same with timestamps beside the values."""

    def put(self, key: str, value: Any, timestamp: int | None = None) -> None:
        stamped = value if value is None or timestamp is None else (value, timestamp)
        super().put(key, stamped)

    def put_many(self, keys: list[str], values: list[Any], timestamps: list[int] | None = None) -> None:
        for key, value, timestamp in zip(keys, values, timestamps or [], strict=True):
            self.put(key, value, timestamp)

    def put_if_absent(self, key: str, value: Any, timestamp: int | None = None) -> Any:
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def get_value(self, key: str) -> Any:
        found = self.get(key)
        return None if found is None else found[0]


class VersionedOracle:
    """Triples of key, timestamp and value; the value None is a tombstone."""

    def __init__(self, history_retention: int, grace: int | None, late_puts: str = "refused") -> None:
        self.late_puts = late_puts
        self.triples: list[Entry] = []
        self.retention = history_retention
        self.grace = history_retention if grace is None else grace
        self.observed_stream_time: int | None = None

    def put(self, key: str, value: Any, timestamp: int) -> int:
        self.observed_stream_time = _later(self.observed_stream_time, timestamp)
        if timestamp < self.observed_stream_time - self.grace and not self._takes_late(key, timestamp):
            return -(2**63)
        self.triples = [triple for triple in self.triples if triple[:2] != (key, timestamp)]
        self.triples.append((key, timestamp, value))
        later = [time for known, time, _ in self.triples if known == key and time > timestamp]
        # An end of -1 would say that there is none.
        return min((0 if time == -1 else time for time in later), default=-1)

    def put_many(self, keys: list[str], values: list[Any], timestamps: list[int]) -> list[int]:
        return list(map(self.put, keys, values, timestamps))

    def delete(self, key: str, timestamp: int) -> Any:
        replaced = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == -(2**63) else replaced

    def get(self, key: str, as_of: int | None = None) -> Any:
        for start, end, value in reversed(self._spans(key)):
            if as_of is None or start <= as_of:
                hidden = end != _NEVER and as_of is not None and as_of < self._horizon()
                return None if value is None or hidden else _record(start, end, value)
        return None

    def get_value(self, key: str, as_of: int | None = None) -> Any:
        found = self.get(key, as_of)
        return None if found is None else found[0]

    def get_many(self, keys: list[str]) -> list[Any]:
        return [None if found is None else found[:2] for found in map(self.get, keys)]

    def get_many_as_of(self, keys: list[str], timestamps: list[int]) -> list[Any]:
        return [None if found is None else found[:2] for found in map(self.get, keys, timestamps)]

    def get_many_from(self, keys: list[str], earliest: list[int], latest: list[int]) -> list[Any]:
        found = []
        for key, first, last in zip(keys, earliest, latest, strict=True):
            begun = [(value, start) for start, _, value in self._spans(key) if first <= start <= last]
            live = [] if first < self._horizon() else [one for one in begun if one[0] is not None]
            found.append(live[0] if live else None)
        return found

    def history(
        self, key: str, earliest: int | None = None, latest: int | None = None, *, reverse: bool = False
    ) -> list[Any]:
        first = -_NEVER if earliest is None else earliest
        last = _NEVER if latest is None else latest
        spans = [(start, end, value) for start, end, value in self._spans(key) if value is not None]
        if last < self._horizon():
            spans = [span for span in spans if span[1] == _NEVER]
        found = [
            _record(start, end, value)
            for start, end, value in spans
            if start <= last and end > first and end > self._horizon()
        ]
        return found[::-1] if reverse else found

    def scan(self, start: str | None = None, stop: str | None = None) -> list[Any]:
        keys = sorted({key for key, _, _ in self.triples if _between(start, key, stop)}, key=_bytes)
        return [(key, record) for key in keys for record in self.history(key)]

    def _takes_late(self, key: str, timestamp: int) -> bool:
        """Return whether a late version is put, and drop the versions that it replaces; old deletes are unknown."""
        if self.late_puts == "refused":
            return False
        gone = [triple for triple in self.triples if triple[0] == key and timestamp <= triple[1] <= self._horizon()]
        _, last, value = max(gone, default=(key, timestamp, None), key=lambda triple: int(triple[1]))
        taken = value is None or (last == timestamp and self.late_puts == "valid")
        if taken:
            self.triples = [triple for triple in self.triples if triple not in gone]
        return taken

    def _horizon(self) -> float:
        return -_NEVER if self.observed_stream_time is None else self.observed_stream_time - self.retention

    def _spans(self, key: str) -> list[Entry]:
        mine = sorted((time, value) for known, time, value in self.triples if known == key)
        ends = [*[time for time, _ in mine], _NEVER]
        return [(start, ends[place + 1], value) for place, (start, value) in enumerate(mine)]


class WindowOracle:
    """Tuples of key, window start and value, in the order of their puts."""

    def __init__(self, retention: int, window_size: int, retain_duplicates: bool) -> None:
        self.puts: list[Entry] = []
        self.retention = retention
        self.window_size = window_size
        self.duplicates = retain_duplicates
        self.observed_stream_time: int | None = None
        self.last_put: Entry | None = None

    def put(self, key: str, value: Any, *times: int) -> None:
        """Put a value; ``times`` is the window's start, with the value's timestamp before it in a timestamped store."""
        start = times[-1]
        if self.duplicates and value is None:
            return
        self.observed_stream_time = _later(self.observed_stream_time, start)
        if start <= self.observed_stream_time - self.retention:
            return
        if not self.duplicates:
            self.puts = [put for put in self.puts if put[:2] != (key, start)]
        if value is not None:
            self.last_put = (key, start, (value, times[0]) if len(times) == 2 else value)
            self.puts.append(self.last_put)

    def fetch(self, key: str, window_start: int) -> Any:
        for known, start, value in self._visible():
            if (known, start) == (key, window_start) and not self.duplicates:
                return value
        last = self.last_put if self.duplicates else None
        return last[2] if last in self._visible() and last is not None and last[:2] == (key, window_start) else None

    def fetch_range(self, key: str, earliest: int | None, latest: int | None, *, reverse: bool = False) -> list[Any]:
        found = [(start, value) for known, start, value in self._visible() if known == key]
        found = [entry for entry in found if _inside(earliest, entry[0], latest)]
        found.sort(key=lambda entry: entry[0])
        return found[::-1] if reverse else found

    def fetch_keys(
        self, start: str | None, stop: str | None, earliest: int | None, latest: int | None, *, reverse: bool = False
    ) -> list[Any]:
        keys = {key for key, _, _ in self.puts if _between(start, key, stop)}
        return [
            ((key, time, time + self.window_size), value)
            for key in keys
            for time, value in self.fetch_range(key, earliest, latest, reverse=reverse)
        ]

    def fetch_all(self, earliest: int | None, latest: int | None, *, reverse: bool = False) -> list[Any]:
        return self.fetch_keys(None, None, earliest, latest, reverse=reverse)

    def _visible(self) -> list[Entry]:
        observed = self.observed_stream_time
        return [put for put in self.puts if observed is not None and put[1] > observed - self.retention]


class SessionOracle:
    """Pairs of a session, which is a triple of key, start and end, and its value."""

    def __init__(self, retention: int) -> None:
        self.pairs: list[Entry] = []
        self.retention = retention
        self.observed_stream_time: int | None = None

    def put(self, session: Entry, value: Any, timestamp: int | None = None) -> None:
        self.observed_stream_time = _later(self.observed_stream_time, session[2])
        if session[2] <= self.observed_stream_time - self.retention:
            return
        self.pairs = [pair for pair in self.pairs if pair[0] != session]
        if value is not None:
            self.pairs.append((session, value if timestamp is None else (value, timestamp)))

    def remove(self, session: Entry) -> None:
        self.put(session, None)

    def fetch_session(self, key: str, start: int, end: int) -> Any:
        for session, value in self._visible():
            if session == (key, start, end):
                return value
        return None

    def fetch(self, key: str, *, reverse: bool = False) -> list[Any]:
        return self._chosen(reverse, lambda session: session[0] == key)

    def fetch_keys(self, start: str | None, stop: str | None, *, reverse: bool = False) -> list[Any]:
        return self._chosen(reverse, lambda session: _between(start, session[0], stop))

    def find_sessions(self, key: str, earliest_end: int, latest_start: int, *, reverse: bool = False) -> list[Any]:
        return self._chosen(
            reverse, lambda session: session[0] == key and session[2] >= earliest_end and session[1] <= latest_start
        )

    def find_sessions_of_keys(
        self, start: str | None, stop: str | None, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> list[Any]:
        return self._chosen(
            reverse,
            lambda session: (
                _between(start, session[0], stop) and session[2] >= earliest_end and session[1] <= latest_start
            ),
        )

    def find_sessions_ended(self, earliest_end: int, latest_end: int, *, reverse: bool = False) -> list[Any]:
        return self._chosen(reverse, lambda session: earliest_end <= session[2] <= latest_end)

    def _chosen(self, reverse: bool, condition: Any) -> list[Any]:
        chosen = [pair for pair in self._visible() if condition(pair[0])]
        return sorted(chosen, key=lambda pair: (pair[0][2], pair[0][1]), reverse=reverse)

    def _visible(self) -> list[Entry]:
        observed = self.observed_stream_time
        return [pair for pair in self.pairs if observed is not None and pair[0][2] > observed - self.retention]


def _bytes(key: str) -> bytes:
    return key.encode()


def _between(start: str | None, key: str, stop: str | None) -> bool:
    return (start is None or _bytes(start) <= _bytes(key)) and (stop is None or _bytes(key) < _bytes(stop))


def _inside(earliest: int | None, time: int, latest: int | None) -> bool:
    return (earliest is None or earliest <= time) and (latest is None or time <= latest)


def _later(observed: int | None, time: int) -> int:
    return time if observed is None else max(observed, time)


def _record(start: int, end: float, value: Any) -> Entry:
    return value, start, None if end == _NEVER else end

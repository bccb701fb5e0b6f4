"""The backend that keeps all in this process: a dict and its keys in order. It also stands in for an engine in tests.

Rule of this module: its content ends with the process, and it takes no options and no files.

Keys stand in runs, lists of a limited length, so that one key moves few others. Keys that come together are merged run
by run, by the sorting of Python's lists, and a run that loses all its keys is dropped as a whole, so a range that
expires costs little more than a look at its keys.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, pairwise, repeat, tee
from operator import is_not
from pathlib import Path
from sys import getsizeof
from typing import Any, ClassVar, Final, Self

from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, Entry, OpenCursors, nothing
from millpond.stores.backend.options import parse_options
from millpond.stores.backend.sorted_changes import SortedChanges

_ROW: Final = 96
"""Bytes that a row takes beside its key and value and its place in the dict: the heads of two objects (33 each), their
alignment, and a place in the list of sorted keys."""

RUN: Final = 1_000
"""Keys of a run that is made anew. One with less than half as many is joined to another, one with more than twice as
many is cut."""

_FEW: Final = 64
"""Fewer keys than this are faster put into a run, or taken out of it, one by one than all together."""


class SortedKeys:
    """The keys of a map in ascending order, of which many are added or removed at once; each of them once.

    >>> keys = SortedKeys()
    >>> keys.add([b"a", b"c"])
    >>> keys.add([b"b", b"d"])
    >>> keys.remove([b"c"])
    >>> list(keys.between(None, b"d", reverse=True))
    [b'b', b'a']
    """

    __slots__ = ("_last", "_runs")

    def __init__(self) -> None:
        self._runs: list[list[bytes]] = []
        self._last: list[bytes] = []  # the last key of each run

    def add(self, keys: Sequence[bytes]) -> None:
        """Add keys that are not there, which come in ascending order."""
        runs, last = self._runs, self._last
        at = place = 0
        long = []
        while at < len(keys):
            place = bisect_left(last, keys[at], place)
            if place == len(runs):
                self._append(keys[at:])
                break
            end = bisect_right(keys, last[place], at)
            _put_into(runs[place], keys[at:end])
            if len(runs[place]) > 2 * RUN:
                long.append(place)
            at = end
        for place in reversed(long):
            self._cut(place)

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove keys that are there, which come in ascending order."""
        runs, last = self._runs, self._last
        at = place = 0
        short = []
        while at < len(keys):
            place = bisect_left(last, keys[at], place)
            end = bisect_right(keys, last[place], at)
            run = runs[place]
            _take_out(run, keys[at:end])
            if run:
                last[place] = run[-1]
            if len(run) < RUN // 2:
                short.append(place)
            at, place = end, place + 1
        for place in reversed(short):
            self._join(place)

    def between(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[bytes]:
        """Return the keys with ``start <= key < stop``, in order. Take them before anything is added or removed."""
        runs, last = self._runs, self._last
        first = 0 if start is None else bisect_left(last, start)
        final = len(runs) - 1 if stop is None else min(bisect_left(last, stop), len(runs) - 1)
        if first > final:
            return iter(())
        low = 0 if start is None else bisect_left(runs[first], start)
        high = len(runs[final]) if stop is None else bisect_left(runs[final], stop)
        if first == final:
            return _part(runs[first], low, high, reverse)
        begin, end = _part(runs[first], low, len(runs[first]), reverse), _part(runs[final], 0, high, reverse)
        if reverse:
            whole: Iterator[Any] = map(reversed, map(runs.__getitem__, range(final - 1, first, -1)))
            return chain(end, chain.from_iterable(whole), begin)
        return chain(begin, chain.from_iterable(map(runs.__getitem__, range(first + 1, final))), end)

    def check(self) -> None:
        """Raise ``ValueError`` unless keys are in order, and each run ends where it should and is as long."""
        if any(one >= other for one, other in pairwise(chain.from_iterable(self._runs))):
            raise ValueError("keys are not in order")
        if any(not run or len(run) > 2 * RUN for run in self._runs):
            raise ValueError(f"the runs have {list(map(len, self._runs))} keys")
        if self._last != [run[-1] for run in self._runs]:
            raise ValueError("a run does not end with its last key")

    def _append(self, keys: Sequence[bytes]) -> None:
        """Add keys that come after all that are there."""
        if not self._runs:
            self._runs.append([])
            self._last.append(keys[-1])
        self._runs[-1].extend(keys)
        self._last[-1] = keys[-1]
        if len(self._runs[-1]) > 2 * RUN:
            self._cut(len(self._runs) - 1)

    def _cut(self, place: int) -> None:
        """Make runs of a usual length of one that is too long."""
        run = self._runs[place]
        parts = [run[start : start + RUN] for start in range(0, len(run), RUN)]
        self._runs[place : place + 1] = parts
        self._last[place : place + 1] = [part[-1] for part in parts]

    def _join(self, place: int) -> None:
        """Join a run that is too short, or empty, to the one before it, or the first to the one behind it."""
        runs, last = self._runs, self._last
        if not (place or runs[0]):
            del runs[0], last[0]
        if len(runs) < 2 or len(runs[place]) >= RUN // 2:
            return
        first = max(place - 1, 0)
        joined = list(chain.from_iterable(runs[first : first + 2]))
        runs[first : first + 2] = [joined]
        last[first : first + 2] = joined[-1:] or [b""]
        if len(joined) > 2 * RUN:
            self._cut(first)


def _put_into(run: list[bytes], keys: Sequence[bytes]) -> None:
    if len(keys) < _FEW:
        for key in keys:
            insort(run, key)
    else:
        run.extend(keys)
        run.sort()  # which merges two parts that are in order


def _take_out(run: list[bytes], keys: Sequence[bytes]) -> None:
    if len(keys) == len(run):
        run.clear()
    elif len(keys) < _FEW:
        for key in keys:
            del run[bisect_left(run, key)]
    else:
        gone = set(keys)
        run[:] = [key for key in run if key not in gone]


def _part(run: list[bytes], low: int, high: int, reverse: bool) -> Iterator[bytes]:
    return map(run.__getitem__, range(high - 1, low - 1, -1) if reverse else range(low, high))


class MemoryBackend(Backend):
    """An ordered map in this process's memory; its content ends with it."""

    def __init__(self) -> None:
        self._map: Any = {}
        self._keys: Any = SortedKeys()
        self._bytes = 0
        self._cursors = OpenCursors()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._map.get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._map.get, keys))

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        for key in self._keys.between(start, stop, reverse=True):
            return key, self._map[key]
        return None

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        keys, again = tee(self._keys.between(start, stop, reverse=reverse))
        if stop is not None and (start or b"") >= stop:
            return nothing()
        entries = zip(keys, map(self._map.__getitem__, again), strict=True)
        return self._cursors.walk(Cursor(entries, None, reverse, _none))

    def write(self, changes: Changes) -> None:
        self._map.keys()
        self._cursors.detach()
        if len(changes) == 1:
            ((key, value),) = changes.items()
            self._set(key, value)
        elif isinstance(changes, SortedChanges):
            pairs, deleted = changes.split()
            self._apply(dict(pairs), deleted)
        elif None in changes.values():
            puts = {key: value for key, value in changes.items() if value is not None}
            self._apply(puts, [key for key, value in changes.items() if value is None])
        else:
            self._apply(changes, ())

    def _set(self, key: bytes, value: bytes | None) -> None:
        """Apply one change, faster than many together."""
        content = self._map
        old = content.get(key)
        if value is not None:
            self._bytes += len(value) + (len(key) if old is None else -len(old))
            content[key] = value
            if old is None:
                self._keys.add((key,))
        elif old is not None:
            self._bytes -= len(key) + len(content.pop(key))
            self._keys.remove((key,))

    def _apply(self, puts: Mapping[bytes, Any], deleted: Sequence[bytes]) -> None:
        """Apply the puts, and delete the deleted keys, which are different ones."""
        content = self._map
        before, given = len(content), sum(map(len, puts.values()))
        found = sum(map(len, map(content.setdefault, puts, puts.values())))
        grown = len(content) - before
        # A dict has its keys in the order in which they came, so those that are new are the last ones.
        new = sorted(islice(reversed(content), grown))
        added = given - found + sum(map(len, new)) + sum(map(len, islice(reversed(content.values()), grown)))
        if grown < len(puts):
            content.update(puts)
        olds = list(map(content.pop, deleted, repeat(None)))
        gone = sorted(compress(deleted, map(is_not, olds, repeat(None))))
        self._keys.remove(gone)
        self._keys.add(new)
        self._bytes += added - sum(map(len, gone)) - sum(map(len, filter(None, olds)))

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        put = self._map.update
        self._cursors.detach()
        put(entries)
        self._keys.add(sorted(self._map))
        self._bytes = sum(len(key) + len(value) for key, value in self._map.items())

    def flush(self) -> None:
        self._map.keys()

    def close(self) -> None:
        self._cursors.end("the memory backend was closed while this scan was open; finish or close scans before")
        self._map = self._keys = ClosedEngine("the memory backend")

    def entry_count(self) -> int:
        return len(self._map.keys())

    def memory_use(self) -> int:
        rows = self.entry_count()
        return self._bytes + rows * _ROW + getsizeof(self._map)


def _none(error: BaseException) -> None:
    """Return None: no exception is the engine's, because a dict has none of its own."""


@dataclass(frozen=True)
class MemorySupplier(BackendSupplier):
    """``memory``: no options, no files."""

    name: ClassVar[str] = "memory"
    persistent: ClassVar[bool] = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {}))

    def open(self, directory: Path) -> MemoryBackend:
        return MemoryBackend()

"""The backend that keeps all in this process: a dict and its keys in order. It also stands in for an engine in tests.

Rule of this module: its content ends with the process, and it takes no options and no files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat, tee
from operator import is_not
from pathlib import Path
from sys import getsizeof
from typing import Any, ClassVar, Final, Self

from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, Entry, OpenCursors, nothing
from millpond.stores.backend.options import parse_options
from millpond.stores.backend.sorted_changes import SortedChanges
from millpond.stores.backend.sorted_keys import SortedKeys

_ROW: Final = 96
"""Bytes that a row takes beside its key and value and its place in the dict: the heads of two objects (33 each), their
alignment, and a place in the list of sorted keys."""


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

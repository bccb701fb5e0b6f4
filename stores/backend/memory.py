"""The backend that keeps everything in this process: a sorted dict. It also stands in for an engine in tests.

Rule of this module: its content ends with the process, and it takes no options and no files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from sys import getsizeof
from typing import Any, ClassVar, Final, Self

from sortedcontainers import SortedDict

from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, Entry, OpenCursors, nothing
from millpond.stores.backend.options import parse_options

_replace: Final = dict.__setitem__
"""Sets the value of a key that a sorted dict has: without its look for the key's place, which stays what it was."""

_ROW: Final = 96
"""Bytes that a row takes beside those of its key and value and its place in the dict: the heads of two objects (33
each), what is lost to their alignment, and a place in the list of sorted keys."""


class MemoryBackend(Backend):
    """An ordered map in this process's memory; its content ends with it."""

    def __init__(self) -> None:
        self._map: Any = SortedDict()
        self._bytes = 0
        self._cursors = OpenCursors()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._map.get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._map.get, keys))

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        content = self._map
        for key in content.irange(None, stop, (True, False), True):
            return (key, content[key]) if key >= start else None
        return None

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        content = self._map
        keys, again = tee(content.irange(start, stop, (True, False), reverse))
        if stop is not None and (start or b"") >= stop:
            return nothing()
        entries = zip(keys, map(content.__getitem__, again), strict=True)
        return self._cursors.walk(Cursor(entries, None, reverse, _none))

    def write(self, changes: Changes) -> None:
        content = self._map
        keep = content.update
        self._cursors.detach()
        find, added = content.get, 0
        new: dict[bytes, bytes] = {}
        for key, value in changes.items():
            old = find(key)
            if old is None:
                if value is not None:
                    added += len(key) + len(value)
                    new[key] = value
            elif value is None:
                added -= len(key) + len(old)
                del content[key]
            else:
                added += len(value) - len(old)
                _replace(content, key, value)
        if len(new) > 1:
            keep(new)
        else:  # ``update`` is for many
            for key, value in new.items():
                content[key] = value
        self._bytes += added

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        keep = self._map.update
        self._cursors.detach()
        keep(entries)
        self._bytes = sum(len(key) + len(value) for key, value in dict.items(self._map))

    def flush(self) -> None:
        self._map.keys()

    def close(self) -> None:
        self._cursors.end("the memory backend was closed while this scan was open; finish or close scans before")
        self._map = ClosedEngine("the memory backend")

    def entry_count(self) -> int:
        return len(self._map.keys())

    def size_on_disk(self) -> int:
        return self.memory_use()

    def memory_use(self) -> int:
        rows = self.entry_count()
        return self._bytes + rows * _ROW + getsizeof(self._map)


def _none(error: BaseException) -> None:
    """No exception is the engine's, because a sorted dict has none of its own."""


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

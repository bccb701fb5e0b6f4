"""The backend that keeps everything in this process: a sorted dict. It is also the double that tests use."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from sys import getsizeof
from typing import ClassVar, Self
from weakref import WeakSet

from sortedcontainers import SortedDict

from millpond.errors import ConfigurationError, StoreClosedError
from millpond.stores.backend import Backend, BackendSupplier, Changes, Entries


class _Scan(Iterator[tuple[bytes, bytes]]):
    """A lazy walk over the live map, which takes a copy of its rest just before the map changes under it."""

    def __init__(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        self._entries = entries

    def __next__(self) -> tuple[bytes, bytes]:
        return next(self._entries)

    def detach(self) -> None:
        self._entries = iter(list(self._entries))

    def end(self) -> None:
        self._entries = _raise_closed()

    def close(self) -> None:
        self._entries = iter(())


def _raise_closed() -> Iterator[tuple[bytes, bytes]]:
    raise StoreClosedError("the memory backend was closed while this scan was open; finish scans before closing")
    yield


class MemoryBackend(Backend):
    """An ordered map in this process's memory; its content ends with it."""

    def __init__(self) -> None:
        self._map: SortedDict[bytes, bytes] = SortedDict()
        self._scans: WeakSet[_Scan] = WeakSet()
        self._open = True
        self.get = self._map.get  # type: ignore[method-assign]

    def get(self, key: bytes) -> bytes | None:
        raise self._closed()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._open:
            raise self._closed()
        return list(map(self._map.get, keys))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        if not self._open:
            raise self._closed()
        if start is not None and stop is not None and start >= stop:
            return iter(())
        content = self._map
        keys = content.irange(start, stop, inclusive=(True, False), reverse=reverse)
        scan = _Scan((key, content[key]) for key in keys)
        self._scans.add(scan)
        return scan

    def write(self, changes: Changes) -> None:
        if not self._open:
            raise self._closed()
        self._detach_scans()
        content = self._map
        new = {}
        for key, value in changes.items():
            if value is None:
                content.pop(key, None)
            elif key in content:
                content[key] = value
            else:
                new[key] = value
        content.update(new)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        if not self._open:
            raise self._closed()
        self._detach_scans()
        self._map.update(entries)

    def _detach_scans(self) -> None:
        for scan in list(self._scans):
            scan.detach()
        self._scans.clear()

    def flush(self) -> None:
        if not self._open:
            raise self._closed()

    def close(self) -> None:
        self._open = False
        for scan in list(self._scans):
            scan.end()
        self._scans.clear()
        self.__dict__.pop("get", None)
        self._map = SortedDict()

    def entry_count(self) -> int:
        if not self._open:
            raise self._closed()
        return len(self._map)

    def size_on_disk(self) -> int:
        if not self._open:
            raise self._closed()
        return sum(starmap(_sizes, self._map.items()))

    def _closed(self) -> StoreClosedError:
        return StoreClosedError("the memory backend is closed; open a new one from its supplier")


def _sizes(key: bytes, value: bytes) -> int:
    return getsizeof(key) + getsizeof(value)


@dataclass(frozen=True)
class MemorySupplier(BackendSupplier):
    """``memory``: no options, no files."""

    name: ClassVar[str] = "memory"
    persistent: ClassVar[bool] = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        if options:
            raise ConfigurationError(f"the memory backend has no options, but got {', '.join(sorted(options))}")
        return cls()

    def open(self, directory: Path) -> MemoryBackend:
        return MemoryBackend()

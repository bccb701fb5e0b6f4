"""Millpond's state stores on an engine of your own. It works as it is, but is slow: each write makes a new file.

Rule of this module: the contract is ``millpond.stores.backend``. Put the calls of your engine where ``_load``
and ``_save`` are, keep the rest that it needs, and run the tests until they are green again.
"""

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import msgpack
from sortedcontainers import SortedDict

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreError, StoreFullError
from millpond.stores.backend import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import (
    FULL,
    ClosedEngine,
    Cursor,
    ErrorTranslator,
    OpenCursors,
    make_directory,
    nothing,
)
from millpond.stores.backend.options import parse_bool, parse_options
from millpond.stores.backend.own_files import no_link


class translate_errors(ErrorTranslator):
    """Within it, the engine's exceptions become Millpond's, which name ``directory``."""

    def translated(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, OSError):
            return None
        where = f"the store in {self._directory}"
        if error.errno in FULL:
            return StoreFullError(f"{where} has no room left ({error})")
        return BackendError(f"{where} failed: {error}")


class MineBackend(Backend):
    """A sorted dict, and a file that has all of it."""

    def __init__(self, directory: Path, sync: bool) -> None:
        self._directory = directory
        self._sync = sync
        self._errors = translate_errors(directory)
        self._cursors = OpenCursors()
        make_directory(directory)
        with self._errors:
            self._lock = no_link(str(directory / "lock"), os.O_RDWR | os.O_CREAT)
        try:
            self._map: Any = self._load()
        except BaseException:
            os.close(self._lock)
            raise

    def _load(self) -> Any:
        file = self._directory / "entries"
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackendInUseError(f"the store in {self._directory} is open already; close it there first") from error
        with self._errors:
            content = file.read_bytes() if file.exists() else None
        if content is None:
            return SortedDict()
        digest, _, entries = content.partition(b"\n")
        if digest != sha256(entries).hexdigest().encode():
            raise CorruptStoreError(f"{file} is damaged")
        return SortedDict(msgpack.unpackb(entries, strict_map_key=False))

    def _save(self, content: Any) -> None:
        entries = msgpack.packb(dict(content))
        draft = self._directory / "entries.new"
        with self._errors:
            draft.write_bytes(sha256(entries).hexdigest().encode() + b"\n" + entries)
            if self._sync:
                _sync(draft)
            draft.replace(self._directory / "entries")

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._map.get(key)
        return value

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        content = self._map
        keys = content.irange(start, stop, (True, False), reverse)
        if stop is not None and (start or b"") >= stop:
            return nothing()
        entries = ((key, content[key]) for key in keys)
        return self._cursors.walk(Cursor(entries, None, reverse, self._errors.translated))

    def write(self, changes: Changes) -> None:
        new = self._map.copy()
        for key, value in changes.items():
            if value is None:
                new.pop(key, None)
            else:
                new[key] = value
        self._save(new)
        self._map = new  # open scans go on with the one before

    def flush(self) -> None:
        self._map.keys()
        with self._errors:
            for path in (self._directory / "entries", self._directory):
                if path.exists():
                    _sync(path)

    def close(self) -> None:
        where = f"the store in {self._directory}"
        if isinstance(self._map, ClosedEngine):
            return
        self._map = ClosedEngine(where)
        self._cursors.end(f"{where} was closed while this scan was open")
        os.close(self._lock)


@dataclass(frozen=True)
class MineSupplier(BackendSupplier):
    """The options. Each is a field with a default, and has a parser of its text in a URL."""

    name: ClassVar[str] = "mine"

    sync: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {"sync": parse_bool}))

    def open(self, directory: Path) -> MineBackend:
        return MineBackend(directory, self.sync)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

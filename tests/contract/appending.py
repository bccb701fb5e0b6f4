"""An append-only log as a backend, as an author might write it who has read nothing but docs/writing-a-backend.md.

One file of records, a record a write, each with a checksum of its head and one of its body; where the values are is in
memory. Deletes are records too, and a log that is mostly of no use any more is written anew.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Self
from zlib import crc32

from sortedcontainers import SortedDict

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreError, StoreFullError
from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import (
    FULL,
    ClosedEngine,
    Cursor,
    Entry,
    ErrorTranslator,
    OpenCursors,
    make_directory,
    nothing,
)
from millpond.stores.backend.options import parse_options, parse_size

NAME: Final = "entries.log"
_MAGIC: Final = b"millpond-log-1\n\0"
_HEAD: Final = Struct("<QII")
"""The length of the body, its checksum, and the checksum of these two."""
_ENTRY: Final = Struct("<IQ")
"""The length of a key and that of its value, or ``_DELETED``; key and value follow."""
_DELETED: Final = 2**64 - 1


class Place(NamedTuple):
    """The place of a value in the file, and its checksum."""

    offset: int
    length: int
    checksum: int


class LogErrors(ErrorTranslator):
    """Within it, errors of the system become Millpond's."""

    def translated(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, OSError):
            return None
        if error.errno in FULL:
            return StoreFullError(f"the log in {self._directory} has no room left ({error}); make room")
        return BackendError(f"the log in {self._directory} failed: {error}")


class Log:
    """The file: a magic and records. It is open from its making to ``close``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.end = os.fstat(self.file).st_size

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the place and the body of each record; cut off what a killed process left of one."""
        head = os.pread(self.file, len(_MAGIC), 0)
        if len(head) < len(_MAGIC) and _MAGIC.startswith(head):
            self.truncate(0)
            self.append(_MAGIC)
        elif head != _MAGIC:
            raise self._damaged(0)
        place = len(_MAGIC)
        while place < self.end:
            head = os.pread(self.file, _HEAD.size, place)
            if len(head) < _HEAD.size:
                break
            length, checksum, own = _HEAD.unpack(head)
            if crc32(head[:12]) != own:
                raise self._damaged(place)
            body = os.pread(self.file, length, place + _HEAD.size)
            if len(body) < length:
                break
            if crc32(body) != checksum:
                raise self._damaged(place)
            yield place + _HEAD.size, body
            place += _HEAD.size + length
        self.truncate(place)

    def read(self, place: Place) -> bytes:
        value = os.pread(self.file, place.length, place.offset)
        if crc32(value) != place.checksum:
            raise self._damaged(place.offset)
        return value

    def append(self, data: bytes) -> int:
        """Write ``data`` to the end of the file, or nothing of it, and return its place."""
        begin, left = self.end, memoryview(data)
        try:
            while left:
                left = left[os.pwrite(self.file, left, self.end) :]
                self.end = begin + len(data) - len(left)
        except OSError:
            self.truncate(begin)
            raise
        return begin

    def truncate(self, end: int) -> None:
        if os.fstat(self.file).st_size != end:
            os.ftruncate(self.file, end)
        self.end = end

    def sync(self) -> None:
        os.fdatasync(self.file)

    def close(self) -> None:
        os.close(self.file)

    def _damaged(self, place: int) -> CorruptStoreError:
        return CorruptStoreError(f"{self._path} is damaged at byte {place}")


class LogBackend(Backend):
    """A log, and where each key's value is in it."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._directory = directory
        self._garbage = garbage
        self._cursors = OpenCursors()
        self._errors = LogErrors(directory)
        self._index: Any = SortedDict()
        self._live = 0
        make_directory(directory)
        with self._errors:
            self._lock = self._locked()
        try:
            with self._errors:
                self._log: Any = self._log_of(directory / NAME)
                self._read_log()
        except BaseException:
            os.close(self._lock)
            raise

    def get(self, key: bytes) -> bytes | None:
        place = self._index.get(key)
        with self._errors:
            return None if place is None else self._value(place)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        find = self._index.get
        with self._errors:
            return [None if (place := find(key)) is None else self._value(place) for key in keys]

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        for key in self._index.irange(None, stop, (True, False), True):
            with self._errors:
                return (key, self._value(self._index[key])) if key >= start else None
        return None

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        index = self._index
        keys = index.irange(start, stop, (True, False), reverse)
        if stop is not None and (start or b"") >= stop:
            return nothing()
        entries = ((key, self._value(index[key])) for key in keys)
        return self._cursors.walk(Cursor(entries, None, reverse, self._errors.translated))

    def write(self, changes: Changes) -> None:
        log = self._log
        append = log.append
        if not changes:
            return
        with self._errors:
            self._cursors.detach()
            body = self._body(changes.items())
            begin = append(self._record(body))
            self._replay(begin + _HEAD.size, body)
            if log.end > 2 * self._live + self._garbage:
                self._compact()

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.write(dict.fromkeys(self._index.irange(start, stop, (True, False))) if start < stop else {})

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        append = self._log.append
        with self._errors:
            self._cursors.detach()
            body = self._body(entries)
            self._replay(append(self._record(body)) + _HEAD.size, body)

    def flush(self) -> None:
        with self._errors:
            self._log.sync()

    def entry_count(self) -> int:
        return len(self._index.keys())

    def close(self) -> None:
        log, where = self._log, f"the log in {self._directory}"
        if isinstance(log, ClosedEngine):
            return
        self._log = self._index = ClosedEngine(where)
        self._cursors.end(f"{where} was closed while this scan was open; finish or close scans before")
        log.close()
        os.close(self._lock)

    def _locked(self) -> int:
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            message = f"the log in {self._directory} is open already; close it there first"
            raise BackendInUseError(message) from error
        return lock

    def _read_log(self) -> None:
        try:
            for begin, body in self._log.records():
                self._replay(begin, body)
        except BaseException:
            self._log.close()
            raise

    def _log_of(self, path: Path) -> Log:
        return Log(path)

    def _value(self, place: Place) -> bytes:
        value: bytes = self._log.read(place)
        return value

    def _body(self, entries: Iterable[tuple[bytes, bytes | None]]) -> bytes:
        parts: list[bytes] = []
        for key, value in entries:
            parts += (_ENTRY.pack(len(key), _DELETED if value is None else len(value)), key, value or b"")
        return b"".join(parts)

    def _record(self, body: bytes) -> bytes:
        head = _HEAD.pack(len(body), crc32(body), 0)[:12]
        return head + crc32(head).to_bytes(4, "little") + body

    def _replay(self, begin: int, body: bytes) -> None:
        place = 0
        while place < len(body):
            key_length, length = _ENTRY.unpack_from(body, place)
            place += _ENTRY.size
            key = body[place : place + key_length]
            place += key_length
            if (old := self._index.pop(key, None)) is not None:
                self._live -= len(key) + old.length
            if length != _DELETED:
                self._index[key] = Place(begin + place, length, crc32(body[place : place + length]))
                self._live += len(key) + length
                place += length

    def _compact(self) -> None:
        """Write what is left to a new file, which takes the place of this one when it is whole."""
        draft = self._directory / "draft"
        draft.unlink(missing_ok=True)
        new = self._log_of(draft)
        try:
            list(new.records())
            body = self._body((key, self._value(place)) for key, place in self._index.items())
            begin = new.append(self._record(body))
            new.sync()
            draft.rename(self._directory / NAME)
        except BaseException:
            new.close()
            with suppress(OSError):
                draft.unlink()
            raise
        self._log.close()
        self._log = new
        self._index.clear()
        self._live = 0
        self._replay(begin + _HEAD.size, body)


@dataclass(frozen=True)
class LogSupplier(BackendSupplier):
    """A log that is written anew when more than its half, and so many bytes, are of no use any more."""

    name: ClassVar[str] = "log"
    checksums: ClassVar[bool] = True

    garbage: int = 2**20

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {"garbage": parse_size}))

    def open(self, directory: Path) -> LogBackend:
        return LogBackend(directory, self.garbage)

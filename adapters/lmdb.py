"""LMDB: a B+ tree in a memory map, with one writer at a time and readers that never wait.

Rule of this module: what is special about LMDB is known only here. It refuses keys over 511 bytes (see
``millpond.stores.backend.long_keys``), and its map has a fixed size: this module makes the map grow whenever it is
full, and follows when another process has made it grow.

Several processes may use one directory; one process opens it once. A backend reads one snapshot until it writes or
flushes: what another process wrote is seen after that. Between a write and the first read after it no snapshot is held,
so an idle backend keeps no page from being reused.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar, Self

import lmdb

from millpond.errors import (
    BackendError,
    BackendInUseError,
    CorruptStoreError,
    InvalidKeyError,
    StoreError,
    StoreFullError,
)
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
from millpond.stores.backend.entry_chunks import Chunk, chunks_of
from millpond.stores.backend.options import check_least, parse_bool, parse_options, parse_size
from millpond.stores.backend.sorted_changes import SortedChanges

_CORRUPT = ("CorruptedError", "PageNotFoundError", "InvalidError", "VersionMismatchError", "PanicError")
_CORRUPT_ERRORS = tuple(
    getattr(lmdb, name) for name in (*_CORRUPT, "BadChecksumError", "ProblemError") if hasattr(lmdb, name)
)
_BUSY_CODES = frozenset({errno.EAGAIN, errno.EBUSY})
_LOAD_CHUNKS = 3
"""The chunks that a transaction loads: their pages are still in the processor's cache when they are written."""

_SYNCED_LOAD_CHUNKS = 25
"""The same where each transaction waits for the disk."""

_PROBE = 2**20
_LEAST_MAP = 2**15


class translate_errors(ErrorTranslator):
    """Within it, every exception of LMDB becomes one of Millpond's, which names ``directory``."""

    def translated(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, lmdb.Error):
            return None
        where = f"LMDB in {self._directory}"
        code = _code(error)
        if isinstance(error, lmdb.BadValsizeError):
            return InvalidKeyError(f"{where} takes keys of 1 to {LmdbBackend.max_key_size} bytes: {error}")
        if isinstance(error, _CORRUPT_ERRORS):
            return CorruptStoreError(f"{where} is damaged ({error})")
        if code == errno.ENOMEM:
            return StoreFullError(
                f"{where} has no address space left ({error}); give a smaller map_size, or the process more (ulimit -v)"
            )
        if isinstance(error, lmdb.MapFullError) or code in FULL or (code == errno.EIO and self._has_no_room()):
            return StoreFullError(f"{where} has no room left ({error}); free some space on that file system")
        if "already open in this process" in str(error):
            return BackendInUseError(f"{where} is open in this process already; close that backend first")
        if isinstance(error, lmdb.ReadersFullError | lmdb.LockError) or code in _BUSY_CODES:
            return BackendInUseError(f"{where} is read by too many at once ({error}); close some of their scans")
        return BackendError(f"{where} failed: {error}")

    def _has_no_room(self) -> bool:
        """Return whether the system refuses bytes beyond the map file's end; LMDB reports a short write only as EIO."""
        try:
            with TemporaryFile(dir=self._directory) as probe:
                probe.seek((self._directory / "data.mdb").stat().st_size)
                probe.write(bytes(_PROBE))
        except OSError as error:
            return error.errno in FULL
        return False


def _code(error: lmdb.Error) -> int:
    """Return the system's number for ``error``, 0 if it is LMDB's own. Before 2.1 the package gives it as text only."""
    known = (*FULL, *_BUSY_CODES, errno.EIO, errno.ENOMEM)
    code: int = getattr(error, "code", 0)
    return code or next((code for code in known if os.strerror(code) in str(error)), 0)


class LmdbBackend(Backend):
    """One LMDB environment. Use ``LmdbSupplier`` to describe it and ``millpond.stores.backend.registry`` to open it."""

    max_key_size = 511

    def __init__(self, directory: Path, *, map_size: int, sync: bool, readahead: bool) -> None:
        self._directory = directory
        self._file = directory / "data.mdb"
        self._sync = sync
        self._errors = translate_errors(directory)
        self._cursors = OpenCursors()
        self._snapshot: Any = None
        self._read: Callable[[bytes], bytes | None] | None = None
        self._finder: Any = None
        make_directory(directory)
        with self._errors:
            self._env: Any = lmdb.open(
                str(directory),
                map_size=map_size,
                sync=sync,
                metasync=sync,
                readahead=readahead,
                meminit=False,
                max_readers=1024,
                max_spare_txns=1,
            )
            self._env.reader_check()
            self._page_size: int = self._env.stat()["psize"]
        self._known_size = 0  # bytes that the file is known to have; it never becomes shorter
        self._check_size()

    def _check_size(self) -> None:
        """Refuse a file that has lost its end: the process would be killed where it reads beyond it."""
        pages = self._size_of_file()
        size = self._file.stat().st_size
        if size < pages:
            self.close()
            raise CorruptStoreError(
                f"LMDB in {self._directory} is damaged (data.mdb has {size} bytes instead of {pages})"
            )

    def get(self, key: bytes) -> bytes | None:
        read = self._read
        if read is None:
            read = self._begin_reading()
        try:
            return read(key)
        except lmdb.Error as error:
            raise self._errors.translated(error) or error from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._errors:
            return list(map(self._read or self._begin_reading(), keys))

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        if self._read is None:
            self._begin_reading()
        with self._errors:
            finder = self._finder
            if finder is None:
                finder = self._finder = self._snapshot.cursor()
            if not (finder.prev() if finder.set_range(stop) else finder.last()):
                return None
            entry: Entry = finder.item()
        return entry if entry[0] >= start else None

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        if self._read is None:
            self._begin_reading()
        if stop is not None and (start or b"") >= stop:
            return nothing()
        try:  # without a context manager, which a scan for one entry would feel
            cursor = self._snapshot.cursor()
            if not reverse:
                found = cursor.set_range(start) if start else cursor.first()
                entries = cursor.iternext()
            else:
                found = cursor.prev() if stop is not None and cursor.set_range(stop) else cursor.last()
                entries = cursor.iterprev()
        except lmdb.Error as error:
            raise self._errors.translated(error) or error from error
        if not found:
            return nothing()
        bound = start if reverse else stop
        return self._cursors.walk(Cursor(entries, bound, reverse, self._errors.translated))

    def write(self, changes: Changes) -> None:
        if len(changes) == 1:
            for change in changes.items():
                self._update(partial(_apply_one, change))
            return

        def apply(transaction: Any) -> None:
            put, deleted = changes.split() if isinstance(changes, SortedChanges) else _split(changes)
            transaction.cursor().putmulti(put)
            deque(map(transaction.delete, deleted), 0)

        self._update(apply)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        def apply(transaction: Any) -> None:
            cursor = transaction.cursor()
            found = cursor.set_range(start) if start else cursor.first()
            while found and cursor.key() < stop:
                found = cursor.delete() and cursor.key() != b""

        self._update(apply)

    def load(self, entries: Iterable[Entry]) -> None:
        source, most = chunks_of(entries), _SYNCED_LOAD_CHUNKS if self._sync else _LOAD_CHUNKS
        there_may_be_more = True
        while there_may_be_more:
            chunks = list(islice(source, most))
            self._update(partial(_append, chunks))
            there_may_be_more = len(chunks) == most

    def entry_count(self) -> int:
        with self._errors:
            entries: int = self._env.stat()["entries"]
        return entries

    def _size_of_file(self) -> int:
        with self._errors:
            pages: int = self._env.info()["last_pgno"] + 1
        return pages * self._page_size

    def flush(self) -> None:
        with self._errors:
            self._env.sync(True)
        self._stop_reading()

    def close(self) -> None:
        env, where = self._env, f"LMDB in {self._directory}"
        if isinstance(env, ClosedEngine):
            return
        self._env = ClosedEngine(where)
        self._cursors.end(f"{where} was closed while this scan was open; finish or close scans before")
        self._stop_reading()
        with self._errors:
            env.close()

    def _begin_reading(self) -> Callable[[bytes], bytes | None]:
        with self._errors:
            self._snapshot = self._begin(write=False)
        read: Callable[[bytes], bytes | None] = self._snapshot.get
        self._read = read
        return read

    def _stop_reading(self) -> None:
        """Let go of the snapshot. The engine frees it when the last scan that was begun on it is gone."""
        self._read = self._snapshot = self._finder = None

    def _update(self, apply: Callable[[Any], object]) -> None:
        """Do ``apply`` in a transaction of LMDB, and once more each time the map had to grow for it."""
        self._stop_reading()
        while True:
            with self._errors:
                try:
                    with self._begin(write=True) as transaction:
                        apply(transaction)
                    self._fill_file()
                    return
                except lmdb.MapFullError:
                    self._resize(self._env.info()["map_size"] * 2)

    def _fill_file(self) -> None:
        """Make the file as long as LMDB says that it is.

        Pages at the end that a transaction has used and freed again are never written, so a healthy file may be
        shorter, and then looks as if it had lost its end.
        """
        if self._size_of_file() <= self._known_size:
            return
        if self._file.stat().st_size < self._size_of_file():
            with self._begin(write=True):  # while it lasts, no other process makes the file longer
                if self._file.stat().st_size < self._size_of_file():
                    os.truncate(self._file, self._size_of_file())
        self._known_size = self._file.stat().st_size

    def _begin(self, *, write: bool) -> Any:
        while True:
            try:
                return self._env.begin(write=write)
            except lmdb.MapResizedError:
                self._resize(0)

    def _resize(self, size: int) -> None:
        """Set the map's size, or with 0 take the one that another process has set. It ends all of LMDB's cursors."""
        self._cursors.detach()
        self._stop_reading()
        self._env.set_mapsize(size)


def _apply_one(change: tuple[bytes, bytes | None], transaction: Any) -> None:
    key, value = change
    if value is None:
        transaction.delete(key)
    else:
        transaction.put(key, value)


def _split(changes: Changes) -> tuple[Iterable[tuple[bytes, Any]], list[bytes]]:
    """Return the pairs to put and the keys to delete, both in key order."""
    keys, deleted = sorted(changes), []
    if None in changes.values():
        deleted = [key for key in keys if changes[key] is None]
        keys = [key for key in keys if changes[key] is not None]
    # Making pairs one by one costs a fraction of making a list of them, and sorting pairs costs even more.
    return zip(keys, map(changes.__getitem__, keys), strict=True), deleted


def _append(chunks: list[Chunk], transaction: Any) -> None:
    cursor = transaction.cursor()
    for keys, values in chunks:
        cursor.putmulti(zip(keys, values, strict=True), append=True)


@dataclass(frozen=True)
class LmdbSupplier(BackendSupplier):
    """``lmdb``: several processes may use one directory.

    Args:
        map_size: bytes of address space that the map begins with; it doubles whenever it is full.
        sync: whether each write survives a loss of power, not only each flush. Without it, a loss of power may damage
            the directory, and a store that is durable elsewhere is then restored.
        readahead: whether the system reads ahead of a random read; worthwhile if the data fits into memory.
    """

    name: ClassVar[str] = "lmdb"

    map_size: int = 2**30
    sync: bool = False
    readahead: bool = True

    def __post_init__(self) -> None:
        check_least(self.name, "map_size", self.map_size, _LEAST_MAP)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        parsers = {"map_size": parse_size, "sync": parse_bool, "readahead": parse_bool}
        return cls(**parse_options(cls.name, options, parsers))

    def open(self, directory: Path) -> LmdbBackend:
        return LmdbBackend(directory, map_size=self.map_size, sync=self.sync, readahead=self.readahead)

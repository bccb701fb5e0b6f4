"""Millpond's state stores on SQLite, one database a store, with a write-ahead log."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreError, StoreFullError
from millpond.stores.backend import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, ErrorTranslator, OpenCursors, make_directory, nothing
from millpond.stores.backend.options import check_option, parse_options, parse_size

TABLE = "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
PUT = "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
DELETE = "DELETE FROM entries WHERE key = ?"


class translate_errors(ErrorTranslator):
    """A context manager in which SQLite's exceptions become Millpond's, which name ``directory``."""

    def translated(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        where, name = f"SQLite in {self._directory}", getattr(error, "sqlite_errorname", "")
        if name in {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}:
            return StoreFullError(f"{where} has no room left ({error})")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return CorruptStoreError(f"{where} is damaged ({error})")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return BackendInUseError(f"{where} is locked by another process ({error})")
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            return BackendError(f"{where} cannot be used ({error}); see that entries.db is a file that may be written")
        return BackendError(f"{where} failed: {error}")


class SqliteBackend(Backend):
    """One table of keys and values."""

    def __init__(self, directory: Path, page_cache: int) -> None:
        self._directory = directory
        self._errors = translate_errors(directory)
        self._cursors = OpenCursors()
        make_directory(directory)
        with self._errors:
            # A backend is used by one thread at a time, but not always by the one that opened it.
            path = directory / "entries.db"
            self._db: Any = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            try:
                # With a write-ahead log a commit is whole after a kill; NORMAL leaves the syncing of it to flush.
                for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"cache_size = -{page_cache // 1024}"):
                    self._db.execute(f"PRAGMA {pragma}")
                self._db.execute(TABLE)
            except BaseException:
                self._db.close()  # a connection that failed to open a file has it open all the same
                raise

    def get(self, key: bytes) -> bytes | None:
        with self._errors:
            row = self._db.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        execute = self._db.execute
        if stop is not None and (start or b"") >= stop:
            return nothing()
        bounds = {"key >= ?": start, "key < ?": stop}
        given = {condition: bound for condition, bound in bounds.items() if bound is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        order = "DESC" if reverse else "ASC"
        with self._errors:
            rows = execute(f"SELECT key, value FROM entries {where} ORDER BY key {order}", tuple(given.values()))
        return self._cursors.walk(Cursor(rows, None, reverse, self._errors.translated))

    def write(self, changes: Changes) -> None:
        db = self._db
        puts = [(key, value) for key, value in changes.items() if value is not None]
        deletes = [(key,) for key, value in changes.items() if value is None]
        with self._errors:
            # A scan in SQLite sees later writes of its own connection, so the rest of each is read first.
            self._cursors.detach()
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany(PUT, puts)
                db.executemany(DELETE, deletes)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def flush(self) -> None:
        with self._errors:
            self._cursors.detach()
            (busy, *_) = self._db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        if busy:  # no error to SQLite, but the writes may not be on the disk
            raise BackendInUseError(f"SQLite in {self._directory} is in use by another process, so it was not flushed")

    def close(self) -> None:
        db, where = self._db, f"SQLite in {self._directory}"
        if isinstance(db, ClosedEngine):
            return
        self._db = ClosedEngine(where)
        self._cursors.end(f"{where} was closed while this scan was open")
        with self._errors:
            db.close()


@dataclass(frozen=True)
class SqliteSupplier(BackendSupplier):
    """SQLite with a page cache of so many bytes in each store."""

    name: ClassVar[str] = "sqlite"

    page_cache: int = 16 * 2**20

    def __post_init__(self) -> None:
        allowed = type(self.page_cache) is int and 0 <= self.page_cache < 2**41  # SQLite counts KiB in 32 bits
        check_option(self.name, "page_cache", self.page_cache, allowed, "a number of bytes below 2 TiB")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {"page_cache": parse_size}))

    def open(self, directory: Path) -> SqliteBackend:
        return SqliteBackend(directory, self.page_cache)

"""SQLite without Millpond, for the benchmark of engines."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from millpond.bench.engines.engine import RawEngine, Row, Use
from millpond_sqlite import DELETE, PUT, TABLE, SqliteSupplier


class SqliteEngine(RawEngine):
    """The table of the backend, with the same options."""

    package = "millpond-sqlite"
    cache = "SQLite's page cache"
    cache_option = "page_cache"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        directory.mkdir(parents=True)
        assert isinstance(use.supplier, SqliteSupplier)
        self._db = sqlite3.connect(directory / "entries.db", isolation_level=None)
        cache, sync = use.supplier.page_cache // 1024, "FULL" if use.synced else "NORMAL"
        for pragma in ("journal_mode = WAL", f"synchronous = {sync}", f"cache_size = -{cache}"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute(TABLE)

    def getter(self) -> Callable[[bytes], Any]:
        execute = self._db.execute
        return lambda key: execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        return list(map(self.getter(), keys))

    def put_each(self, rows: Sequence[Row]) -> None:
        self._write(PUT, rows)

    def delete_each(self, keys: Sequence[bytes]) -> None:
        self._write(DELETE, [(key,) for key in keys])

    def put_many(self, rows: Sequence[Row]) -> None:
        self._write(PUT, rows)

    def load(self, rows: Sequence[Row]) -> None:
        self._write(PUT, rows)

    def _write(self, statement: str, parameters: Sequence[tuple[bytes, ...]]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany(statement, parameters)
        self._db.execute("COMMIT")

    def scan(self, start: bytes, count: int) -> int:
        query = "SELECT key, value FROM entries WHERE key >= ? ORDER BY key LIMIT ?"
        return len(self._db.execute(query, (start, count)).fetchall())

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        return self._db.execute(f"SELECT key, value FROM entries ORDER BY key {'DESC' if reverse else 'ASC'}")

    def close(self) -> None:
        self._db.close()

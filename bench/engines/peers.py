"""Engines that no backend of Millpond uses, and the names under which all peers are measured.

Rule of this module: a peer that needs a package of the extra ``peers`` imports it when it is opened, so that the others
are measured without it. Each says why it is used as it is.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from millpond.bench.engines.engine import Engine, OrderedEngine, Row, Use
from millpond.bench.engines.raw import RawLmdb, RawMemory, RawRocksDb

_PAGE: Final = 4096
_UNLIMITED: Final = 2**40


class Sqlite(OrderedEngine):
    """``sqlite3`` of the standard library.

    A table without row numbers is one B-tree in key order, where an ordinary one has a second for its index. With a
    write-ahead log a transaction is one append. Reads go through a memory map unless the cache's size is given, which a
    map would pass by. Statements with parameters are compiled once and kept by the connection.
    """

    package = "python"
    cache = "SQLite's page cache"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        directory.mkdir(parents=True)
        self._db = sqlite3.connect(directory / "entries.db", isolation_level=None)
        cached = ("mmap_size = 1073741824",)
        if use.cache_bytes is not None:
            cached = (f"cache_size = -{max(1, use.cache_bytes // 1024)}",)
        for pragma in ("journal_mode = WAL", f"synchronous = {'FULL' if use.synced else 'OFF'}", *cached):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    @classmethod
    def durability(cls, use: Use) -> str:
        if use.synced:
            return "the log synced at each transaction (synchronous=FULL)"
        return "never synced (synchronous=OFF): a killed process loses nothing, a loss of power may damage anything"

    def getter(self) -> Callable[[bytes], Any]:
        execute = self._db.execute
        return lambda key: execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()

    def put_each(self, rows: Sequence[Row]) -> None:
        self._write("INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", rows)

    def delete_each(self, keys: Sequence[bytes]) -> None:
        self._write("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])

    def _write(self, statement: str, parameters: Sequence[tuple[bytes, ...]]) -> None:
        if len(parameters) == 1:
            self._db.execute(statement, parameters[0])
            return
        self._db.execute("BEGIN")
        self._db.executemany(statement, parameters)
        self._db.execute("COMMIT")

    def scan(self, start: bytes, count: int) -> int:
        rows = self._db.execute("SELECT key, value FROM entries WHERE key >= ? ORDER BY key LIMIT ?", (start, count))
        return len(rows.fetchall())

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        return self._db.execute(f"SELECT key, value FROM entries ORDER BY key {'DESC' if reverse else 'ASC'}")

    def close(self) -> None:
        self._db.close()


class DiskCache(Engine):
    """``diskcache.Cache``, which keeps its items in SQLite.

    Nothing is evicted, so no policy keeps accounts of reads, and values stay in the table, because a file for each
    would cost more at these sizes. Several rows share one transaction (``transact``), as its documentation advises.
    """

    package = "diskcache"
    cache = "SQLite's page cache"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        import diskcache

        cached = {}
        if use.cache_bytes is not None:
            cached = {"sqlite_cache_size": max(1, use.cache_bytes // _PAGE), "sqlite_mmap_size": 0}
        self._cache = diskcache.Cache(
            str(directory),
            eviction_policy="none",
            cull_limit=0,
            size_limit=_UNLIMITED,
            disk_min_file_size=_UNLIMITED,
            sqlite_synchronous=2 if use.synced else 0,
            **cached,
        )

    @classmethod
    def durability(cls, use: Use) -> str:
        return Sqlite.durability(use)

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._cache.get
        return get

    def put_each(self, rows: Sequence[Row]) -> None:
        if len(rows) == 1:
            self._cache.set(*rows[0])
            return
        with self._cache.transact():
            for key, value in rows:
                self._cache.set(key, value)

    def delete_each(self, keys: Sequence[bytes]) -> None:
        if len(keys) == 1:
            self._cache.delete(keys[0])
            return
        with self._cache.transact():
            for key in keys:
                self._cache.delete(key)

    def close(self) -> None:
        self._cache.close()


class QuixStreams(Engine):
    """The state of ``quixstreams``: a partition of its RocksDB store, as a stateful function of it has it.

    Bytes go in and out with ``set_bytes`` and ``get_bytes``, past its JSON, and without a prefix. There is no
    changelog topic. All rows of a batch share one transaction, and reads have one of their own, which holds no changes.
    """

    package = "quixstreams"
    cache = "RocksDB's block cache"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        from quixstreams.state.rocksdb import RocksDBOptions, RocksDBStorePartition

        options = RocksDBOptions() if use.cache_bytes is None else RocksDBOptions(block_cache_size=use.cache_bytes)
        self._partition: Any = RocksDBStorePartition(str(directory), options=options)
        self._reading = self._partition.begin()

    @classmethod
    def durability(cls, use: Use) -> str:
        said = "the log not synced: a killed process loses nothing, a loss of power the newest writes"
        return f"{said} (it cannot sync each write)" if use.synced else said

    @classmethod
    def bytes_written(cls, directory: Path) -> int | None:
        return RawRocksDb.bytes_written(directory)

    def getter(self) -> Callable[[bytes], Any]:
        get_bytes = self._reading.get_bytes
        return lambda key: get_bytes(key, b"")

    def put_each(self, rows: Sequence[Row]) -> None:
        with self._partition.begin() as transaction:
            for key, value in rows:
                transaction.set_bytes(key, value, b"")

    def delete_each(self, keys: Sequence[bytes]) -> None:
        with self._partition.begin() as transaction:
            for key in keys:
                transaction.delete(key, b"")

    def close(self) -> None:
        self._partition.close()


PEERS: Final[dict[str, type[Engine]]] = {
    "rocksdict": RawRocksDb,
    "lmdb": RawLmdb,
    "sortedcontainers": RawMemory,
    "sqlite3": Sqlite,
    "diskcache": DiskCache,
    "quixstreams": QuixStreams,
}
"""The peers by name."""

"""The engines under the built-in backends, without Millpond, each at its best.

Rule of this module: every engine is used the way its own documentation says is fast, with the options and the
durability that Millpond's backend of the same name has.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

import lmdb
import rocksdict
from sortedcontainers import SortedDict

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.bench.engines.engine import RawEngine, Row, Use, buffer_beside
from millpond.errors import ConfigurationError
from millpond.stores.backend.plugins import origin
from millpond.stores.backend.registry import supplier

GROUP: Final = "millpond.bench.engines"
"""The entry-point group in which distributions register the engines of their backends."""

_TABLE: Final = re.compile(r'"event": "table_file_creation".*?"file_size": (\d+)')


class RawMemory(RawEngine):
    """A ``sortedcontainers.SortedDict``. A loop over its own ``[]`` is what its documentation shows for single rows."""

    package = "sortedcontainers"
    cache = "all rows are in memory"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        self._map: SortedDict[bytes, bytes] = SortedDict()

    @classmethod
    def durability(cls, use: Use) -> str:
        return "in memory: nothing outlives the process"

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._map.get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        return list(map(self._map.get, keys))

    def put_each(self, rows: Sequence[Row]) -> None:
        content = self._map
        for key, value in rows:
            content[key] = value

    def delete_each(self, keys: Sequence[bytes]) -> None:
        pop = self._map.pop
        for key in keys:
            pop(key, None)

    def put_many(self, rows: Sequence[Row]) -> None:
        self._map.update(rows)

    def load(self, rows: Sequence[Row]) -> None:
        self._map.update(rows)

    def scan(self, start: bytes, count: int) -> int:
        content, read = self._map, 0
        for key in content.irange(start):
            content[key]
            read += 1
            if read == count:
                break
        return read

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        content = self._map
        return map(content.__getitem__, reversed(content) if reverse else iter(content))

    def close(self) -> None:
        self._map = SortedDict()


class RawLmdb(RawEngine):
    """``lmdb``, with a map that is large enough from the start and one snapshot for all reads between two writes.

    Rows of one transaction go through its own ``put``; where many come sorted, ``putmulti`` takes them at once.
    """

    package = "lmdb"
    cache = "the system's page cache"
    getter_lasts = False

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        directory.mkdir(parents=True)
        options = use.supplier if isinstance(use.supplier, LmdbSupplier) else LmdbSupplier()
        sync = options.sync or use.synced
        self._env = lmdb.open(
            str(directory), map_size=2**36, sync=sync, metasync=sync, readahead=options.readahead, meminit=False
        )
        self._reading: Any = None

    @classmethod
    def durability(cls, use: Use) -> str:
        if use.synced or (isinstance(use.supplier, LmdbSupplier) and use.supplier.sync):
            return "each transaction synced, data and then root"
        return "not synced: a killed process loses nothing, a loss of power may lose or damage anything"

    def _reader(self) -> Any:
        if self._reading is None:
            self._reading = self._env.begin()
        return self._reading

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._reader().get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        return list(map(self._reader().get, keys))

    def put_each(self, rows: Sequence[Row]) -> None:
        self._reading = None
        with self._env.begin(write=True) as transaction:
            put = transaction.put
            for key, value in rows:
                put(key, value)

    def delete_each(self, keys: Sequence[bytes]) -> None:
        self._reading = None
        with self._env.begin(write=True) as transaction:
            delete = transaction.delete
            for key in keys:
                delete(key)

    def put_many(self, rows: Sequence[Row]) -> None:
        self._reading = None
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(rows)

    def load(self, rows: Sequence[Row]) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(rows, append=True)

    def scan(self, start: bytes, count: int) -> int:
        cursor = self._reader().cursor()
        cursor.set_range(start)
        return sum(1 for _ in islice(cursor.iternext(), count))

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        cursor = self._reader().cursor()
        rows: Iterator[Any] = cursor.iterprev() if reverse else cursor.iternext()
        return rows

    def close(self) -> None:
        self._reading = None
        self._env.close()


class RawRocksDb(RawEngine):
    """``rocksdict`` in raw mode, with the options of Millpond's RocksDB backend: bytes go in and out as they are.

    A single row goes through ``put``, several in one ``WriteBatch``, which is one entry of the log.
    """

    package = "rocksdict"
    cache = "RocksDB's block cache"
    cache_option: ClassVar[str | None] = "block_cache"
    buffer_option: ClassVar[str | None] = "write_buffer_size"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        options = _rocksdb_options(use)
        self._options = options.engine_options()
        self._writing = rocksdict.WriteOptions()
        # An attribute, whatever the package's stub says.
        self._writing.disable_wal = not options.wal  # type: ignore[method-assign, assignment]
        self._writing.sync = use.synced and options.wal
        self._db = rocksdict.Rdict(str(directory), self._options, {"default": self._options})

    @classmethod
    def durability(cls, use: Use) -> str:
        if not _rocksdb_options(use).wal:
            return "no log: a killed process loses what it wrote since the last flush"
        if use.synced:
            return "the log synced at each write"
        return "the log not synced: a killed process loses nothing, a loss of power the newest writes"

    @classmethod
    def bytes_written(cls, directory: Path) -> int | None:
        log = directory / "LOG"
        return sum(map(int, _TABLE.findall(log.read_text()))) if log.exists() else None

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._db.get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        found: Any = self._db.get(list(keys))
        values: list[Any] = found
        return values

    def put_each(self, rows: Sequence[Row]) -> None:
        if len(rows) == 1:
            self._db.put(*rows[0], self._writing)
            return
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self._db.write(batch, self._writing)

    def delete_each(self, keys: Sequence[bytes]) -> None:
        if len(keys) == 1:
            self._db.delete(keys[0], self._writing)
            return
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._db.write(batch, self._writing)

    def put_many(self, rows: Sequence[Row]) -> None:
        self.put_each(rows)

    def load(self, rows: Sequence[Row]) -> None:
        path = self.directory / "load.sst"
        writer = rocksdict.SstFileWriter(self._options)
        writer.open(str(path))
        for key, value in rows:
            writer[key] = value
        writer.finish()
        moving = rocksdict.IngestExternalFileOptions()
        moving.set_move_files(True)
        self._db.ingest_external_file([str(path)], moving)

    def scan(self, start: bytes, count: int) -> int:
        return sum(1 for _ in islice(self._db.items(from_key=start), count))

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        return iter(self._db.items(backwards=reverse))

    def close(self) -> None:
        self._db.close()


def _rocksdb_options(use: Use) -> RocksDbSupplier:
    if isinstance(use.supplier, RocksDbSupplier):
        return use.supplier
    default = RocksDbSupplier()
    if use.cache_bytes is None:
        return default
    buffer = buffer_beside(use.cache_bytes, default.write_buffer_size)
    return RocksDbSupplier(block_cache=use.cache_bytes, write_buffer_size=buffer)


ENGINES: Final[dict[str, type[RawEngine]]] = {"memory": RawMemory, "lmdb": RawLmdb, "rocksdb": RawRocksDb}
"""The engines by the name of the built-in backend that uses them."""


def engine_class(name: str) -> type[RawEngine] | None:
    """Return the engine under the backend called ``name``: a built-in one, one that a distribution registers, or None.

    Raises:
        ConfigurationError: what is registered cannot be imported or is no ``RawEngine``.
    """
    if name in ENGINES:
        return ENGINES[name]
    points = list(entry_points(group=GROUP, name=name))
    return _registered(points[0]) if points else None


def raw_engine(backend: str, directory: Path) -> RawEngine | None:
    """Return the engine under a backend, by name or URL, open on ``directory``; None where no engine is known."""
    chosen = supplier(backend)
    found = engine_class(chosen.name)
    return None if found is None else found(directory, Use(chosen))


def _registered(point: EntryPoint) -> type[RawEngine]:
    where = f"{origin(point)} registers {point.value!r} as the engine of the backend {point.name!r}, but"
    try:
        found: object = point.load()
    except Exception as error:
        raise ConfigurationError(f"{where} it cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, RawEngine)):
        raise ConfigurationError(f"{where} that is no subclass of {RawEngine.__module__}.RawEngine")
    return found

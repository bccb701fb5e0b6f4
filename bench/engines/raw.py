"""The storage engines as they are, without Millpond: the peers of the typed stores, each at its best.

Rule of this module: every engine is used the way its own documentation says is fast, with the durability that
Millpond's backend of the same name has, and with keys and values that are bytes already.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import rocksdict
from sortedcontainers import SortedDict

from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import ConfigurationError

Row = tuple[bytes, bytes]


class RawEngine(ABC):
    """One engine, open on a directory of its own, which does not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def getter(self) -> Callable[[bytes], Any]:
        """The engine's own function for one read."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        """Read many keys the fastest way."""

    @abstractmethod
    def put_each(self, rows: Iterable[Row]) -> None:
        """Put row after row with the engine's own put, in one transaction or batch."""

    @abstractmethod
    def put_many(self, rows: Sequence[Row]) -> None:
        """Put rows, which come sorted, the fastest way."""

    @abstractmethod
    def load(self, rows: Sequence[Row]) -> None:
        """Put sorted rows into the empty engine the fastest way."""

    @abstractmethod
    def scan(self, start: bytes, count: int) -> int:
        """Read up to ``count`` rows from ``start`` on, and return how many there were."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine."""


class RawMemory(RawEngine):
    """A ``sortedcontainers.SortedDict``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._map: SortedDict[bytes, bytes] = SortedDict()

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._map.get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        return list(map(self._map.get, keys))

    def put_each(self, rows: Iterable[Row]) -> None:
        content = self._map
        for key, value in rows:
            content[key] = value

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

    def close(self) -> None:
        self._map = SortedDict()


class RawLmdb(RawEngine):
    """``lmdb``, unsynced, with a map that is large enough from the start."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True)
        self._env = lmdb.open(str(directory), map_size=2**36, sync=False, metasync=False, meminit=False)
        self._reading: Any = None

    def _reader(self) -> Any:
        if self._reading is None:
            self._reading = self._env.begin()
        return self._reading

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._reader().get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        return list(map(self._reader().get, keys))

    def put_each(self, rows: Iterable[Row]) -> None:
        self._reading = None
        with self._env.begin(write=True) as transaction:
            put = transaction.put
            for key, value in rows:
                put(key, value)

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
        return sum(1 for _, _ in zip(range(count), cursor.iternext(), strict=False))

    def close(self) -> None:
        self._reading = None
        self._env.close()


class RawRocksDb(RawEngine):
    """``rocksdict`` in raw mode, with the options of Millpond's RocksDB backend."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._options = RocksDbSupplier().engine_options()
        self._db = rocksdict.Rdict(str(directory), self._options)

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._db.get
        return get

    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        found: Any = self._db.get(list(keys))
        values: list[Any] = found
        return values

    def put_each(self, rows: Iterable[Row]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self._db.write(batch)

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
        return sum(1 for _, _ in zip(range(count), self._db.items(from_key=start), strict=False))

    def close(self) -> None:
        self._db.close()


ENGINES: dict[str, type[RawEngine]] = {"memory": RawMemory, "lmdb": RawLmdb, "rocksdb": RawRocksDb}
"""The engines by the name of the built-in backend that uses them."""


def raw_engine(backend: str, directory: Path) -> RawEngine:
    """The engine under the built-in backend ``backend``, open on ``directory``.

    Raises:
        ConfigurationError: the backend is not a built-in one, so there is no engine to compare it with.
    """
    name = backend.partition(":")[0]
    if name not in ENGINES:
        raise ConfigurationError(f"no raw engine is known for the backend {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name](directory)

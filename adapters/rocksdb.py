"""RocksDB, through the package rocksdict: a log-structured merge tree for stores larger than memory.

Rule of this module: what is special about rocksdict is known only here. It raises plain ``Exception``, it forgets the
options of a directory unless they are given at every opening, it keeps a directory locked as long as an iterator lives,
and only one process at a time may have a directory open.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import rocksdict

from millpond.errors import (
    ArgumentConflictError,
    BackendError,
    BackendInUseError,
    CorruptStoreError,
    StoreError,
    StoreFullError,
)
from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import (
    ClosedEngine,
    Cursor,
    Entry,
    ErrorTranslator,
    OpenCursors,
    make_directory,
    nothing,
)
from millpond.stores.backend.options import (
    check_least,
    check_option,
    parse_bool,
    parse_choice,
    parse_int,
    parse_options,
    parse_size,
)

_COMPRESSIONS: dict[str, Callable[[], Any]] = {
    "none": rocksdict.DBCompressionType.none,
    "lz4": rocksdict.DBCompressionType.lz4,
    "snappy": rocksdict.DBCompressionType.snappy,
    "zstd": rocksdict.DBCompressionType.zstd,
}
_FULL = re.compile(r"no space left|quota exceeded|file too large", re.IGNORECASE)
_LOCKED = re.compile(r"lock hold by current process|while lock file|/LOCK:", re.IGNORECASE)
_CORRUPT = re.compile(r"corruption|checksum|not an sstable|no such file|bad table magic", re.IGNORECASE)
_LOAD_CHUNK = 200_000
_BLOCK_CACHE: Final = 256 * 2**20
_LEAST_BUDGET: Final = 8 * 2**20


class translate_errors(ErrorTranslator):
    """Within it, every exception of rocksdict becomes one of Millpond's, which names ``directory``."""

    def translated(self, error: BaseException) -> StoreError | None:
        if type(error) is not Exception:
            return None
        where, text = f"RocksDB in {self._directory}", str(error)
        if _LOCKED.search(text):
            return BackendInUseError(f"{where} is in use by {self._holder(text)}; close it there first")
        if _FULL.search(text):
            return StoreFullError(f"{where} has no room left ({text}); free some space on that file system")
        if _CORRUPT.search(text):
            return CorruptStoreError(f"{where} is damaged ({text})")
        return BackendError(f"{where} failed: {text}")

    def _holder(self, text: str) -> str:
        if "current process" in text:
            return f"this process ({os.getpid()})"
        holder = lock_holder(self._directory / "LOCK")
        return "another process" if holder is None else f"process {holder}"


def lock_holder(path: Path) -> int | None:
    """Return the process that holds a POSIX lock on ``path``, or None where the system does not tell.

    Reads the system's table of locks. A file descriptor could be asked, too, but closing that would release every lock
    that this process itself has on the file.
    """
    try:
        file = path.stat()
        table = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in table:
        fields = line.split()
        if "POSIX" in fields and name in fields:
            holder = int(fields[fields.index(name) - 1])
            # The system has no number for a process of another namespace.
            return holder if holder > 0 else None
    return None


class RocksDbBackend(Backend):
    """One RocksDB directory, described by ``RocksDbSupplier`` and opened by ``millpond.stores.backend.registry``."""

    def __init__(
        self, directory: Path, options: rocksdict.Options, *, wal: bool, shared: "_SharedMemory | None" = None
    ) -> None:
        self._directory = directory
        self._errors = translate_errors(directory)
        self._cursors = OpenCursors()
        self._options = options
        self._writing = rocksdict.WriteOptions()
        # An attribute, whatever the package's stub says.
        self._writing.disable_wal = not wal  # type: ignore[method-assign, assignment]
        self._wal = wal
        self._shared = shared
        make_directory(directory)
        with self._errors:
            # Given for the column family as well: for a directory that exists, rocksdict would take the family's
            # options from the files, which know neither the size of the block cache nor the filter.
            try:
                self._db: Any = rocksdict.Rdict(str(directory), options, {"default": options})
            except OSError as error:  # of the files that are rocksdict's own
                raise _refused(directory, error) from error
        self._finder: Any = None

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._errors.translated(error) or error from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._errors:
            values: list[bytes | None] = self._db.get(list(keys))
        return values

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        with self._errors:
            finder = self._finder
            if finder is None:
                finder = self._finder = self._db.iter()
            try:
                finder.seek_for_prev(stop)
                while finder.valid():
                    key: bytes = finder.key()
                    if key < stop:
                        return (key, finder.value()) if key >= start else None
                    finder.prev()
                finder.status()
            finally:
                # An error's traceback would keep the iterator, and with it the directory's lock.
                del finder
        return None

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        items, walks = self._db.items, self._db.iter
        if stop is not None and (start or b"") >= stop:
            return nothing()
        options = _below(stop)
        with self._errors:
            entries = items(reverse, None if reverse else start, options)
            # Made now, so that both see the same rows: in rocksdict 0.3.29 the iterators of a snapshot see later ones.
            walk = walks(options)
        bound = start if reverse else None
        prove = partial(self._prove_end, walk, start, reverse)
        # The engine's iterator compares with the very bytes of ``stop``, but holds no reference to them.
        return self._cursors.walk(Cursor(entries, bound, reverse, self._errors.translated, stop, prove))

    def _prove_end(self, walk: Any, start: bytes | None, reverse: bool, last: bytes | None) -> None:
        """Raise unless a scan that gave ``last`` as its last key, or nothing, has really come to its end.

        rocksdict's ``items()`` ends at a damaged block as if there were no more entries. Only its ``iter()`` tells why
        it has ended, so ``walk``, which is one below the same bound, goes the last step again.
        """
        try:
            if last is not None:
                walk.seek(last)
                if walk.valid():
                    (walk.prev if reverse else walk.next)()
            elif reverse:
                walk.seek_to_last()
            else:
                walk.seek(start or b"")
            if not walk.valid():
                walk.status()
            elif not reverse or walk.key() >= (start or b""):
                raise CorruptStoreError(
                    f"RocksDB in {self._directory} is damaged (a scan ended before the key {walk.key()!r})"
                )
        finally:
            # An error's traceback would keep the iterator, and with it the directory's lock.
            del walk

    def write(self, changes: Changes) -> None:
        self._finder = None
        with self._errors:
            if len(changes) == 1:
                self._write_one(changes)
            else:
                self._db.write(_batch(changes), self._writing)
            if self._shared is not None and self._shared.taken_by_tables:
                self._db.flush(True)

    def _write_one(self, changes: Changes) -> None:
        db, writing = self._db, self._writing
        for key, value in changes.items():
            if value is None:
                db.delete(key, writing)
            else:
                db.put(key, value, writing)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        delete_range = self._db.delete_range
        if start >= stop:
            return
        self._finder = None
        with self._errors:
            delete_range(start, stop, self._writing)

    def load(self, entries: Iterable[Entry]) -> None:
        ingest, source = self._db.ingest_external_file, iter(entries)
        moving = rocksdict.IngestExternalFileOptions()
        moving.set_move_files(True)
        self._finder = None
        for number, first in enumerate(source):
            path = self._directory / f"load-{number}.sst"
            with self._errors:
                self._write_table(path, chain((first,), islice(source, _LOAD_CHUNK - 1)))
                # The file becomes a part of the tree as it is, without a detour through the log and the memory table.
                ingest([str(path)], moving)

    def _write_table(self, path: Path, chunk: Iterable[Entry]) -> None:
        writer = rocksdict.SstFileWriter(self._options)
        writer.open(str(path))
        for key, value in chunk:
            writer[key] = value
        writer.finish()

    def entry_count(self) -> int:
        with self._errors:
            return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def flush(self) -> None:
        with self._errors:
            if self._wal:
                self._db.flush_wal(True)
            else:
                self._db.flush(True)

    def close(self) -> None:
        db, where = self._db, f"RocksDB in {self._directory}"
        if isinstance(db, ClosedEngine):
            return
        self._db = ClosedEngine(where)
        self._finder = None
        self._cursors.end(f"{where} was closed while this scan was open; finish or close scans before")
        with self._errors:
            db.close()


def _refused(directory: Path, error: OSError) -> BackendError:
    """Return the error to raise for a system error that rocksdict hands on as it is."""
    if _FULL.search(str(error)):
        return StoreFullError(f"RocksDB in {directory} has no room left ({error}); free some space on that file system")
    return BackendError(f"RocksDB in {directory} cannot be used ({error}); see that its files may be read and written")


def _batch(changes: Changes) -> rocksdict.WriteBatch:
    batch = rocksdict.WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    for key, value in changes.items():
        if value is None:
            delete(key)
        else:
            put(key, value)
    return batch


def _below(stop: bytes | None) -> rocksdict.ReadOptions | None:
    """Read options that keep an iterator below ``stop``, so that it never walks through deleted entries above it.

    The other end has no counterpart, because in rocksdict 0.3.29 the lower bound overwrites the upper one.
    """
    if stop is None:
        return None
    options = rocksdict.ReadOptions()
    options.set_iterate_upper_bound(stop)
    return options


class _SharedMemory:
    """The memory shared by all directories that a process opens with one budget: a cache, and memory tables in it.

    Tables have half of it: from seven eighths of that on, the engine writes out tables of the directory that is written
    to. Nobody waits for that, because a transaction's write holds up the micro-batch, unless the engine falls so far
    behind that tables take all of the budget: then ``RocksDbBackend.write`` waits for its own. The engine's own way to
    hold writers up is not used: it would wait for the tables of directories that nobody writes to, and so for ever.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.cache = rocksdict.Cache(size)
        manager = rocksdict.WriteBufferManager
        self.buffers = manager.new_write_buffer_manager_with_cache(size // 2, False, self.cache)

    def limit(self, size: int) -> None:
        """Take ``size`` bytes from now on."""
        if size != self.size:
            self.size = size
            self.cache.set_capacity(size)
            self.buffers.set_buffer_size(size // 2)

    @property
    def taken_by_tables(self) -> bool:
        """True if pinned memory, mostly memory tables, takes all of the budget."""
        return self.cache.get_pinned_usage() > self.size


_shared_cache = cache(rocksdict.Cache)
"""The cache of all directories without a budget that a process opens with the same ``block_cache``."""

_shared_memory = cache(_SharedMemory)
"""The memory shared by all directories that a process opens with the same ``memory_budget``."""


@dataclass(frozen=True)
class RocksDbSupplier(BackendSupplier):
    """``rocksdb``: one process at a time may have a directory open.

    Args:
        block_cache: bytes of uncompressed blocks kept in memory. All directories that a process opens with the same
            number share one cache, because a process has many stores open.
        bloom_bits: bits of the bloom filter per key; 0 for none. With ten, one absent key in a hundred gets through.
        write_buffer_size: bytes of a memory table before it is written out.
        compression: of the tables on disk.
        max_open_files: -1 keeps all open, which reads fastest.
        wal: whether writes go through RocksDB's log. Without it, a killed process loses what it wrote since the last
            flush; what is left is still the result of a prefix of the writes.
        memory_budget: bytes for blocks, indexes, filters and memory tables, of all directories together that a process
            opens with the same number; ``block_cache`` is left at its default then. 0 for none: each directory has
            memory tables of its own, and indexes and filters of open files beside the cache.
    """

    name: ClassVar[str] = "rocksdb"
    checksums: ClassVar[bool] = True

    block_cache: int = _BLOCK_CACHE
    bloom_bits: int = 10
    write_buffer_size: int = 64 * 2**20
    compression: str = "lz4"
    max_open_files: int = -1
    wal: bool = True
    memory_budget: int = 0

    def __post_init__(self) -> None:
        check_option(
            self.name,
            "compression",
            self.compression,
            self.compression in _COMPRESSIONS,
            f"one of {', '.join(_COMPRESSIONS)}",
        )
        for option, least in (
            ("block_cache", 0),
            ("memory_budget", 0),
            ("bloom_bits", 0),
            ("write_buffer_size", 2**16),
            ("max_open_files", -1),
        ):
            check_least(self.name, option, getattr(self, option), least)
        check_option(self.name, "max_open_files", self.max_open_files, self.max_open_files < 2**31, "below 2**31")
        if self.memory_budget:
            check_least(self.name, "memory_budget", self.memory_budget, _LEAST_BUDGET)
            if self.block_cache != _BLOCK_CACHE:
                raise ArgumentConflictError(
                    f"the backend {self.name!r} has memory_budget={self.memory_budget} and "
                    f"block_cache={self.block_cache}; leave out block_cache, which is part of the budget"
                )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        parsers = {
            "block_cache": parse_size,
            "bloom_bits": parse_int,
            "write_buffer_size": parse_size,
            "compression": parse_choice(*_COMPRESSIONS),
            "max_open_files": parse_int,
            "wal": parse_bool,
            "memory_budget": parse_size,
        }
        return cls(**parse_options(cls.name, options, parsers))

    def open(self, directory: Path) -> RocksDbBackend:
        return RocksDbBackend(directory, self.engine_options(), wal=self.wal, shared=self._shared)

    def with_memory_budget(self, budget: int) -> Self:
        if self.memory_budget not in (0, budget):
            raise ArgumentConflictError(
                f"the backend {self.name!r} has memory_budget={self.memory_budget}, but its job has a budget of "
                f"{budget} bytes for all stores of a worker; leave out one of them"
            )
        return replace(self, memory_budget=budget)

    def limit_memory(self, size: int) -> None:
        if self._shared is not None:
            self._shared.limit(size)

    @property
    def _shared(self) -> _SharedMemory | None:
        """The memory that its directories share in this process; None without a budget."""
        return _shared_memory(self.memory_budget) if self.memory_budget else None

    def engine_options(self) -> rocksdict.Options:
        """Return the options that the engine is opened with."""
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(self._table_options())
        options.set_write_buffer_size(self.write_buffer_size)
        options.set_compression_type(_COMPRESSIONS[self.compression]())
        options.set_max_open_files(self.max_open_files)
        options.set_keep_log_file_num(2)
        if self._shared is not None:
            options.set_write_buffer_manager(self._shared.buffers)
            # What a memory table takes at least: the engine's own choice is up to 1 MiB, much for many small stores.
            options.set_arena_block_size(min(2**20, self.memory_budget // 128))
        return options

    def _table_options(self) -> rocksdict.BlockBasedOptions:
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(_shared_cache(self.block_cache) if self._shared is None else self._shared.cache)
        table.set_cache_index_and_filter_blocks(self._shared is not None)
        table.set_format_version(5)
        if self.bloom_bits > 0:
            table.set_bloom_filter(self.bloom_bits, block_based=False)
        return table

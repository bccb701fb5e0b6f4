"""The backend: the contract's methods as calls of SlateDB.

Rule of this module: a write is in SlateDB's memory when it returns, and in the bucket when ``flush`` has. Only then
does the directory note its number, by which a loss in the bucket is noticed.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from slatedb.uniffi import (
    AdminBuilder,
    CloseReason,
    DbBuilder,
    DbCache,
    DurabilityLevel,
    Error,
    IterationOrder,
    KeyRange,
    MokaCacheOptions,
    ScanOptions,
    WriteBatch,
)

from millpond.errors import CorruptStoreError
from millpond.stores.backend import Backend, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, Entry, OpenCursors, nothing
from millpond_slatedb.bucket import Bucket, translate_errors
from millpond_slatedb.calls import Calls
from millpond_slatedb.place import Place

_FIRST_PAGE: Final = 16
_LARGEST_PAGE: Final = 1024
_READ_AHEAD: Final = 2**20
_FETCHES: Final = 4


class SlateDbBackend(Backend):
    """The store of one directory. Use ``SlateDbSupplier`` to describe it."""

    def __init__(self, directory: Path, bucket: Bucket, timeout: float, block_cache: int) -> None:
        self._errors = translate_errors(directory, bucket, timeout)
        self._cursors = OpenCursors()
        self._calls = Calls(timeout)
        self._place = Place(directory, bucket.url)
        try:
            self._db: Any = self._opened(bucket, block_cache)
        except BaseException:
            self._place.release()
            raise

    def _opened(self, bucket: Bucket, block_cache: int) -> Any:
        record = self._place.record
        if record.url != bucket.url:
            raise CorruptStoreError(self._errors.lost(f"they are in {record.url}"))
        path = bucket.path_of(record.store)
        with self._errors:
            store = bucket.object_store()
            if record.made and self._calls.ask(AdminBuilder(path, store).build().read_manifest(None)) is None:
                raise CorruptStoreError(self._errors.lost(f"there is nothing below {path} in the bucket"))
            builder = DbBuilder(path, store)
            builder.with_db_cache(_cache(block_cache, os.getpid()), UUID(record.store).int & (2**63 - 1))
            db = self._calls.change(builder.build())
            try:
                number = db.status().durable_seq
                if number < record.flushed:
                    found = f"its last change is number {number}, and {record.flushed} was flushed"
                    raise CorruptStoreError(self._errors.lost(found))
                self._place.note_flush(number)
            except BaseException:
                self._calls.change(db.shutdown())
                raise
        return db

    def get(self, key: bytes) -> bytes | None:
        get = self._db.get
        with self._errors:
            value: bytes | None = self._calls.ask(get(key))
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        with self._errors:
            return self._calls.ask_all([get(key) for key in keys])

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        scan = self._db.scan_with_options
        if stop is not None and (start or b"") >= stop:
            return nothing()
        with self._errors:
            pages = _Pages(self._calls, self._calls.ask(scan(_range(start, stop), _options(reverse))))
        return self._cursors.walk(Cursor(pages, None, reverse, self._errors.translated))

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        scan = self._db.scan_with_options
        if start >= stop:
            return None
        with self._errors:
            found = self._calls.ask(self._calls.ask(scan(_range(start, stop), _options(reverse=True))).next())
        return None if found is None else (found.key, found.value)

    def write(self, changes: Changes) -> None:
        write = self._db.write
        if not changes:
            return
        batch = WriteBatch()
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._errors:
            self._calls.change(write(batch))

    def flush(self) -> None:
        db = self._db
        flush = db.flush
        with self._errors:
            self._calls.change(flush())
            self._place.note_flush(db.status().durable_seq)

    def close(self) -> None:
        db = self._db
        if isinstance(db, ClosedEngine):
            return
        self._db = ClosedEngine(self._errors.where)
        self._cursors.end(f"{self._errors.where} was closed while this scan was open")
        try:
            with self._errors:
                self._shut_down(db)
        finally:
            self._place.release()

    def _shut_down(self, db: Any) -> None:
        """Shut the engine down, if it has not done so by itself, as it may when another one has its store."""
        try:
            self._calls.change(db.shutdown())
        except Error.Closed as error:
            if error.reason is not CloseReason.CLEAN:
                raise


class _Pages:
    """The entries of a scan, page by page. Once a page could not be read, there is no next entry, only the error."""

    def __init__(self, calls: Calls, scan: Any) -> None:
        self._calls = calls
        self._scan = scan
        self._count = _FIRST_PAGE
        self._page: Iterator[Any] = iter(())
        self._over = False
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        if self._error is not None:
            raise self._error
        found = next(self._page, None)
        if found is None:
            if self._over:
                raise StopIteration
            self._turn()
            found = next(self._page)
        return found.key, found.value

    def _turn(self) -> None:
        try:
            page = self._calls.ask(self._scan.next_batch(self._count))
        except Exception as error:
            self._error = error
            raise
        self._over = len(page) < self._count
        self._count = min(self._count * 4, _LARGEST_PAGE)
        self._page = iter(page)


def _range(start: bytes | None, stop: bytes | None) -> KeyRange:
    return KeyRange(start=start or None, start_inclusive=True, end=stop, end_inclusive=False)


def _options(reverse: bool) -> ScanOptions:
    return ScanOptions(
        durability_filter=DurabilityLevel.MEMORY,
        dirty=False,
        read_ahead_bytes=_READ_AHEAD,
        cache_blocks=True,
        max_fetch_tasks=_FETCHES,
        order=IterationOrder.DESCENDING if reverse else IterationOrder.ASCENDING,
    )


@lru_cache(maxsize=1)
def _cache(size: int, process: int) -> Any:
    """Return the cache of all stores of a process, which outlives them; a fork does not use its parent's."""
    return DbCache.new_moka_cache(MokaCacheOptions(max_capacity=size, time_to_live=None, time_to_idle=None))

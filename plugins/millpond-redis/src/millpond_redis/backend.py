"""The backend: the contract's methods as calls of scripts.

Rule of this module: all that it asks of the server goes through ``Store``. Scans are read page by page, and before a
write to their end: nobody else can write, so each shows the content as it was when it was called.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from millpond.errors import CorruptStoreError, StoreError
from millpond.stores.backend import Backend, Changes, Entries
from millpond.stores.backend.engine import ClosedEngine, Cursor, Entry, OpenCursors, nothing
from millpond_redis.address import Address
from millpond_redis.scripts import DELETE_RANGE, GET, GET_MANY, PAGE, SIZES, WRITE
from millpond_redis.store import Store

_FIRST_PAGE: Final = 16
_LARGEST_PAGE: Final = 1024
_CALL_CHANGES: Final = 10_000
_CALL_BYTES: Final = 8 * 2**20
"""The most bytes of one call; a larger write is a transaction of several."""


class RedisBackend(Backend):
    """The store of one directory. Use ``RedisSupplier`` to describe it."""

    def __init__(self, directory: Path, address: Address, timeout: float) -> None:
        self._cursors = OpenCursors()
        self._store: Any = Store(directory, address, timeout)
        self._where = self._store.errors.where
        self._translated = self._store.errors.translated

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._store.read(GET, key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        read = self._store.read
        return list(read(GET_MANY, *keys)) if keys else []

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        read = self._store.read
        if stop is not None and (start or b"") >= stop:
            return nothing()
        pages = _Pages(read, start, stop, reverse, self._where)
        return self._cursors.walk(Cursor(pages, None, reverse, self._translated))

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        read = self._store.read
        return next(_Pages(read, start, stop, True, self._where, first=1), None) if start < stop else None

    def write(self, changes: Changes) -> None:
        write = self._store.write
        self._cursors.detach()
        if changes:
            write([(WRITE, arguments) for arguments in _calls(changes)])

    def delete_range(self, start: bytes, stop: bytes) -> None:
        write = self._store.write
        self._cursors.detach()
        if start < stop:
            write([(DELETE_RANGE, (b"[" + start, b"(" + stop))])

    def entry_count(self) -> int:
        count: int = self._store.read(SIZES)[0]
        return count

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        store = self._store
        if isinstance(store, ClosedEngine):
            return
        self._store = ClosedEngine(self._where)
        self._cursors.end(f"{self._where} was closed while this scan was open")
        with suppress(StoreError):  # the next opening finds out what the server has
            store.close()


class _Pages:
    """The entries of a range, page by page. Once a page could not be read, there is no next entry, only the error."""

    def __init__(
        self, read: Any, start: bytes | None, stop: bytes | None, reverse: bool, where: str, first: int = _FIRST_PAGE
    ) -> None:
        self._read = read
        self._low = b"-" if start is None else b"[" + start
        self._high = b"+" if stop is None else b"(" + stop
        self._direction = "reverse" if reverse else "forward"
        self._where = where
        self._count = first
        self._page: Iterator[Entry] = iter(())
        self._over = False
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        if self._error is not None:
            raise self._error
        entry = next(self._page, None)
        while entry is None:
            if self._over:
                raise StopIteration
            try:
                self._turn()
            except Exception as error:
                self._error = error
                raise
            entry = next(self._page, None)
        return entry

    def _turn(self) -> None:
        keys, values = self._read(PAGE, self._low, self._high, self._count, self._direction)
        if None in values:
            raise CorruptStoreError(f"{self._where} has a key without a value; delete the directory and restore it")
        self._over = len(keys) < self._count
        self._count = min(self._count * 4, _LARGEST_PAGE)
        self._page = zip(keys, values, strict=True)
        if keys and self._direction == "reverse":
            self._high = b"(" + keys[-1]
        elif keys:
            self._low = b"(" + keys[-1]


def _calls(changes: Changes) -> Iterator[list[object]]:
    """Yield the arguments of the calls that carry ``changes``."""
    puts: list[bytes] = []
    deletes: list[bytes] = []
    size = 0
    for key, value in changes.items():
        if value is None:
            deletes.append(key)
        else:
            puts += (key, value)
            size += len(value)
        size += len(key)
        if len(puts) // 2 + len(deletes) >= _CALL_CHANGES or size >= _CALL_BYTES:
            yield [len(puts) // 2, *puts, *deletes]
            puts, deletes, size = [], [], 0
    if puts or deletes:
        yield [len(puts) // 2, *puts, *deletes]

"""A directory, which stands for a store: its name on the server, the server, and the writes that were flushed.

Rule of this module: it calls no server. ``lock`` is locked as long as the store is open, by the system, which lets go
of it when the process dies; ``store.json`` is replaced as a whole.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self
from uuid import UUID, uuid4

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreFullError
from millpond.stores.backend.engine import FULL, make_directory
from millpond.stores.backend.own_files import no_link
from millpond_redis.address import Address


@dataclass(frozen=True)
class Record:
    """The record of its store that a directory keeps.

    Attributes:
        store: the store's name on the server, another one for each new directory.
        server: the server's host and port, or its socket.
        database: the number of the server's database.
        flushed: the number of writes that the server had at the last flush.
    """

    store: str
    server: str
    database: int
    flushed: int = 0

    @classmethod
    def new(cls, address: Address) -> Self:
        """Return the record of a new store at ``address``."""
        return cls(str(uuid4()), address.server, address.database)

    def is_at(self, address: Address) -> bool:
        """Return whether the store is in that database, of a server of that name."""
        return (self.server, self.database) == (address.server, address.database)


class Place:
    """The directory of a store that this handle has open; made if it is not there.

    Args:
        directory: its path.
        address: the address of its store, if it is new.

    Attributes:
        record: the record of the store.

    Raises:
        BackendInUseError: another handle has it open.
        CorruptStoreError: ``store.json`` is damaged.
        BackendError: a file of it cannot be read or written.
    """

    def __init__(self, directory: Path, address: Address) -> None:
        self._directory = directory
        make_directory(directory)
        lock = directory / "lock"
        with _used(lock):
            self._lock = no_link(str(lock), os.O_RDWR | os.O_CREAT)
        try:
            self._hold()
            self.record = record_of(directory) or Record.new(address)
            self._note(self.record)
        except BaseException:
            self.release()
            raise

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackendInUseError(f"the store of {self._directory} is open already; close it there first") from error

    def note_flush(self, writes: int) -> None:
        """Note on the disk that the server has had so many writes."""
        self._note(replace(self.record, flushed=writes))

    def note_server(self, server: str) -> None:
        """Note on the disk that the server has another name."""
        self._note(replace(self.record, server=server))

    def _note(self, record: Record) -> None:
        draft = self._directory / "store.json.new"
        with _used(draft):
            with open(draft, "w", opener=no_link) as file:
                json.dump(asdict(record), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(_file(self._directory))
        self.record = record

    def release(self) -> None:
        """Release it for another handle."""
        os.close(self._lock)


def record_of(directory: Path) -> Record | None:
    """Return the record in a directory; None if it has none.

    Raises:
        CorruptStoreError: ``store.json`` is damaged.
        BackendError: the record cannot be read.
    """
    file = _file(directory)
    with _used(file):
        try:
            text = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        content = json.loads(text)
        store, server = str(UUID(content["store"])), str(content["server"])
        return Record(store, server, _count(content["database"]), _count(content["flushed"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptStoreError(f"{file} is damaged ({error})") from error


def _count(value: object) -> int:
    """Return a count of ``store.json``, of 63 bits.

    Raises:
        TypeError: it is no count.
    """
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"{value!r} is no count")
    return value


def _file(directory: Path) -> Path:
    return directory / "store.json"


@contextmanager
def _used(file: Path) -> Iterator[None]:
    """Turn the system's refusals of ``file`` within into Millpond's errors."""
    try:
        yield
    except OSError as error:
        kind = StoreFullError if error.errno in FULL else BackendError
        what_to_do = "see that it is a file that may be read and written, and that there is room for it"
        raise kind(f"{file} cannot be used ({error.strerror}); {what_to_do}") from error

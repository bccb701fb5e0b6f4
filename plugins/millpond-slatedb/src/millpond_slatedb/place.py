"""A directory, which stands for a store: its name in the bucket, and the change that was flushed there last.

Rule of this module: it asks no object store. ``lock`` is locked as long as the store is open, by the system, which lets
go of it when the process dies; ``store.json`` is replaced as a whole.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreFullError
from millpond.stores.backend.engine import FULL, make_directory
from millpond.stores.backend.own_files import no_link


@dataclass(frozen=True)
class Record:
    """The record of its store that a directory keeps.

    Attributes:
        store: the store's name below the URL, another one for each new directory.
        url: the bucket and the prefix.
        made: whether the store has been opened once, so that it has to be there.
        flushed: the number of SlateDB's last change that was flushed.
    """

    store: str
    url: str
    made: bool = False
    flushed: int = 0


class Place:
    """The directory of a store that this handle has open; made if it is not there.

    Args:
        directory: its path.
        url: the URL of its store, if it is new.

    Attributes:
        record: the record of the store.

    Raises:
        BackendInUseError: another handle has it open.
        CorruptStoreError: ``store.json`` is damaged.
        BackendError: a file of it cannot be read or written.
    """

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        make_directory(directory)
        lock = directory / "lock"
        with _used(lock):
            self._lock = no_link(str(lock), os.O_RDWR | os.O_CREAT)
        try:
            self._hold()
            found = record_of(directory)
            self.record = found or Record(str(uuid4()), url)
            if found is None:
                self._note(self.record)
        except BaseException:
            self.release()
            raise

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackendInUseError(f"the store of {self._directory} is open already; close it there first") from error

    def note_flush(self, number: int) -> None:
        """Note on the disk that the store is in the bucket, and the number of its last flushed change."""
        if (True, number) != (self.record.made, self.record.flushed):
            self._note(replace(self.record, made=True, flushed=number))

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
        store, flushed = str(UUID(content["store"])), content["flushed"]
        if type(content["url"]) is not str or type(content["made"]) is not bool or type(flushed) is not int:
            raise TypeError("a part of it is of another type")
        return Record(store, content["url"], content["made"], flushed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptStoreError(f"{file} is damaged ({error})") from error


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

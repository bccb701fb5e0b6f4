"""A directory, which is what others know of a store: its name on the server, and up to where it was flushed.

Rule of this module: it knows no server. ``lock`` is locked as long as the store is open, by the system, which lets go
of it when the process dies; ``store.json`` is replaced as a whole.
"""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreFullError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Place:
    """The directory of a store that this handle has open; made if it is not there.

    Attributes:
        store: the name of the store on the server, another one for each new directory.
        flushed: how many writes the server had at the last flush.

    Raises:
        BackendInUseError: another handle has it open.
        CorruptStoreError: ``store.json`` is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._hold()
            self.store, self.flushed = _read(directory) if _file(directory).exists() else (str(uuid4()), 0)
            self.note(self.flushed)
        except BaseException:
            self.release()
            raise

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackendInUseError(f"the store of {self._directory} is open already; close it there first") from error

    def note(self, writes: int) -> None:
        """Remember on the disk that the server has had so many writes."""
        draft = self._directory / "store.json.new"
        try:
            with draft.open("w") as file:
                json.dump({"store": self.store, "flushed": writes}, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(_file(self._directory))
        except OSError as error:
            kind = StoreFullError if error.errno in _FULL else BackendError
            raise kind(f"{_file(self._directory)} cannot be written: {error}") from error
        self.flushed = writes

    def release(self) -> None:
        """Let another handle have it."""
        os.close(self._lock)


def store_of(directory: Path) -> str | None:
    """The name of a directory's store on the server, None if it is no store or damaged."""
    try:
        return _read(directory)[0]
    except (OSError, CorruptStoreError):
        return None


def _file(directory: Path) -> Path:
    return directory / "store.json"


def _read(directory: Path) -> tuple[str, int]:
    try:
        content = json.loads(_file(directory).read_bytes())
        return str(UUID(content["store"])), int(content["flushed"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptStoreError(
            f"{_file(directory)} is damaged ({error}); delete the directory and restore the store"
        ) from error

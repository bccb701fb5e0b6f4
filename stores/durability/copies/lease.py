"""The lease on a task's local directory: one holder at a time, among all processes of the machine.

Rule of this module: only the holder of the lease may write below the directory. The lease is a lock of the operating
system on a file, so that it ends with its holder, no matter how that ends. Only its holder deletes the file, so a
process that got the lock of a deleted file asks for the lock of the next one.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from millpond.errors import BackendInUseError, LocalDirectoryError, StoreClosedError
from millpond.stores.backend.own_files import NOT_OURS, make_private, no_link, refuse_links

LEASE_FILE: Final = "lease"
LEASE_TIMEOUT: Final = 60.0
"""The seconds to wait for another process to release a task."""

_PROCESS: Final = re.compile(r"[1-9]\d{0,8}", re.ASCII)
"""The number of a process; 0 and numbers below would mean whole groups of processes."""

_NOTE_SIZE: Final = 32
_LEVELS: Final = 2
"""An application's directory, and the task's in it; directories above these may be links."""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class Lease:
    """The right to use a ``directory`` ``<application_id>/<task_id>``, which the first ``acquire`` creates."""

    def __init__(self, directory: Path, timeout: float) -> None:
        self._path = directory / LEASE_FILE
        self._timeout = timeout
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lease, waiting until its holder lets go. Taking it twice is no error.

        Raises:
            BackendInUseError: another process, or another object in this one, held it until the timeout.
            StoreError: the directory cannot be used at all.
        """
        if self.held:
            return
        deadline = time.monotonic() + self._timeout
        while True:
            descriptor = self._opened()
            try:
                self._wait(descriptor, deadline)
                if _is_at(descriptor, self._path):
                    _note_holder(descriptor)
                    self._descriptor = descriptor
                    return
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _opened(self) -> int:
        for last in (False, True):
            try:
                refuse_links(self._path.parent, _LEVELS)
                make_private(self._path.parent)
                return no_link(str(self._path), os.O_RDWR | os.O_CREAT)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not last:
                    continue  # somebody has deleted the directory in between, because it was empty
                if error.errno == errno.ELOOP:
                    raise LocalDirectoryError(f"{error.filename} {NOT_OURS}") from error
                raise LocalDirectoryError(
                    f"the local directory {self._path.parent} cannot be used: {error}; make it a directory that this "
                    "process may write"
                ) from error
        raise AssertionError("the second attempt ends in one way or the other")

    def _wait(self, descriptor: int, deadline: float) -> None:
        pause = _FIRST_PAUSE
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                holder = _holder(descriptor)
                raise BackendInUseError(
                    f"the local directory {self._path.parent} is in use by process {holder} and was not released "
                    f"within {self._timeout:g} s; end that process, or give this job another application id or local "
                    "directory"
                )
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def clock_ms(self) -> int:
        """Return the time by the clock that dates the files of the directory, in milliseconds since 1970.

        Raises:
            StoreClosedError: the lease is not held.
            OSError: the file cannot be dated.
        """
        if self._descriptor is None:
            raise StoreClosedError(f"the lease on {self._path.parent} is not held; acquire it before clock_ms()")
        os.utime(self._descriptor)
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def retire(self) -> None:
        """Release the lease, and delete the file, with its directory if that is empty then."""
        if self.held:
            self._path.unlink(missing_ok=True)
            with suppress(OSError):
                self._path.parent.rmdir()
            self.release()

    def release(self) -> None:
        """Release the lease. Doing so twice is no error."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def lease_holder(directory: Path) -> str | None:
    """Return the process that has the lease on ``directory`` now; None if none has. Nothing is changed.

    Raises:
        OSError: the file cannot be read.
    """
    with _read_only(directory) as descriptor:
        return None if descriptor is None or _try_lock(descriptor) else _holder(descriptor)


class LeaseMark(NamedTuple):
    """The trace that the last holder of a lease has left; the next holder leaves another.

    Attributes:
        holder: the process.
        file: the number of the lease's file.
        taken_ns: the time at which it took the lease, by the file's time of change.
    """

    holder: str
    file: int
    taken_ns: int

    @property
    def ended(self) -> bool:
        """True if no process that this one can see has the holder's number any more."""
        if _PROCESS.fullmatch(self.holder) is None:
            return False
        try:
            os.kill(int(self.holder), 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


def lease_mark(directory: Path) -> LeaseMark | None:
    """Return the mark on the lease on ``directory``; None if nobody ever had it. Nothing is changed, and nobody waits.

    Raises:
        OSError: the file cannot be read.
    """
    with _read_only(directory) as descriptor:
        if descriptor is None:
            return None
        status = os.fstat(descriptor)
        return LeaseMark(_holder(descriptor), status.st_ino, status.st_mtime_ns)


@contextmanager
def _read_only(directory: Path) -> Iterator[int | None]:
    """The file of the lease on ``directory``; None if there is none."""
    try:
        descriptor = no_link(str(directory / LEASE_FILE), os.O_RDONLY)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Return the process that noted itself as the holder."""
    return os.pread(descriptor, _NOTE_SIZE, 0).decode(errors="replace").strip() or "unknown"


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that ``path`` names."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _note_holder(descriptor: int) -> None:
    """Write this process's id for the error messages of others; a full disk leaves them without it.

    All notes have one size, so each covers the one before: some file systems would write a file that was truncated
    first to the disk as soon as it is closed, which takes milliseconds.
    """
    with suppress(OSError):
        os.pwrite(descriptor, f"{os.getpid():<{_NOTE_SIZE - 1}}\n".encode(), 0)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

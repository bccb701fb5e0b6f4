"""The lease on a task's local directory: one holder at a time, among all processes of the machine.

Rule of this module: whoever holds the lease may write below the directory, and nobody else may. The lease is a lock of
the operating system on a file, so that it ends with its holder, no matter how that ends. The file is never deleted.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from millpond.errors import BackendInUseError, StoreError

LEASE_FILE: Final = "lease"
LEASE_TIMEOUT: Final = 60.0
"""Seconds to wait for another process to release a task."""

_NOTE_SIZE: Final = 32
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class Lease:
    """The right to use ``directory``, which the first ``acquire`` creates."""

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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"the local directory {self._path.parent} cannot be used: {error}; check its permissions"
            ) from error
        try:
            self._wait(descriptor)
            _note_holder(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _wait(self, descriptor: int) -> None:
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, _NOTE_SIZE, 0).decode(errors="replace").strip() or "unknown"
                raise BackendInUseError(
                    f"the local directory {self._path.parent} is in use by process {holder} and was not released "
                    f"within {self._timeout:g} s; end that process, or give this job another application id or local "
                    "directory"
                )
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def release(self) -> None:
        """Let go. Doing so twice is no error."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _note_holder(descriptor: int) -> None:
    """Leave this process's id for the error messages of others; on a full disk they have to do without.

    All notes have one size, so each covers the one before: a file that was cut off first would be written to the disk
    by some file systems as soon as it is closed, which takes milliseconds.
    """
    with suppress(OSError):
        os.pwrite(descriptor, f"{os.getpid():<{_NOTE_SIZE - 1}}\n".encode(), 0)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

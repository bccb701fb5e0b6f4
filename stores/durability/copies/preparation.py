"""A store's directory in a new format, built beside the one that is in use: KIP-258's upgrade in place.

Rule of this module: it knows the new directory, not the old one. It copies in bounded steps, at least one in each
micro-batch, so that it ends, and more of them for as long as the pace allows. The directory is called
``.<store>-v<n>.preparing`` until it has all rows, and ``.<store>-v<n>.prepared`` from then on. It stands at a commit,
as a local copy does, and beyond that has one row of its own, above all rows of stores::

    0x03 "next" -> the first row that has not been copied

What is written meanwhile goes here, too, wherever it lies, with what the old format cannot hold. So a row that is
there already is newer than what a copy could bring, and stays. The row is gone once all others are there.

A directory is for the format that the store's spec asks for. Those for any other format are left over from an upgrade
that was given up, and are deleted by whoever opens the task.
"""

from pathlib import Path
from typing import Final

from millpond.stores.backend import Backend, Changes
from millpond.stores.directory import delete_local_copy
from millpond.stores.durability.copies.pace import Pace
from millpond.stores.durability.copies.seal import Seal, seal_path
from millpond.stores.durability.policy import DurabilityPolicy
from millpond.stores.formats import FormatVersion
from millpond.stores.keys import BEYOND, COMMIT_ROW
from millpond.stores.migration import open_version
from millpond.stores.place import StorePlace

NEXT_ROW: Final = BEYOND + b"next"

_ROWS_PER_STEP: Final = 500
_BYTES_PER_STEP: Final = 1 << 20


class Preparation:
    """The directory in the new format of one store.

    Args:
        place: the store, and where its directory will be.
        policy: how many rows a micro-batch copies at most, and what may be compared with its seal in full.
    """

    def __init__(self, place: StorePlace, policy: DurabilityPolicy) -> None:
        self._place = place
        self._rows = policy.prepared_rows
        self._preparing, self._prepared = _hidden(place.directory)
        checked = place.supplier.checksums
        self._seals = {
            path: Seal(path, checked_by_engine=checked, limit=policy.sealed_bytes)
            for path in (self._preparing, self._prepared)
        }
        self._backend: Backend | None = None

    @property
    def begun(self) -> bool:
        """Whether there is something of it on the disk."""
        return self._preparing.is_dir() or self.prepared

    @property
    def prepared(self) -> bool:
        """Whether all rows are there, and the directory has been closed since."""
        return self._prepared.is_dir()

    @property
    def complete(self) -> bool:
        """Whether it is open and has all rows."""
        if self._backend is None or self._backend.get(COMMIT_ROW) is None:
            return False
        return self._backend.get(NEXT_ROW) is None

    def delete_others(self) -> None:
        """Delete what was prepared of the store in other formats than the one that is asked for.

        Raises:
            StoreError: it cannot be deleted.
        """
        for version in FormatVersion:
            directory = self._place.directory.with_name(version.directory_name(self._place.spec.name))
            for other in _hidden(directory) if directory != self._place.directory else ():
                delete_local_copy(self._place.supplier, other)
                seal_path(other).unlink(missing_ok=True)

    def take_seal_off(self) -> str | None:
        """Why the directory must not be opened; None if it may be."""
        return self._seals[self._directory].take_off() if self.begun else None

    def put_seal_back(self) -> None:
        """Seal what nobody has opened since ``take_seal_off``."""
        if self._backend is None and self.begun:
            self._seals[self._directory].closed()

    def take_over(self) -> None:
        """Let the prepared directory be the store's; whoever opens it then removes the old one."""
        self._prepared.rename(self._place.directory)

    def open(self) -> Backend:
        """The rows that are there already."""
        if self._backend is None:
            spec, directory = self._place.spec, self._directory
            self._backend = open_version(self._place.supplier, directory, spec.format_version, spec.name)
            self._seals[directory].opened()
        return self._backend

    def begin(self, source: Backend) -> None:
        """Begin to copy the rows of ``source``, which is at a commit, unless that has begun.

        From then on both are brought from commit to commit, each with what it can hold.
        """
        if self.open().get(COMMIT_ROW) is None:
            self.open().write({NEXT_ROW: b"", COMMIT_ROW: source.get(COMMIT_ROW)})

    def write(self, changes: Changes) -> None:
        """Write what has been written to the directory in use, and its position."""
        self.open().write(changes)

    def copy_further(self, source: Backend, pace: Pace) -> None:
        """Copy more rows of ``source``, which is at the same commit, if any are left: as many as ``pace`` allows."""
        left = self._rows
        while left and not self.complete:
            with pace.copying():
                left -= self._step(source, min(left, _ROWS_PER_STEP))
            if not pace.allows_more:
                return

    def _step(self, source: Backend, most: int) -> int:
        """Copy the next rows of ``source``, at most so many; returns how many that were."""
        backend = self.open()
        start = backend.get(NEXT_ROW) or None
        copied: dict[bytes, bytes | None] = {}
        size = 0
        following: bytes | None = None
        for row, value in source.scan(start):
            if len(copied) == most or size > _BYTES_PER_STEP:
                following = row
                break
            if row != COMMIT_ROW:
                copied[row] = value
                size += len(row) + len(value)
        count = len(copied)
        # A scan, because most rows are not there yet: each would cost a search of its own.
        for row, _ in backend.scan(start, following):
            copied.pop(row, None)
        backend.write({**copied, NEXT_ROW: following})
        return count

    def close(self) -> None:
        """Let go of the directory. Doing so twice is no error."""
        if self._backend is None:
            return
        directory, complete = self._directory, self.complete
        backend, self._backend = self._backend, None
        backend.close()
        if complete and directory == self._preparing:
            seal_path(directory).unlink(missing_ok=True)
            directory = directory.rename(self._prepared)
        self._seals[directory].closed()

    def discard(self) -> None:
        """Throw away what is there."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
        for directory in self._seals:
            delete_local_copy(self._place.supplier, directory)

    @property
    def _directory(self) -> Path:
        return self._prepared if self.prepared else self._preparing


def _hidden(directory: Path) -> tuple[Path, Path]:
    """What ``directory`` is called while it is being prepared, and once it has all rows."""
    return directory.with_name(f".{directory.name}.preparing"), directory.with_name(f".{directory.name}.prepared")

"""A store's directory in a new format, built beside the one that is in use: KIP-258's upgrade in place.

Rule of this module: it knows the new directory, not the old one, and when to work there; the work itself is in
``millpond.stores.durability.copies.sweep``. The directory is called ``.<store>-v<n>.preparing`` until it has all rows,
and ``.<store>-v<n>.prepared`` from then on. Commits meanwhile wait in ``.<store>-v<n>.backlog``. So most
micro-batches only add to that, and the directory is opened by those that have time for it, or if too many commits wait.

A failure here never fails a micro-batch. A directory that is away, or has no room, is tried again later. One that
is damaged is deleted, and its backlog stays, which tells the next process that opens the task that something is
missing.

A directory is for the format that the store's spec asks for. Those for any other format are left over from an upgrade
that was given up, and are deleted when the task is opened.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    CorruptStoreError,
    StoreError,
    StoreFullError,
)
from millpond.stores.backend.contract import Backend, Changes
from millpond.stores.durability.copies.catchup_log import CatchupLog, Commit
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.position import Position
from millpond.stores.durability.copies.sweep import NEXT_ROW, Sweep
from millpond.stores.durability.copies.throttle import MigrationThrottle
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.migration import open_version

_log = logging.getLogger(__name__)

_SEALED_BYTES: Final = 16 << 20
"""Up to this size a directory is compared with its seal in full: it is sealed far more often than a local copy."""


class Preparation:
    """The directory in the new format of one store.

    Args:
        place: the store, and the place of its directory.
        policy: the most rows that a micro-batch copies, the most commits that wait, and the limit of full comparison
            with the seal.
        pace: the time that may be spent.

    Attributes:
        proven: whether the directory that was taken over is known to hold what its engine wrote.
    """

    def __init__(self, place: StoreLocation, policy: DurabilityPolicy, pace: MigrationThrottle) -> None:
        self._place = place
        self._policy = policy
        self._pace = pace
        self._preparing, self._prepared, backlog = _hidden(place.directory)
        checked, limit = place.supplier.checksums, min(policy.sealed_bytes, _SEALED_BYTES)
        self._seals = {
            path: CleanShutdownMarker(path, checked_by_engine=checked, limit=limit, stamped=True)
            for path in (self._preparing, self._prepared)
        }
        self._backlog = CatchupLog(backlog)
        self._backend: Backend | None = None
        self._sweep: Sweep | None = None
        self._looked_at = self._follows = self._rests = self._complete = False
        self.proven = True

    @property
    def begun(self) -> bool:
        """True if any part of it is on the disk."""
        return self._preparing.is_dir() or self.prepared or self._backlog.exists

    @property
    def prepared(self) -> bool:
        """True if all rows are there, and the directory has been closed since."""
        return self._prepared.is_dir()

    @property
    def complete(self) -> bool:
        """True if all rows are there, but for commits that wait."""
        return self._complete or self.prepared

    def delete_others(self) -> None:
        """Delete the preparations of the store in other formats than the one that is asked for.

        Raises:
            StoreError: it cannot be deleted.
        """
        for version in FormatVersion:
            directory = self._place.directory.with_name(version.directory_name(self._place.spec.name))
            if directory == self._place.directory:
                continue
            *others, backlog = _hidden(directory)
            for other in others:
                delete_local_copy(self._place.supplier, other)
                seal_path(other).unlink(missing_ok=True)
            CatchupLog(backlog).delete()

    def take_over(self) -> None:
        """Let the prepared directory be the store's, with all that waits; the next opening removes the old one.

        Raises:
            CorruptStoreError: it has failed, or the commits that wait do not lead on from where it stands.
            BackendInUseError, BackendUnavailableError, StoreFullError: it cannot be used now.
        """
        self._backlog.look()
        sweep = self._opened_sweep()
        sweep.check()
        self._write_all(sweep)
        self.proven = self._seals[self._prepared].proven
        self.close()
        self._prepared.rename(self._place.directory)
        seal_path(self._prepared).unlink(missing_ok=True)
        self._backlog.delete()

    def begin(self, source: Backend) -> None:
        """Begin to copy the rows of ``source``, which is at a commit, unless that has begun.

        From then on both are brought from commit to commit, each with as much as it can hold.

        Raises:
            CorruptStoreError: the preparation has failed.
            BackendInUseError, BackendUnavailableError, StoreFullError: it cannot begin now.
        """
        if self._looked_at:
            return
        self._backlog.look()
        if self._directory.is_dir() and self._backlog.reached is not None:
            return
        backend = self._open()
        if backend.get(COMMIT_ROW) is None:
            if self._backlog.exists:
                raise CorruptStoreError("what was prepared of its new format is gone")
            with self._pace.aside():
                backend.write({NEXT_ROW: b"", COMMIT_ROW: source.get(COMMIT_ROW)})

    def bring(self, manifest: Manifest, brought: Callable[[Backend], bool]) -> None:
        """Ensure that all which ``manifest`` includes is in the directory, or waits.

        Args:
            manifest: the version that is opened.
            brought: brings a backend there by durable files, and returns whether it could.

        Raises:
            CorruptStoreError: it cannot be done.
        """
        wanted = Commit.of(Position.of(manifest))
        with self._pace.aside():
            self._backlog.look()
            cut = self._backlog.cut(manifest)
        self._rests, self._follows = False, self._backlog.end == wanted
        if self._looked_at and self._follows and not cut:
            return
        with self._putting_off():
            sweep = self._opened_sweep()
            sweep.check(manifest)
            if not self._follows:
                self._replay(sweep, wanted, brought)
            self._looked_at = self._follows = True

    def _replay(self, sweep: Sweep, wanted: Commit | None, brought: Callable[[Backend], bool]) -> None:
        """Bring the directory itself to a commit, by the commits that wait, and from there on by durable files."""
        self._write_all(sweep)
        self._sweep = None
        with self._pace.aside():
            if wanted is None or not brought(self._open()):
                raise CorruptStoreError("what is prepared of its new format is at no commit of the manifest")
            self._backlog.begin(wanted)

    def append(self, manifest: Manifest, changes: Changes) -> None:
        """Let the changes of the commit of ``manifest`` wait."""
        commit = Commit.of(Position.of(manifest))
        if self._follows and commit is not None:
            with self._pace.aside(), self._forgiving():
                self._backlog.append(commit, changes)
                self._backlog.read_ahead()

    def go_on(self, source: Backend) -> None:
        """Copy rows, and write commits that wait: as much as the pace allows, or as has to be done.

        Args:
            source: the rows of the version that was opened.
        """
        if self._idle:
            return
        with self._forgiving():
            self._opened_sweep()
        hurried = self._write_in_time()
        self._take_turns(source, hurried)
        if self._sweep is not None:
            self._complete = self._complete or self._sweep.copied_all

    @property
    def _idle(self) -> bool:
        """True if nothing is to be done in this micro-batch."""
        if not self._follows or self._rests or (self.complete and not self._due):
            return True
        return self._backend is None and self._pace.in_debt and not self._overdue

    @property
    def _due(self) -> bool:
        """True if so many commits wait that they are to be written, all of them together."""
        return len(self._backlog.waiting) > self._policy.prepared_commits // 2

    @property
    def _overdue(self) -> bool:
        return len(self._backlog.waiting) > self._policy.prepared_commits

    def _write_in_time(self) -> bool:
        """Write as much as has to be done so that no more commits wait than may; return whether anything was written.

        Commits that are due are written bit by bit, by all the micro-batches that are left until then.
        """
        if not self._due:
            return False
        while self._overdue and self._sweep is not None:
            self._write_further(self._sweep)
        rows = 0
        with self._pace.step(), self._forgiving():
            rows = self._rows_in_time()
        while rows > 0 and self._sweep is not None:
            rows -= self._write_further(self._sweep)
        return True

    def _rows_in_time(self) -> int:
        """Return the number of rows of due commits that have to be written now."""
        if not self._due or self._sweep is None:
            return 0
        batches = self._policy.prepared_commits - len(self._backlog.waiting) + 1
        return -(-self._sweep.left // batches)

    def _take_turns(self, source: Backend, hurried: bool) -> None:
        """Write and copy in turn, so that neither has to wait for the other's end."""
        left, copied = self._policy.prepared_rows, False
        while (sweep := self._sweep) is not None:
            allowed = self._pace.allows_more
            writes = allowed and self._due
            copies = allowed or (hurried and self._pace.allows_copying)
            if copies and left > 0 and not sweep.copied_all and not (copied and writes):
                left -= self._copy_further(sweep, source, left)
                copied = True
            elif writes:
                self._write_further(sweep)
                copied = False
            else:
                return

    def _copy_further(self, sweep: Sweep, source: Backend, most: int) -> int:
        with self._pace.step(copying=True):
            piece = sweep.piece(source, most)
            with self._forgiving():
                sweep.copy(piece)
        return len(piece.rows)

    def _write_further(self, sweep: Sweep) -> int:
        with self._pace.step(), self._forgiving():
            return sweep.write_further()
        return 0

    def _write_all(self, sweep: Sweep) -> None:
        with self._pace.aside():
            while self._backlog.waiting:
                sweep.write_further()

    def _opened_sweep(self) -> Sweep:
        backend = self._open()
        if self._sweep is None:
            with self._pace.aside():
                self._sweep = Sweep(backend, self._backlog)
        return self._sweep

    def _open(self) -> Backend:
        if self._backend is None:
            with self._pace.opening():
                self._backend = self._opened()
        return self._backend

    def _opened(self) -> Backend:
        spec, directory = self._place.spec, self._directory
        seal = self._seals[directory]
        reason = seal.take_off()
        if reason is not None:
            raise CorruptStoreError(f"what is prepared of its new format in {directory} failed: {reason}")
        try:
            backend = open_version(self._place.supplier, directory, spec.format_version, spec.name)
        except (BackendInUseError, BackendUnavailableError, StoreFullError):
            seal.closed()
            raise
        seal.opened()
        return backend

    @contextmanager
    def _putting_off(self) -> Iterator[None]:
        """Do nothing more in this micro-batch if the directory cannot be used now."""
        try:
            yield
        except (BackendInUseError, BackendUnavailableError, StoreFullError) as error:
            self._put_off(error)

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Let no error from within reach the micro-batch: put the work off, or begin it anew after damage."""
        try:
            with self._putting_off():
                yield
        except CorruptStoreError as error:
            self._fail(error)
        except StoreError as error:
            self._put_off(error)

    def _put_off(self, error: StoreError) -> None:
        _log.warning("preparing the new format of store %r is put off: %s", self._place.spec.name, error)
        self._rests = True
        self._looked_at = False
        self._sweep = None

    def _fail(self, error: StoreError) -> None:
        """Delete the directory. Its backlog stays, so that it is noticed."""
        _log.warning("what was prepared of store %r in its new format failed: %s", self._place.spec.name, error)
        self._follows = self._looked_at = False
        with self._putting_off():
            self._delete_directories()

    def close(self) -> None:
        """Close the directory. Doing so twice is no error."""
        if self._backend is None:
            return
        directory, complete = self._directory, self._complete
        backend, self._backend, self._sweep, self._complete = self._backend, None, None, False
        with self._pace.closing():
            try:
                backend.close()
            except BackendUnavailableError as error:
                _log.warning("what is prepared in %s closed without its engine: %s", directory, error)
            except BackendError as error:
                _log.warning("what is prepared in %s did not close: %s", directory, error)
                self._looked_at = False
                return
            if complete and directory == self._preparing:
                seal_path(directory).unlink(missing_ok=True)
                directory = directory.rename(self._prepared)
            self._seals[directory].closed()

    def discard(self) -> None:
        """Delete the directory and all that waits."""
        self._delete_directories()
        self._backlog.delete()
        self._looked_at = self._follows = False

    def _delete_directories(self) -> None:
        backend, self._backend, self._sweep, self._complete = self._backend, None, None, False
        if backend is not None:
            try:
                backend.close()
            except BackendError as error:
                _log.warning("what was prepared of store %r did not close: %s", self._place.spec.name, error)
        for directory in self._seals:
            delete_local_copy(self._place.supplier, directory)

    @property
    def _directory(self) -> Path:
        return self._prepared if self.prepared else self._preparing


def _hidden(directory: Path) -> tuple[Path, Path, Path]:
    """Return the names of ``directory`` while it is being prepared and once it has all rows, and of its backlog."""
    preparing, prepared, backlog = (
        directory.with_name(f".{directory.name}.{what}") for what in ("preparing", "prepared", "backlog")
    )
    return preparing, prepared, backlog

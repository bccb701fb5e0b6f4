"""The local copy of one store: a cache of its durable state in a backend.

Rule of this module: it decides whether a copy can be trusted. As its seal says and at the manifest's commit: use it. At
an earlier commit of the manifest, or before its snapshot where a bridge leads across: replay what is missing. One
commit beside the manifest (an attempt that failed): undo it. Anything else (on another branch, of another boot,
damaged, killed while open): throw it away and restore. The caller holds the lease on the task's directory.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    CorruptFileError,
    CorruptStoreError,
    MissingFileError,
    StoreFullError,
)
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker
from millpond.stores.durability.copies.others import delete_others
from millpond.stores.durability.copies.position import NOWHERE, Position, encode_position, position_of
from millpond.stores.durability.copies.preparation import Preparation
from millpond.stores.durability.copies.restore import entries, knows_timestamps, replay, restore, undo
from millpond.stores.durability.copies.throttle import MigrationThrottle
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.rows import Table, tables_of_changes, tables_of_entries
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.migration import older_versions

_log = logging.getLogger(__name__)


class RestoreResult(NamedTuple):
    """The work it took to bring a copy to a manifest.

    Attributes:
        restored: whether it was filled anew.
        rows: the number of rows that came from durable files.
    """

    restored: bool
    rows: int


AT_HAND: Final = RestoreResult(restored=False, rows=0)
"""It was there already."""


class LocalCopy:
    """The local copy of the store whose place is ``place``.

    Args:
        place: the store, and the place of its copy.
        policy: the limits of full comparison, and of preparation at once.
        upgrade_mode: the place where the new format is prepared while a directory in an older one stays in use; None to
            bring the older one into the new format at once.
        pace: the task's pace of preparing a new format; by default one of its own.

    Attributes:
        brought: the work of the last opening.
        restored: whether the last opening read all its content from durable files, and there were any.
    """

    def __init__(
        self,
        place: StoreLocation,
        policy: DurabilityPolicy,
        *,
        upgrade_mode: UpgradeMode | None = None,
        pace: MigrationThrottle | None = None,
    ) -> None:
        self.spec = place.spec
        self.restored = False
        self._place = place
        self._policy = policy
        self._backend: Backend | None = None
        checked = place.supplier.checksums
        directories = place.directories()
        self._seals = [
            CleanShutdownMarker(path, checked_by_engine=checked, limit=policy.sealed_bytes) for path in directories
        ]
        self._versions = [self.spec.format_version, *older_versions(self.spec.format_version)]
        self._in_use = self.spec.format_version
        self._upgrade_mode = upgrade_mode
        self._switches = False
        self._others_known = False
        self._tidy = False
        self._preparation = Preparation(place, policy, pace or MigrationThrottle(policy.prepared_share))

    def open(self, manifest: Manifest, source: FileSource, *, switches: bool = False) -> Transaction:
        """Return a transaction over the store's content at ``manifest``, whose files are read from ``source``.

        Args:
            manifest: the version.
            source: the source of its files.
            switches: whether a prepared directory may take the place of the old one.

        Raises:
            DurabilityError, FormatError: a durable file is missing, damaged, or of an unknown format.
            BackendInUseError, BackendUnavailableError, StoreFullError: the local copy cannot be used now. It stays.
            StoreError: one of its directories is a link.
        """
        self._switches = switches
        self._place.refuse_links()
        if not self._others_known:
            delete_others(self._place, self._policy, manifest)
            self._others_known = True
        self.brought, self.restored = AT_HAND, False
        try:
            backend = self._at(manifest, source)
            if self._prepares:
                self._bring_preparation(backend, manifest, source)
            return Transaction(backend)
        except (BackendInUseError, BackendUnavailableError, StoreFullError):
            raise
        except BackendError as error:
            self._discard_because(str(error))
            return Transaction(self._at(manifest, source))

    def follow(self, manifest: Manifest, source: FileSource) -> RestoreResult | None:
        """Bring an existing copy to ``manifest`` and close it, unless only a restore does that.

        A copy that is a commit ahead stays there: its micro-batch may be about to be committed.

        Returns:
            The work; None if there is no copy that can follow.

        Raises what ``open`` raises.
        """
        self._place.refuse_links()
        if not self._place.directory.is_dir():
            return None
        try:
            backend = self._opened(manifest, source)
            position = position_of(backend)
            ahead = position is not None and position.parent == manifest.commit
            rows = 0 if ahead else self._brought(backend, manifest, source, position)
            return None if rows is None else RestoreResult(restored=False, rows=rows)
        except (BackendInUseError, BackendUnavailableError, StoreFullError):
            raise
        except BackendError as error:
            self._discard_because(str(error))
            return None
        finally:
            self.close()

    def _at(self, manifest: Manifest, source: FileSource) -> Backend:
        store, version = self.spec.name, self.spec.kind.format_version
        backend = self._opened(manifest, source)
        position = position_of(backend)
        rows = self._brought(backend, manifest, source, position)
        if rows is not None:
            self.brought = RestoreResult(restored=False, rows=rows)
            return backend
        if position != NOWHERE:
            _log.info("restoring store %r: its local copy is at no commit of the manifest", self.spec.name)
            self.discard()
            backend = self._opened(manifest, source)
        self.restored = bool(manifest.files)
        try:
            self.brought = RestoreResult(restored=True, rows=restore(backend, source, manifest, store, version))
        except BaseException:
            self.discard()
            raise
        return backend

    def _brought(
        self, backend: Backend, manifest: Manifest, source: FileSource, position: Position | None
    ) -> int | None:
        """Bring a backend from its position to ``manifest``; return the number of rows, None if it needs a restore."""
        if position is not None and position.parent is not None and not manifest.includes(position.commit):
            position = self._undone(backend, manifest, source, position)
        if position is None or not manifest.includes(position.commit):
            return None
        try:
            return replay(backend, source, manifest, position.commit, self.spec.name, self.spec.kind.format_version)
        except (MissingFileError, CorruptFileError) as error:
            if manifest.after(position.commit) is not None:
                raise
            _log.info("store %r cannot follow across the last snapshot: %s", self.spec.name, error)
            return None

    def _bring_preparation(self, backend: Backend, manifest: Manifest, source: FileSource) -> None:
        """Bring the directory being prepared to ``manifest``, at which the backend in use is.

        Raises:
            BackendError: it cannot follow, and the old directory alone does not hold all that was written.
        """

        def brought(prepared: Backend) -> bool:
            return self._brought(prepared, manifest, source, position_of(prepared)) is not None

        try:
            self._preparation.bring(manifest, brought)
        except BackendError as error:
            self._prepare_anew(backend, error)
            self._preparation.bring(manifest, brought)

    def _prepare_anew(self, backend: Backend, error: BackendError) -> None:
        """Begin to prepare anew, unless what has failed had more than the backend in use can hold."""
        if self._in_use.content is not self.spec.kind.format_version:
            raise error
        _log.warning("the new format of store %r is prepared anew: %s", self.spec.name, error)
        self._preparation.discard()
        self._preparation.begin(backend)

    def _undone(self, backend: Backend, manifest: Manifest, source: FileSource, position: Position) -> Position | None:
        """Undo the last commit of the copy and return its new position; None if that cannot be done."""
        before = position.branched_from(manifest)
        if before is None or position.file is None:
            return None
        try:
            undo(backend, source, before, position.file, self.spec.name, self.spec.kind.format_version)
        except (MissingFileError, CorruptFileError) as error:
            _log.info("restoring store %r, because its last commit cannot be undone: %s", self.spec.name, error)
            return None
        return Position.of(before)

    @property
    def proven(self) -> bool:
        """True if the copy is known to hold what was written to it."""
        lossless = self._in_use.content is self.spec.kind.format_version
        return lossless and self._preparation.proven and all(seal.proven for seal in self._seals)

    @property
    def is_open(self) -> bool:
        """True if its backend is open."""
        return self._backend is not None

    @property
    def size(self) -> int | None:
        """The bytes of the files of the directory in use; None if it is open, or in memory."""
        return self._seal.size

    @property
    def memory_use(self) -> int:
        """About how many bytes of this process's memory the copy holds; 0 if it is closed."""
        return 0 if self._backend is None else self._backend.memory_use()

    @property
    def ready(self) -> bool:
        """True if no directory waits for being prepared."""
        return self._preparation.prepared or not self._preparation.begun

    @property
    def prepared(self) -> bool | None:
        """True if the directory in the new format has had all rows; None if none is being prepared."""
        return self._preparation.complete if self._prepares else None

    @property
    def _upgrades(self) -> bool:
        """True if an older format is in use."""
        return self._in_use is not self.spec.format_version

    @property
    def _prepares(self) -> bool:
        """True if the new format is being prepared beside the older one."""
        return self._upgrades and self._upgrade_mode is not UpgradeMode.ROLL_OVER

    def commit(self, transaction: Transaction, manifest: Manifest) -> None:
        """Write the transaction's changes and the position at ``manifest``, in one atomic write."""
        transaction.put(COMMIT_ROW, encode_position(manifest))
        prepared = transaction.changes if self._prepares else None
        transaction.commit()
        if prepared is not None:
            self._preparation.append(manifest, prepared)

    def prepare_further(self, transaction: Transaction) -> None:
        """Go on with a preparation, if there is one, from the rows as they were before the transaction."""
        if self._prepares:
            self._preparation.go_on(transaction.backend)

    def changed_tables(self, transaction: Transaction) -> Iterator[Table]:
        """Yield the changes of the transaction, as tables."""
        return tables_of_changes(self.spec.name, self.spec.kind.format_version, transaction.changes)

    def durable_tables(self, transaction: Transaction, manifest: Manifest, source: FileSource) -> Iterator[Table]:
        """Yield all rows: those of the durable files at ``manifest``, with the changes of the transaction."""
        name, version = self.spec.name, self.spec.kind.format_version
        rows = entries(source, manifest, name, version, transaction.changes)
        return tables_of_entries(name, version, rows)

    def copied_tables(self, transaction: Transaction) -> Iterator[Table]:
        """Yield all rows: those of this copy, with the changes of the transaction."""
        return tables_of_entries(self.spec.name, self.spec.kind.format_version, transaction.scan())

    def _opened(self, manifest: Manifest, source: FileSource) -> Backend:
        if self._backend is None:
            self._delete_left_over()
            reasons = [seal.take_off() for seal in self._seals]
            for reason in filter(None, reasons):
                self._discard_because(reason)
            try:
                self._backend = self._open_in_use()
            except (BackendInUseError, BackendUnavailableError, StoreFullError):
                self._put_seals_back()
                raise
            if self._upgrades and (self._backend.get(COMMIT_ROW) is None or self._knows_less(manifest, source)):
                self.discard()
                self._backend = self._open_in_use()
            self._seal.opened()
            for seal in self._seals:
                seal.tidy()
            if self._prepares:
                self._begin_preparation(self._backend)
        return self._backend

    def _put_seals_back(self) -> None:
        """Put back the seals of directories that nobody has opened: they are as they were when these were taken off."""
        for seal in self._seals:
            seal.closed()

    def _knows_less(self, manifest: Manifest, source: FileSource) -> bool:
        """Return whether a copy that is about to be prepared from has no timestamps, and the durable files do.

        This is the case if the store was timestamped once and has been plain since. Once something is prepared, it has
        all that the files have gained meanwhile.
        """
        formats = (self._in_use.content, self.spec.kind.format_version)
        if not self._prepares or self._preparation.begun or formats != (FormatVersion.PLAIN, FormatVersion.TIMESTAMPED):
            return False
        return knows_timestamps(source, manifest, self.spec.name)

    def _begin_preparation(self, backend: Backend) -> None:
        try:
            self._preparation.begin(backend)
        except BackendError as error:
            self._prepare_anew(backend, error)

    def _delete_left_over(self) -> None:
        """Delete the preparations of upgrades that were given up; once, because nobody else makes any."""
        if not self._tidy and self._place.supplier.persistent:
            self._preparation.delete_others()
        self._tidy = True

    def _open_in_use(self) -> Backend:
        """Return the directory in use: the old one while the new one is being prepared."""
        older = self._place.older()
        if older is not None and self._switches and self._preparation.prepared:
            self._preparation.take_over()
            older = None
        if self._preparation.begun and (older is None or self._upgrade_mode is UpgradeMode.ROLL_OVER):
            self._preparation.discard()
        if older is None or (self._upgrade_mode is None and not self._preparation.begun):
            self._in_use = self.spec.format_version
            return self._place.open()
        self._in_use = older
        return self._place.open_older(older)

    @property
    def _seal(self) -> CleanShutdownMarker:
        """The seal of the directory in use."""
        return self._seals[self._versions.index(self._in_use)]

    def release(self) -> None:
        """Release the directory, for another process to use. A copy in memory stays: nobody else could use it."""
        if self._place.supplier.persistent:
            self.close()

    def close(self) -> None:
        """Close the backend. Doing so twice is no error."""
        backend, self._backend = self._backend, None
        if backend is not None:
            try:
                backend.close()
            except BackendUnavailableError as error:
                _log.warning("the local copy of store %r closed without its engine: %s", self.spec.name, error)
            self._seal.closed()
        self._preparation.close()

    def _discard_because(self, reason: str) -> None:
        _log.warning(
            "restoring store %r: its local copy in %s failed: %s", self.spec.name, self._place.directory, reason
        )
        self.discard()

    def discard(self) -> None:
        """Delete the copy."""
        try:
            self.close()
        except CorruptStoreError as error:
            _log.warning("a damaged local copy of store %r did not close: %s", self.spec.name, error)
        if not self._place.supplier.persistent:
            return
        for directory in self._place.directories():
            delete_local_copy(self._place.supplier, directory)
        self._preparation.discard()

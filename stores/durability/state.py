"""``TaskState``: the stores of one task, at any committed version, and the next version of them.

Rule of this module: the order of things. A commit writes the durable file first, then the local copies; its manifest
counts once the caller has kept it, and until then nothing refers to it. The lease on the task's local directory is held
from ``open`` to the end of ``commit`` or ``rollback``.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage
from types import MappingProxyType, TracebackType
from typing import Any, Self

from millpond.errors import (
    CorruptStoreError,
    DuplicateNameError,
    DurabilityError,
    FormatError,
    StateConflictError,
    StoreClosedError,
)
from millpond.metrics import Metrics, Stopwatch, StoreMetric
from millpond.releases import Release
from millpond.stores.backend.contract import BackendSupplier, SupportsMemoryBudget, with_memory_budget
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.damage import (
    advise,
    contradicts,
    held_by_files,
    is_damage,
    restored_next,
    task_of,
)
from millpond.stores.durability.copies.lease import LEASE_TIMEOUT, Lease
from millpond.stores.durability.copies.local import LocalCopy
from millpond.stores.durability.copies.throttle import MigrationThrottle
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.manifests.claim import check_owner, claim
from millpond.stores.durability.manifests.garbage import try_collect_garbage
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.older_reader import FormatNumbers, check_older_reader, is_evolved
from millpond.stores.durability.manifests.pins import Protection
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.parquet.sources import Fetched, FileSource
from millpond.stores.durability.storage.durable_file import new_commit_id
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.version_writer import VersionWriter
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.store import WritableStore

_log = logging.getLogger(__name__)


class TaskState:
    """The state of one task: one partition of one sub-topology.

    It may stay open over many batches. Several processes, or several objects in one, may serve the same task in turn:
    between two batches a persistent backend is closed, and the task notices if others have moved the local copy on.

    Args:
        specs: the stores, each with a name of its own.
        supplier: the backend of the local copies, except those whose spec names one.
        application_id: a plain file name; state belongs to one application and one topology.
        task_id: a plain file name, the same in every run.
        local_dir: the directory of the local copies, the same for all processes of a machine.
        storage: the place of the durable files, the same for all machines.
        fingerprint: the fingerprint of the topology; state of another one is refused. Empty: nothing is checked.
        policy: the rules for snapshots and for retention.
        run: the id, of 32 hexadecimal digits, of the run of the job that this task belongs to. All processes that serve
            the task for one run give the same; by default the object is a run of its own.
        exclusive: keep the lease and the backends from batch to batch, until ``close``. For a task that only one
            process serves; any other has to wait.
        upgrade_mode: where the format that a spec asks for is prepared while a local copy stays in its own: beside it,
            or elsewhere by another process; None to bring the copy into that format when the task is opened.
        upgrade_from: the release that must be able to read the files, so that the task can go back to it.
        memory_budget: bytes for those stores whose engines share memory of a bounded size, together with all others in
            this process that have the same budget; None for their backends' own sizes.
        lease_timeout: seconds to wait for another process to release the task.

    Attributes:
        metrics: the metrics since the stores were last opened.
        budgeted: the suppliers of its stores that keep within ``memory_budget``.

    Raises:
        ConfigurationError: two stores have the same name, an id is not a plain file name, the release to be upgraded
            from can read no such state, or a backend cannot keep to the budget.
    """

    def __init__(
        self,
        specs: Sequence[StoreSpec],
        supplier: BackendSupplier,
        *,
        application_id: str,
        task_id: str,
        local_dir: Path,
        storage: Storage,
        fingerprint: str = "",
        policy: DurabilityPolicy | None = None,
        run: str | None = None,
        exclusive: bool = False,
        upgrade_mode: UpgradeMode | None = None,
        upgrade_from: Release | None = None,
        memory_budget: int | None = None,
        lease_timeout: float = LEASE_TIMEOUT,
    ) -> None:
        self.metrics = Metrics()
        self._application_id = application_id
        self._task_id = task_id
        self._fingerprint = fingerprint
        self._storage = storage
        self._policy = policy or DurabilityPolicy()
        self._run = run or new_commit_id()
        self._protection = Protection(storage, self._policy, self._run)
        self._exclusive = exclusive
        self._keeps_formats = upgrade_mode is not None
        self._pace = MigrationThrottle(self._policy.prepared_share)
        self._written = FormatNumbers.to_be_read_by(upgrade_from)
        check_older_reader(self._written.wanted, specs, evolved=is_evolved(fingerprint))
        self._writer = VersionWriter(storage, self._policy, self._written, self.metrics)
        self.budgeted: list[SupportsMemoryBudget] = []
        self._copies: dict[str, LocalCopy] = {}
        for spec in specs:
            place = StoreLocation.of(
                spec, supplier, local_dir=local_dir, application_id=application_id, task_id=task_id
            )
            place = replace(place, supplier=with_memory_budget(place.supplier, memory_budget))
            if memory_budget is not None and isinstance(place.supplier, SupportsMemoryBudget):
                self.budgeted.append(place.supplier)
            if spec.name in self._copies:
                raise DuplicateNameError(f"task {task_id!r} has two stores with the name {spec.name!r}; rename one")
            self._copies[spec.name] = LocalCopy(place, self._policy, upgrade_mode=upgrade_mode, pace=self._pace)
        self._directory = local_dir / application_id / task_id
        self._lease = Lease(self._directory, lease_timeout)
        self._claimed = not fingerprint
        self._manifest: Manifest | None = None
        self._broken: DurabilityError | None = None
        self._thrown_away = False
        self._transactions: dict[str, Transaction] = {}
        self._stores: dict[str, WritableStore[Any, Any]] = {}

    def open(self, manifest: Manifest | None) -> Mapping[str, WritableStore[Any, Any]]:
        """Return the stores, by name, at ``manifest``, or empty for None; what was not committed before is rolled back.

        Opening is cheap if the local copy is there already; otherwise it catches up or is restored.

        Raises:
            StateConflictError: the manifest, or the directory in the storage, belongs to another topology.
            BackendInUseError: another process has the task open and does not release it.
            MissingFileError, CorruptFileError: the durable state is incomplete or damaged, and the local copies cannot
                stand in for it.
            StoreFullError: there is no room for the local copy.
            FormatError: a store holds rows of a layout that this release does not know.
        """
        self.rollback()
        self.metrics.clear()
        start = manifest or Manifest.empty(self._application_id, self._task_id, self._fingerprint)
        with self.metrics.timed(StoreMetric.OPEN_DURATION):
            try:
                self._open(start)
            except (CorruptStoreError, FormatError, StateConflictError) as error:
                if not self._thrown_away:
                    raise
                _log.warning("restoring task %r, whose local copies have failed: %s", self._task_id, error)
                self._open(start)
        return MappingProxyType(self._stores)

    def _open(self, manifest: Manifest) -> None:
        self._thrown_away = False
        check_owner(manifest, self._application_id, self._task_id, self._fingerprint)
        self._claim()
        self._lease.acquire()
        self._pace.begin()
        try:
            if manifest.files:
                self._protection.renew(manifest)
            self._broken = broken_file(self._storage, manifest)
            switches = not self._keeps_formats and all(copy.ready for copy in self._copies.values())
            with Fetched(self._storage, manifest) as source:
                self._transactions = {
                    name: self._opened_copy(copy, manifest, source, switches=switches)
                    for name, copy in self._copies.items()
                }
            if self._broken is not None:
                self._stand_in(self._broken)
            self._manifest = manifest if manifest.files else replace(manifest, oldest_reader=self._written.reader)
            self._stores = {name: self._copies[name].spec.open(tx) for name, tx in self._transactions.items()}
        except BaseException as error:
            self._close(error)
            raise

    def _opened_copy(self, copy: LocalCopy, manifest: Manifest, source: FileSource, *, switches: bool) -> Transaction:
        watch = Stopwatch()
        transaction = copy.open(manifest, source, switches=switches)
        if copy.brought.rows:
            self.metrics.add(StoreMetric.RESTORE_DURATION, watch.lap(), copy.spec.name)
            self.metrics.add(StoreMetric.RESTORE_ROWS, copy.brought.rows, copy.spec.name)
            if copy.brought.restored:
                self.metrics.add(StoreMetric.RESTORE_FULL, 1, copy.spec.name)
        return transaction

    def _stand_in(self, broken: DurabilityError) -> None:
        """Let the local copies stand in for durable files that are gone or damaged: the next commit is a snapshot.

        Raises:
            DurabilityError: they cannot, because nothing proves that they hold what was written to them.
        """
        unproven = [name for name, copy in self._copies.items() if not copy.proven]
        if unproven:
            raise type(broken)(f"{broken}; nothing proves the local copies of {unproven}, so they cannot stand in")
        _log.warning(
            "the local copies of task %r stand in, and the next commit is a snapshot: %s", self._task_id, broken
        )

    def _claim(self) -> None:
        if not self._claimed:
            claim(self._storage, self._application_id, self._fingerprint)
            self._claimed = True

    def commit(self) -> Manifest:
        """Make the changes since ``open`` durable, and end the batch: the stores are closed.

        Returns:
            The manifest of the new version, for the caller to keep: only that makes the version count. Without changes,
            the manifest that was opened.

        Raises:
            StoreClosedError: no batch is open.
            DurabilityError: the file could not be written; nothing has changed.
            StoreFullError: there is no room for the local copy; what was committed before is safe.
        """
        if self._manifest is None:
            raise StoreClosedError(f"task {self._task_id!r} has no batch open; call open(manifest) before commit()")
        before = self._manifest
        with self.metrics.timed(StoreMetric.COMMIT_DURATION):
            try:
                manifest = self._committed(before)
            except BaseException as error:
                self.rollback(error)
                raise
            self.rollback()
            self._pace.end()
            if manifest.snapshot != before.snapshot:
                left = try_collect_garbage(self._storage, manifest, self._policy, self._run)
                if left is not None:
                    self.metrics.put(StoreMetric.FILES_RETAINED, left)
        for name, copy in self._copies.items():
            if copy.size is not None:
                self.metrics.put(StoreMetric.COPY_SIZE, copy.size, name)
            if copy.memory_use:
                self.metrics.put(StoreMetric.MEMORY_HELD, copy.memory_use, name)
        self._measure_disk()
        return manifest

    def _measure_disk(self) -> None:
        """Measure the disk of the local copies, if there are files of them."""
        if any(copy.size is not None for copy in self._copies.values()):
            with suppress(OSError):
                disk = disk_usage(self._directory)
                self.metrics.put(StoreMetric.DISK_FREE, disk.free)
                self.metrics.put(StoreMetric.DISK_SIZE, disk.total)

    def memory_use(self) -> int:
        """Return about how many bytes of memory its stores hold between batches; ``close`` frees them."""
        return sum(copy.memory_use for copy in self._copies.values())

    def _committed(self, before: Manifest) -> Manifest:
        """Write the changes: the durable file, then the local copies."""
        for store in self._stores.values():
            store.flush()
        manifest = before
        changed = {name: transaction.changed_keys for name, transaction in self._transactions.items()}
        broken = self._broken is not None
        if self._writer.rewrites(before, broken=broken) or any(changed.values()):
            following = replace(before, fingerprint=self._fingerprint or before.fingerprint)
            if following.fingerprint != before.fingerprint:
                following = replace(following, unfinished=None)  # which may have rows of stores that are no more
            manifest = self._writer.write(following, self._opened(), self._stand_in, broken=broken)
        for name, transaction in self._transactions.items():
            self._copies[name].prepare_further(transaction)
        if manifest is not before:
            for name, transaction in self._transactions.items():
                self.metrics.add(StoreMetric.COMMIT_ROWS, changed[name], name)
                with self.metrics.timed(StoreMetric.ENGINE_DURATION, name):
                    self._copies[name].commit(transaction, manifest)
        return self._prepared(manifest)

    def _prepared(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the stores that are prepared in a new format, once all that are upgraded are."""
        upgraded = {name: copy.prepared for name, copy in self._copies.items() if copy.prepared is not None}
        prepared = tuple(sorted(upgraded)) if all(upgraded.values()) else ()
        if prepared and not manifest.prepared:
            _log.info(
                "task %r of application %r is prepared for the new format of its stores %s: it is used after a restart "
                "without upgrade_from",
                self._task_id,
                self._application_id,
                ", ".join(prepared),
            )
        return replace(manifest, prepared=prepared)

    def _opened(self) -> list[tuple[LocalCopy, Transaction]]:
        """Return the stores' copies with their transactions, in the order of files."""
        return [(self._copies[name], self._transactions[name]) for name in sorted(self._transactions)]

    def rollback(self, cause: BaseException | None = None) -> None:
        """Forget the changes since ``open`` and end the batch: the stores are closed. Without a batch, do nothing.

        Args:
            cause: the error. After a ``CorruptStoreError`` the local copies are thrown away, so that the next ``open``
                restores them instead of finding the same damage, and a note on the error says so. So they are after an
                error of metadata that differ from those of the durable files.
        """
        damaged = is_damage(cause) or self._contradicted(cause)
        self._manifest = self._broken = None
        # Even if something fails to close, all is released, and the lease last.
        with ExitStack() as stack:
            if not self._exclusive:
                stack.callback(self._lease.release)
                for copy in self._copies.values():
                    stack.callback(copy.release)
            for store in self._stores.values():
                store.close()
            for transaction in self._transactions.values():
                transaction.close()
            self._stores, self._transactions = {}, {}
            if cause is not None and damaged and self._lease.held:
                self._discard_because_of(cause)

    def _contradicted(self, cause: BaseException | None) -> bool:
        """Return whether an error is of metadata of a local copy that differ from those of the durable files."""
        manifest = self._manifest
        if manifest is None or not isinstance(cause, FormatError | StateConflictError):
            return False
        try:
            with Fetched(self._storage, manifest) as source:
                return any(
                    contradicts(transaction.backend, self._copies[name].spec, manifest, source)
                    for name, transaction in self._transactions.items()
                )
        except DurabilityError:
            return False

    def _discard_because_of(self, damage: BaseException) -> None:
        """Throw the local copies away, and add a note with the advice to the error."""
        restored = [copy.restored for copy in self._copies.values() if copy.restored or copy.is_open]
        self._thrown_away = not (any(restored) and all(restored))
        task = task_of(self._application_id, self._task_id)
        if self._thrown_away:
            advise(damage, restored_next(task, self._directory, self._storage))
        else:
            advise(damage, held_by_files(task, self._storage))
        for copy in self._copies.values():
            copy.discard()

    def close(self) -> None:
        """Roll back and release everything. Closing twice is no error; the object can be opened again."""
        self._close()

    def _close(self, cause: BaseException | None = None) -> None:
        with ExitStack() as stack:
            stack.callback(self._lease.release)
            for copy in self._copies.values():
                stack.callback(copy.close)
            self.rollback(cause)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rollback(error)
        self.close()

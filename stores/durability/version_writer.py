"""``VersionWriter``: writes the durable file of a task's next version, a delta or a snapshot.

Rule of this module: it decides which of the two is written, and what goes into it. When that happens, and what becomes
of the manifest, is ``TaskState``'s.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from millpond.errors import CorruptFileError, DurabilityError, MissingFileError
from millpond.metrics import Metrics, StoreMetric
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.local import LocalCopy
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.older_reader import FormatNumbers
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.files import write_file
from millpond.stores.durability.parquet.rows import Table
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.durability.storage.storage import Storage

_log = logging.getLogger(__name__)

Opened = Sequence[tuple[LocalCopy, Transaction]]
"""The copies of a task's stores with their transactions, in the order of files."""

StandIn = Callable[[DurabilityError], None]
"""Called with what is wrong before local copies stand in for durable files; it raises if they cannot."""


@dataclass(frozen=True)
class VersionWriter:
    """What it takes to write the versions of one task.

    Attributes:
        storage: where durable files live.
        policy: when to write snapshots.
        written: in which formats, and for which oldest reader.
        metrics: where what is written is measured.
    """

    storage: Storage
    policy: DurabilityPolicy
    written: FormatNumbers
    metrics: Metrics

    def rewrites(self, manifest: Manifest, *, broken: bool) -> bool:
        """Whether the next version has to be a snapshot, even if nothing has changed.

        Args:
            manifest: the version before it.
            broken: whether durable files of that version are gone or damaged.
        """
        return broken or not self.written.reads(manifest)

    def write(self, manifest: Manifest, opened: Opened, stand_in: StandIn, *, broken: bool) -> Manifest:
        """Write the durable file of the version after ``manifest``.

        Args:
            manifest: the version before it.
            opened: the stores with what has changed in them.
            stand_in: called if durable files turn out to be gone or damaged only now.
            broken: whether it is known that they are.

        Returns:
            The manifest of that version.

        Raises:
            DurabilityError: the file could not be written.
        """
        reader, rewrites = self.written.reader, self.rewrites(manifest, broken=broken)
        if not rewrites and not self.policy.snapshot_due(manifest):
            return manifest.with_delta(self._write_delta(manifest, opened, new_commit_id()), reader)
        if not self.written.reads(manifest):
            _log.info(
                "task %r of application %r is written as release %s reads it",
                manifest.task_id,
                manifest.application_id,
                self.written.wanted,
            )
        snapshot = self._write_snapshot(manifest, opened, new_commit_id(), None if broken else stand_in)
        changed = sum(transaction.changed_keys for _, transaction in opened)
        bridged = manifest.snapshot is not None and not rewrites and changed <= snapshot.rows
        delta = self._write_delta(manifest, opened, snapshot.commit) if bridged else None
        return manifest.with_snapshot(snapshot, self.policy.bases_after(manifest), reader, delta)

    def _write_delta(self, manifest: Manifest, opened: Opened, commit: str) -> DurableFile:
        """Write what the transactions change; also beside a snapshot, for copies that stand before it."""
        tables = (copy.changed_tables(transaction) for copy, transaction in opened)
        return self._write_file(FileKind.DELTA, manifest, commit, tables)

    def _write_snapshot(self, manifest: Manifest, opened: Opened, commit: str, stand_in: StandIn | None) -> DurableFile:
        """Write all rows as the durable files have them, so that no harm to a local copy becomes durable.

        Only if these are gone or damaged, the local copies stand in for them; without ``stand_in`` they do already.
        """
        if stand_in is not None:
            try:
                with Fetched(self.storage, manifest) as source:
                    tables = (copy.durable_tables(tx, manifest, source) for copy, tx in opened)
                    return self._write_file(FileKind.SNAPSHOT, manifest, commit, tables)
            except (MissingFileError, CorruptFileError) as error:
                stand_in(error)
        tables = (copy.copied_tables(transaction) for copy, transaction in opened)
        return self._write_file(FileKind.SNAPSHOT, manifest, commit, tables)

    def _write_file(
        self, kind: FileKind, manifest: Manifest, commit: str, tables: Iterable[Iterable[Table]]
    ) -> DurableFile:
        rows = chain.from_iterable(tables)
        number = manifest.sequence + 1
        with self.metrics.timed(StoreMetric.FILE_DURATION):
            file = write_file(self.storage, manifest.directory, kind, number, commit, rows, self.written.file_format)
        self.metrics.add(StoreMetric.FILE_ROWS, file.rows)
        self.metrics.add(StoreMetric.FILE_SIZE, file.size)
        self.metrics.add(StoreMetric.FILE_SNAPSHOTS, int(kind is FileKind.SNAPSHOT))
        return file

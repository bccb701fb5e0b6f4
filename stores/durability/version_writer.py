"""``VersionWriter``: writes the durable file of a task's next version, a delta or a snapshot.

Rule of this module: it decides which of the two is written, and what goes into it. ``TaskState`` decides when, and what
becomes of the manifest. A large snapshot is written in steps: each commit writes a part of it into the file of its
delta, so that none takes long.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain

from millpond.errors import CorruptFileError, DurabilityError, MissingFileError
from millpond.metrics import Metrics, StoreMetric
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.local import LocalCopy
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.older_reader import WITH_A_PART, FormatNumbers
from millpond.stores.durability.manifests.parts import Unfinished
from millpond.stores.durability.manifests.policy import DurabilityPolicy, StepSize
from millpond.stores.durability.parquet.files import NewFile, write_file, writing_file
from millpond.stores.durability.parquet.rows import Table
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.parquet.steps import write_step
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.durability.storage.storage import Storage

_log = logging.getLogger(__name__)

Opened = Sequence[tuple[LocalCopy, Transaction]]
"""The copies of a task's stores with their transactions, in the order of files."""

StandIn = Callable[[DurabilityError], None]
"""A call with the fault of durable files before local copies stand in for them; it raises if they cannot."""


@dataclass(frozen=True)
class VersionWriter:
    """The writer of the versions of one task.

    Attributes:
        storage: the place of durable files.
        policy: the rule for writing snapshots.
        written: the formats to write, and the oldest reader to write for.
        metrics: the measures of what is written.
    """

    storage: Storage
    policy: DurabilityPolicy
    written: FormatNumbers
    metrics: Metrics

    def rewrites(self, manifest: Manifest, *, broken: bool) -> bool:
        """Return whether the next version has to be a snapshot, even if nothing has changed.

        Args:
            manifest: the version before it.
            broken: whether durable files of that version are gone or damaged.
        """
        return broken or not self.written.reads(manifest)

    def write(self, manifest: Manifest, opened: Opened, stand_in: StandIn, *, broken: bool) -> Manifest:
        """Write the durable file of the version after ``manifest``.

        Args:
            manifest: the version before it.
            opened: the stores with their changes.
            stand_in: is called if durable files are found gone or damaged only now.
            broken: whether they are known to be so.

        Returns:
            The manifest of that version.

        Raises:
            DurabilityError: the file could not be written.
        """
        reader, rewrites = self.written.reader, self.rewrites(manifest, broken=broken)
        changed = sum(transaction.changed_keys for _, transaction in opened)
        if not rewrites:
            if manifest.unfinished is None and not self.policy.snapshot_due(manifest):
                return manifest.with_delta(self._write_delta(manifest, opened, new_commit_id()), reader)
            begun = self._unfinished(manifest)
            size = None if begun is None else self.policy.step_size(manifest.up_to(begun.commit), changed)
            if begun is not None and size is not None:
                try:
                    return self._write_step(manifest, opened, begun, size)
                except (MissingFileError, CorruptFileError) as error:
                    stand_in(error)
                    broken = rewrites = True
        if not self.written.reads(manifest):
            _log.info(
                "task %r of application %r is written as release %s reads it",
                manifest.task_id,
                manifest.application_id,
                self.written.wanted,
            )
        snapshot = self._write_snapshot(manifest, opened, new_commit_id(), None if broken else stand_in)
        bridged = manifest.snapshot is not None and not rewrites and changed <= snapshot.rows
        delta = self._write_delta(manifest, opened, snapshot.commit) if bridged else None
        bases = self.policy.bases_after(manifest)
        if not self.written.in_steps:
            bases = tuple(base for base in bases if not base.in_steps)
        return manifest.with_snapshot(snapshot, bases, reader, delta)

    def _unfinished(self, manifest: Manifest) -> Unfinished | None:
        """Return the snapshot whose next step is due; None if it is to be written at once."""
        if manifest.unfinished is not None or manifest.snapshot is None or not self.written.in_steps:
            return manifest.unfinished
        return Unfinished(manifest.commit)

    def _write_step(self, manifest: Manifest, opened: Opened, begun: Unfinished, size: StepSize) -> Manifest:
        """Write the changes of the transactions and, into the same file, the next step of a snapshot."""
        stores = {copy.spec.name: copy.spec.kind.format_version for copy, _ in opened}
        version = manifest.up_to(begun.commit)
        going, group = begun.next_group(version.deltas, size.rows, size.bytes)
        runs: list[tuple[Sequence[DurableFile], int]]
        if group:
            sources, runs = replace(version, snapshot=None, deltas=group), [((delta,), 0) for delta in group]
        else:
            sources, runs = _sources(version, going)
        with self.metrics.timed(StoreMetric.FILE_DURATION), self._new_delta(manifest) as new:
            for table in chain.from_iterable(copy.changed_tables(transaction) for copy, transaction in opened):
                new.add(table)
            new.begin_part()
            with Fetched(self.storage, sources) as source:
                step = write_step(new, source, version, runs, stores, None if group else size)
        file = new.written()
        self._measure(file, snapshot=step.last and not group)
        if group:
            return manifest.with_step(file, going.with_gathered(file, len(group)))
        after = manifest.with_step(file, going.with_part(file, step.taken))
        return after.with_finished(self.policy.bases_after(manifest)) if step.last else after

    def _new_delta(self, manifest: Manifest) -> AbstractContextManager[NewFile]:
        """Return the file of the next version, with a part of a snapshot."""
        directory, number = manifest.directory, manifest.sequence + 1
        return writing_file(self.storage, directory, FileKind.DELTA, number, new_commit_id(), WITH_A_PART)

    def _write_delta(self, manifest: Manifest, opened: Opened, commit: str) -> DurableFile:
        """Write the changes of the transactions; also beside a snapshot, for copies that stand before it."""
        tables = (copy.changed_tables(transaction) for copy, transaction in opened)
        return self._write_file(FileKind.DELTA, manifest, commit, tables)

    def _write_snapshot(self, manifest: Manifest, opened: Opened, commit: str, stand_in: StandIn | None) -> DurableFile:
        """Write all rows as the durable files have them, so that no harm to a local copy becomes durable.

        The local copies stand in for these only if they are gone or damaged; without ``stand_in`` they do already.
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
        self._measure(file, snapshot=kind is FileKind.SNAPSHOT)
        return file

    def _measure(self, file: DurableFile, *, snapshot: bool) -> None:
        self.metrics.add(StoreMetric.FILE_ROWS, file.rows)
        self.metrics.add(StoreMetric.FILE_SIZE, file.size)
        self.metrics.add(StoreMetric.FILE_SNAPSHOTS, int(snapshot))


def _sources(version: Manifest, going: Unfinished) -> tuple[Manifest, list[tuple[Sequence[DurableFile], int]]]:
    """Return the files to merge the next part of a snapshot from, and their runs, with the rows taken of each.

    Of the snapshot before, whose parts follow each other, only the next part is worth fetching ahead.
    """
    base, taken = list(version.base), going.taken
    while len(base) > 1 and taken >= base[0].own_rows:
        taken -= base.pop(0).own_rows
    parts = None if version.parts is None else version.parts._replace(files=tuple(base[:1]))
    sources = replace(version, parts=parts, deltas=tuple(run.file for run in going.runs))
    return sources, [(version.base, going.taken), *(((run.file,), run.taken) for run in going.runs)]

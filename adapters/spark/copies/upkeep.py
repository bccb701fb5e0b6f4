"""The upkeep of a query's state: verify it, repair it, and go back to an earlier micro-batch.

Rule of this module: it knows where a job on Spark keeps what; what is verified and repaired is up to
``millpond.stores.durability``.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millpond.adapters.spark.copies.copy_formats import CopyFormats
from millpond.adapters.spark.copies.warming import Warming, tasks_in_threads
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.worker.local_directories import directories_of
from millpond.errors import ConfigurationError, FormatError
from millpond.processors.runtime.topology import Topology
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.checking.findings import Report
from millpond.stores.durability.checking.repair import Repair, repairs_of_copies, repairs_of_garbage, retention
from millpond.stores.durability.checking.verification import DEFAULT_WORKERS, Specs, newest_sound, verify
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.backfilling import abandoned
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.evolution.history import History, sinks_of


@dataclass(frozen=True)
class QueryState:
    """The state of one query.

    Attributes:
        checkpoint: the query's.
        storage: where its durable files are.
        local_dir: the job's ``local_dir``, on this machine; None if local copies are none of our business.
        workers: how many files are read at the same time.
    """

    checkpoint: Checkpoint
    storage: Storage
    local_dir: Path | None = None
    workers: int = DEFAULT_WORKERS

    def verify(self, batch_id: int | None = None, topology: Topology | None = None) -> Report:
        """Verify the state after a micro-batch; None for the last one, the only one to which local copies belong.

        Raises:
            ConfigurationError: there is no such micro-batch, or the state is that of another topology.
        """
        return verify(
            self.storage,
            partial(self.manifests, batch_id),
            specs={} if topology is None else self._specs(topology, batch_id),
            local_dirs=self._local_dirs() if batch_id is None else (),
            workers=self.workers,
        )

    def manifests(self, batch_id: int | None = None) -> list[Manifest]:
        """Return the manifests of all tasks after a micro-batch, in the state's shape of then; None for the last one.

        Raises:
            ConfigurationError: there is no such micro-batch, or the checkpoint is that of another query.
        """
        return current_manifests(self.storage, *self.checkpoint.after(batch_id))

    def warming(
        self, topology: Topology | None, sink: str | None, supplier: BackendSupplier, *, checksums: bool
    ) -> Warming:
        """Return the local copies of the checkpoint's applications, to be warmed on this machine.

        Args:
            topology: the topology to restart the query with, if it has only one application; None for all
                applications as their newest records have them, verbs included.
            sink: what the query writes; None if there is only one.
            supplier: the backend of stores that do not name one; of a record, of all stores.
            checksums: whether the rows of stores that do not say it themselves have checksums; of a record, of all.

        Raises:
            TopologyError: the topology has no such sink, or several and none was named.
            ConfigurationError: the checkpoint has no state, that of several applications for a topology, or no record
                tells which stores they have.
        """
        formats = CopyFormats(topology, sink, supplier, checksums)
        queries = formats.queries(self.checkpoint.location, self.storage, str(self.local_dir), self.manifests())
        return Warming(self.checkpoint, queries, tasks_in_threads(self.workers))

    def _specs(self, topology: Topology, batch_id: int | None) -> Specs:
        """Return the stores of the applications that run the topology."""
        found = {
            manifest.application_id: topology.stores
            for manifest in self.manifests(batch_id)
            if manifest.fingerprint.partition("/")[0] == topology.fingerprint or self._has_stores(topology, manifest)
        }
        if not found:
            raise self.checkpoint.of_another_query("it holds no state of this topology")
        return found

    def _has_stores(self, topology: Topology, manifest: Manifest) -> bool:
        """Return whether a topology has all stores of the shape that a manifest's generation has."""
        name = manifest.application_id
        records = [one for sink in sinks_of(self.storage, name) for one in History.of(self.storage, name, sink).records]
        shapes = [record.shape for record in records if record.fingerprint == manifest.fingerprint]
        known = {
            (one.name, one.kind.family, one.key_serde.name, one.value_serde.name) for one in topology.stores.values()
        }
        return any(
            {(one.name, one.kind.family, one.key_serde, one.value_serde) for one in shape.stores} <= known
            for shape in shapes
        )

    def _local_dirs(self) -> Collection[Path]:
        """Return the directories in which tasks have their local copies, one for each sink."""
        return () if self.local_dir is None else directories_of(self.local_dir, self.storage)

    def way_back(self, batch_id: int | None = None) -> str:
        """Tell to which micro-batch before that one, or before the last one, the query can go back, and how."""
        batches = self.checkpoint.batches()
        last = batches[-1] if batch_id is None else batch_id
        earlier = [batch for batch in reversed(batches) if batch < last]
        sound = newest_sound(self.storage, self._versions(earlier), workers=self.workers)
        if sound is None:
            return (
                "No earlier micro-batch that the checkpoint retains is whole: put undamaged copies of the files back, "
                "or start anew with another application id and checkpoint."
            )
        return self._way_back_to(sound, batches[-1])

    def _versions(self, batches: Collection[int]) -> Iterator[tuple[int, list[Manifest]]]:
        for batch in batches:
            try:
                manifests = self.manifests(batch)
            except (ConfigurationError, FormatError):
                continue  # nobody can go back to what Spark cannot read
            yield batch, manifests

    def _way_back_to(self, batch_id: int, last: int) -> str:
        first = batch_id + 1
        return f"""\
To go back to micro-batch {batch_id}, whose files are all whole:
 1. Stop the query, and keep a copy of {self.checkpoint.location}.
 2. There, delete the files of later micro-batches: offsets/<n> and commits/<n> for n from {first} on, and below state/
    every file whose name begins with a number above {first}, such as {first + 1}.changelog or {first + 1}.zip. On a
    local disk, delete the hidden files beside them as well, such as offsets/.{first}.crc.
 3. Set the output back to micro-batch {batch_id}, or write to a new place: the rows of micro-batches {first} to {last}
    come again, cut into micro-batches anew. Spark's file sink, Delta Lake and others that go by the number of a
    micro-batch would leave out rows of numbers that they have. To set the file sink back, delete <n> and <n>.compact
    from {first} on in its _spark_metadata; write to a new place by foreachBatch, as nothing can read a place of the
    file sink that does not begin with micro-batch 0.
 4. Start the query with the same checkpoint."""

    def repairs(self, report: Report, *, orphans: bool) -> Iterator[Repair]:
        """Yield the repairs of findings that need no decision by a user.

        Args:
            report: what was found.
            orphans: also delete durable files that no micro-batch can need to which Spark can go back, and what
                attempts at a backfill have left that died.

        Raises:
            ConfigurationError: the checkpoint cannot be read.
        """
        yield from repairs_of_copies(report)
        if orphans:
            newest = self.manifests()
            yield from repairs_of_garbage(self.storage, newest, self._retention(newest))
            for application_id in sorted({manifest.application_id for manifest in newest}):
                for sink in sinks_of(self.storage, application_id):
                    yield from self._repairs_of_backfill(History.of(self.storage, application_id, sink))

    def _repairs_of_backfill(self, history: History) -> Iterator[Repair]:
        """Yield the deletions of what attempts at a backfill have left that do not count."""
        for directory in abandoned(history):
            yield Repair(
                f"delete {self.storage.describe(directory)}, which a backfill has left that did not come to its end",
                partial(self.storage.delete_directory, directory),
            )

    def _retention(self, newest: Collection[Manifest]) -> DurabilityPolicy:
        """Return a job's default retention, widened to all that the checkpoint's first micro-batch names."""
        return retention(DurabilityPolicy(), newest, self.manifests(self.checkpoint.batches()[0]))

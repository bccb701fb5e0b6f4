"""``CopyFormats``: the formats of a job's local copies, given to a command that warms some.

Rule of this module: it turns names and options into queries whose copies can be warmed. It reads records, and changes
nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass

from millpond.adapters.spark.copies.warm_query import WarmQuery
from millpond.adapters.spark.evolution.reshaping import only_history
from millpond.errors import AmbiguousError
from millpond.processors.distribution.plan import make_plan
from millpond.processors.runtime.topology import Topology
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage


@dataclass(frozen=True)
class CopyFormats:
    """The formats of a job's local copies, as far as a user has to give them.

    Attributes:
        topology: the topology of the job, if it has only one application; None for all applications as their newest
            records have them, verbs included.
        sink: what the query writes; None if there is only one.
        supplier: the backend of stores that do not name one; of a record, of all stores.
        checksums: whether the rows of stores that do not say it themselves have checksums; of a record, of all.
    """

    topology: Topology | None
    sink: str | None
    supplier: BackendSupplier
    checksums: bool

    def queries(
        self, checkpoint: str, storage: Storage, local_dir: str, found: Collection[Manifest]
    ) -> list[WarmQuery]:
        """Return the queries of a checkpoint.

        Args:
            checkpoint: where it is.
            storage: where the durable files are.
            local_dir: where the copies are.
            found: manifests that the checkpoint has.

        Raises:
            TopologyError: the topology has no such sink, or several and none was named.
            ConfigurationError: the checkpoint has the state of several applications for a topology, or no record tells
                which stores they have.
        """
        names = sorted({manifest.application_id for manifest in found})
        if self.topology is None:
            histories = [only_history(storage, name, self.sink) for name in names]
            return [WarmQuery.recorded(one, local_dir, self.supplier, checksums=self.checksums) for one in histories]
        if len(names) > 1:
            raise AmbiguousError(
                f"the checkpoint {checkpoint} has the state of the applications {names}, and a topology is that of "
                "one; leave --topology out to warm the copies of all as they are"
            )
        plan = make_plan(self.topology, self.sink, 1)
        return [
            WarmQuery.of_plan(plan, name, storage, local_dir, self.supplier, checksums=self.checksums) for name in names
        ]

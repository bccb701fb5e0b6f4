"""The manifests that the checkpoints of queries name, and whether their files are there.

Rule of this module: it knows manifests, but not how a checkpoint keeps them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from millpond.errors import DurabilityError, MillpondError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.current_manifests import current_manifests


@dataclass(frozen=True)
class Named:
    """The manifests that one checkpoint names.

    Attributes:
        where: the checkpoint.
        retained: the manifests of each micro-batch to which the query can go back, the last one's at the end.
        batch: the last micro-batch; None if it has none.
    """

    where: str
    retained: Sequence[Collection[Manifest]]
    batch: int | None = None

    @property
    def newest(self) -> Collection[Manifest]:
        """The manifests after the last micro-batch."""
        return self.retained[-1] if self.retained else ()


def broken_tasks(storage: Storage, named: Collection[Named]) -> dict[tuple[str, str], str]:
    """Return the faults of the tasks whose durable files are not all there, by application and task.

    Local copies of these stand in for the files. Tasks that nobody continues, such as those of verbs that are gone, are
    left out.
    """
    found: dict[tuple[str, str], str] = {}
    for manifest in chain.from_iterable(_going_on(storage, one) for one in named):
        try:
            broken: MillpondError | None = broken_file(storage, manifest)
        except DurabilityError as error:
            broken = error
        if broken is not None:
            found[manifest.application_id, manifest.task_id] = str(broken)
    return found


def _going_on(storage: Storage, named: Named) -> Collection[Manifest]:
    """Return the manifests with which the tasks of a checkpoint go on; all that it holds if nothing tells."""
    try:
        return current_manifests(storage, named.newest, named.batch)
    except MillpondError:
        return named.newest

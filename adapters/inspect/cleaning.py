"""``Cleaning``: deletes state and local copies that no checkpoint of a query names.

Rule of this module: a checkpoint that cannot be read in full may name anything, so then nothing goes at all. Nothing is
changed until somebody deletes what was found, so queries may be running.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.errors import DurabilityError, InvalidArgumentError, MillpondError, MissingArgumentError, MissingFileError
from millpond.stores.cleaning.copies import CopiesCleaning
from millpond.stores.cleaning.durable import StateCleaning
from millpond.stores.cleaning.leftover import Age, Leftover
from millpond.stores.cleaning.named import Named, broken_tasks
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.storage.clock import host_ms
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import Duration, to_length

OLDER_THAN: Final = "7 days"


class Found(NamedTuple):
    """The result of a search for leftovers.

    Attributes:
        leftovers: durable files first; each says whether it may go.
        fault: why nothing may go; None if something may.
    """

    leftovers: list[Leftover]
    fault: MillpondError | None


@dataclass(frozen=True)
class Cleaning:
    """The cleaning of a state directory, of local copies on this machine, or of both.

    Attributes:
        storage: the state directory; None if durable files are none of our business.
        checkpoints: of queries whose state is there.
        local_dirs: jobs' ``local_dir``, on this machine.
        applications: those, as patterns of the shell, of which no other checkpoint has state.
        older_than: how long files must not have been written to before they may go.
        policy: when a pin is dead, and what is retained at least.

    Raises:
        ConfigurationError: there is nothing to be cleaned, checkpoints have no state directory, or less than a run's
            pin lives is old for durable files.
    """

    storage: Storage | None = None
    checkpoints: Sequence[SparkCheckpoint] = ()
    local_dirs: Sequence[Path] = ()
    applications: Collection[str] = ()
    older_than: Duration = OLDER_THAN
    policy: DurabilityPolicy = field(default_factory=DurabilityPolicy)

    def __post_init__(self) -> None:
        length = to_length(self.older_than, "older_than")
        if self.storage is None and not self.local_dirs:
            raise MissingArgumentError("there is nothing to be cleaned; give a state_dir, a local_dir, or both")
        if self.storage is None and (self.checkpoints or self.applications):
            raise MissingArgumentError(
                "checkpoints and applications tell what a state directory needs; give that, too, with state_dir"
            )
        if self.storage is not None and length < self.policy.retained_forks_ms:
            raise InvalidArgumentError(
                f"older_than is {length} ms, and a run may not have renewed its pin for "
                f"{self.policy.retained_forks_ms} ms; give at least as much where durable files are cleaned"
            )

    def found(self, now_ms: int | None = None) -> Found:
        """Return the leftovers that there are, and whether each may be deleted.

        Args:
            now_ms: the time, in milliseconds since 1970.

        Raises:
            DurabilityError: the state directory cannot be read.
            StoreError: a local directory cannot be read.
        """
        now = host_ms() if now_ms is None else now_ms
        age = Age(now, to_length(self.older_than, "older_than"))
        try:
            named = [named_by(checkpoint) for checkpoint in self.checkpoints]
        except MillpondError as error:
            return Found([one.kept(f"nothing is touched: {error}") for one in self._leftovers([], age)], error)
        return Found(self._leftovers(named, age), None)

    def _leftovers(self, named: Sequence[Named], age: Age) -> list[Leftover]:
        storage, place, broken = self.storage, None, dict[tuple[str, str], str]()
        durable: list[Leftover] = []
        if storage is not None:
            place, broken = storage.place, broken_tasks(storage, named)
            durable = list(StateCleaning(storage, named, self._alone, age, self.policy).leftovers())
        copies = (CopiesCleaning(path, place, broken, age).leftovers() for path in self.local_dirs)
        return [*durable, *chain.from_iterable(copies)]

    def _alone(self, application_id: str) -> bool:
        return any(fnmatchcase(application_id, pattern) for pattern in self.applications)


def named_by(checkpoint: SparkCheckpoint) -> Named:
    """Return the manifests that a checkpoint names; a query may be writing to it meanwhile.

    Raises:
        FormatError: its state is kept in a way that is not known here.
        MissingFileError, CorruptFileError, DurabilityError: it cannot be read in full.
    """
    while True:
        retained: list[Collection[Manifest]] = []
        gone: DurabilityError | None = None
        batches = checkpoint.batches()
        for batch in batches:
            try:
                retained.append(checkpoint.manifests(batch))
            except MissingFileError as error:
                gone = error
                break
        if gone is None:
            return Named(checkpoint.storage.describe("").rstrip("/"), retained, batches[-1] if batches else None)
        if checkpoint.batches()[:1] == batches[:1]:  # Spark has deleted nothing meanwhile
            raise gone

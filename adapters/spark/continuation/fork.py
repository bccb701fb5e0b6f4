"""``Fork``: a query as it was after a micro-batch, at a checkpoint and a state directory of its own.

Rule of this module: the original is only read, and may be running. A fork has copies of all that it needs, so nothing
that becomes of the original reaches it, and nothing of it the original. Its query has an id of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from millpond.adapters.backup.checkpoint_copy import CheckpointCopy
from millpond.adapters.backup.state_copy import copy_state, is_of
from millpond.adapters.inspect.checkpoint.retained_batches import why_not_retained
from millpond.adapters.spark.continuation.files import CheckpointFiles, HadoopFiles
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import CannotContinueError, MicroBatchNotKeptError, PlaceTakenError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.evolution.current_manifests import current_manifests


@dataclass(frozen=True)
class Fork:
    """A query as it was after a micro-batch.

    Attributes:
        files: the file system of its checkpoint.
        checkpoint: its checkpoint.
        state_dir: its state directory.
        offsets: what the original has read in each micro-batch since, by its number, as Spark has written it.
    """

    files: CheckpointFiles
    checkpoint: str
    state_dir: str
    offsets: Mapping[int, str]

    @property
    def sources(self) -> int:
        """The number of sources that the original reads."""
        return max(len(text.split("\n")) - 2 for text in self.offsets.values())

    def plan(self, batch: int) -> None:
        """Have the query run one of these micro-batches next, over the rows that the original has read in it.

        Raises:
            DurabilityError: the file system failed.
        """
        self.files.write(f"{self.checkpoint}/offsets/{batch}", self.offsets[batch])


@dataclass(frozen=True)
class Original:
    """A query of which forks are made. Make it with ``of``.

    Attributes:
        session: reads its checkpoint.
        location: its checkpoint.
        storage: its state directory.
        job: the application id of its job.
        after: the micro-batch after which forks begin.
        until: the last one that they run.
    """

    session: SparkSession
    location: str
    storage: Storage
    job: str
    after: int
    until: int

    @classmethod
    def of(cls, session: SparkSession, location: str, storage: Storage, job: str, after: int) -> "Original":
        """Return the query with a checkpoint, up to the last micro-batch that it has committed by now.

        Raises:
            ConfigurationError: the micro-batch is not retained, none was committed after it, or the session is one of
                Spark Connect.
            DurabilityError: the file system failed.
        """
        HadoopFiles.of(session)
        batches = Checkpoint(session, location).batches()
        refusal = why_not_retained(location, batches, after)
        if refusal is not None:
            raise refusal
        if after == batches[-1]:
            raise MicroBatchNotKeptError(
                f"micro-batch {after} is the last one of the checkpoint {location}, so there is nothing to run the "
                f"code over; give after=... an earlier one, from {batches[0]} on"
            )
        return cls(session, location, storage, job, after, batches[-1])

    @property
    def batches(self) -> range:
        """The micro-batches that forks run."""
        return range(self.after + 1, self.until + 1)

    def fork(self, into: str) -> Fork:
        """Return a fork at a place where nothing is yet.

        Raises:
            ConfigurationError: something is there, it is within the original, or what the fork needs is not retained.
            FormatError: the checkpoint, a manifest or a record is of a form that is not known.
            DurabilityError: the file system failed.
        """
        files = HadoopFiles.of(self.session)
        target = Storage.from_uri(f"{into}/state")
        self._check_place(files, into)
        copy = CheckpointCopy(files, self.location, f"{into}/checkpoint", self.after)
        offsets = copy.offsets(self.batches)
        found, _ = Checkpoint(self.session, self.location).after(self.after)
        current = current_manifests(self.storage, found, self.after)
        fork_state(self.storage, target, self.job, current, self.after)
        copy.make()
        return Fork(files, copy.new, f"{into}/state", offsets)

    def _check_place(self, files: CheckpointFiles, into: str) -> None:
        place, storage = f"{files.qualified(into)}/", f"{Storage.from_uri(into).uri}/"
        original = f"{files.qualified(self.location)}/", f"{self.storage.uri}/"
        if any(one.startswith(other) for one, other in zip((place, storage), original, strict=True)):
            raise PlaceTakenError(
                f"{into} is within the checkpoint or the state directory of the query ({self.location}, "
                f"{shown(self.storage.uri)}), which are not to be changed; give into=... a place beside them"
            )
        if files.exists(into):
            raise PlaceTakenError(
                f"something already exists at {into}; delete it if it is of an earlier call, or give into=... a "
                "place where nothing is"
            )


def fork_state(storage: Storage, target: Storage, job: str, manifests: Collection[Manifest], batch: int) -> None:
    """Copy the state of a job, as ``copy_state`` does.

    Raises:
        ConfigurationError: there is state of another job as well.
    """
    others = sorted({one.application_id for one in manifests if not is_of(one.application_id, job)})
    if others:
        raise CannotContinueError(
            f"the query has state of application {others[0]!r}, too, which the fork of {job!r} would lack; make all "
            "verbs of the query with one Millpond"
        )
    copy_state(storage, target, [job], manifests, batch)

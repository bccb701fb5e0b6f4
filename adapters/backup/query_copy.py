"""A copy of a query as it was after a micro-batch: its checkpoint and its state, at places where nothing is yet.

Rule of this module: the original is only read, and may be running. What its query deletes meanwhile is no longer needed
by a later micro-batch, so the copy begins anew with that. The id of the query comes last: without it there is no
checkpoint.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

from millpond.adapters.backup.checkpoint_copy import CheckpointCopy
from millpond.adapters.backup.copied_files import StorageFiles
from millpond.adapters.backup.state_copy import copy_state, is_of, jobs_of
from millpond.adapters.inspect.spark_checkpoint import SparkCheckpoint, storage_at
from millpond.errors import ConfigurationError, MissingFileError
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import below, shown
from millpond.stores.evolution.history import current_manifests

_READ_AT_ONCE: Final = 8


@dataclass(frozen=True)
class QueryPlace:
    """Where a query has its checkpoint and its state: two paths or URIs.

    Attributes:
        checkpoint: its checkpointLocation.
        state_dir: its state directory.
    """

    checkpoint: str
    state_dir: str

    @classmethod
    def below(cls, directory: str) -> Self:
        """Both in a directory of their own."""
        return cls(below(directory, "checkpoint"), below(directory, "state"))

    @property
    def location(self) -> str:
        """The checkpoint as Spark finds it from any directory, without a slash at its end, or options of its URI."""
        storage = storage_at(self.checkpoint)
        return shown(self.checkpoint).rstrip("/") if storage.remote else storage.uri

    @property
    def state(self) -> Storage:
        """The state directory."""
        return Storage.from_uri(self.state_dir)


@dataclass(frozen=True)
class QueryCopy:
    """What was copied.

    Attributes:
        place: where the copy is.
        batch: the micro-batch after which it stands.
        files: the bytes of each file of its state, by its path below ``place.state_dir``.
    """

    place: QueryPlace
    batch: int
    files: dict[str, int]

    @property
    def size(self) -> int:
        """The bytes of its state."""
        return sum(self.files.values())

    def __str__(self) -> str:
        return f"micro-batch {self.batch}: {len(self.files)} files of state, {self.size:,} bytes"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it."""
        places = {"checkpoint": shown(self.place.checkpoint), "state_dir": shown(self.place.state_dir)}
        return {"batch": self.batch, **places, "files": len(self.files), "bytes": self.size}


def copy_query(original: QueryPlace, into: QueryPlace, batch: int | None = None, *, same: bool) -> QueryCopy:
    """Copy a query.

    Args:
        original: where it is.
        into: where nothing of it is yet.
        batch: the micro-batch after which the copy stands; None for the last one that is committed.
        same: whether the copy is the same query; otherwise its query has an id of its own.

    Raises:
        ConfigurationError: there is no such checkpoint or micro-batch, or something is there already where the copy is
            to be, or that is within the original.
        FormatError: the checkpoint, a manifest or a record is of a form that is not known.
        MissingFileError, CorruptFileError: a file is gone or damaged.
        DurabilityError: a storage failed.
    """
    checkpoint = SparkCheckpoint.at(original.checkpoint, _READ_AT_ONCE)
    _check_apart(original, into)
    while True:
        chosen = checkpoint.chosen(batch)
        try:
            return _copied(original, into, checkpoint, chosen, same)
        except (ConfigurationError, MissingFileError):
            if batch is not None or checkpoint.chosen(None) == chosen:
                raise


def _copied(original: QueryPlace, into: QueryPlace, checkpoint: SparkCheckpoint, batch: int, same: bool) -> QueryCopy:
    source, target = original.state, into.state
    manifests = current_manifests(source, checkpoint.manifests(batch), batch)
    jobs = jobs_of(source, manifests)
    _check_free(into, jobs)
    files = StorageFiles(original.location, checkpoint.storage, into.location, storage_at(into.checkpoint))
    copy = CheckpointCopy(files, files.old, files.new, batch, same)
    try:
        copied = copy_state(source, target, jobs, manifests, batch)
        copy.make()
    except BaseException:
        storage_at(into.checkpoint).delete_directory("")
        for job in target.directories(""):
            if any(is_of(job, one) for one in jobs):
                target.delete_directory(job)
        raise
    return QueryCopy(into, batch, copied)


def _check_apart(original: QueryPlace, into: QueryPlace) -> None:
    mine = [f"{shown(storage.uri)}/" for storage in (storage_at(original.checkpoint), original.state)]
    for place, storage in ((into.checkpoint, storage_at(into.checkpoint)), (into.state_dir, into.state)):
        if any(f"{shown(storage.uri)}/".startswith(one) for one in mine):
            raise ConfigurationError(
                f"{shown(place)} is within the checkpoint or the state directory that is copied "
                f"({shown(original.checkpoint)}, {shown(original.state_dir)}); give a place beside them"
            )


def _check_free(into: QueryPlace, jobs: set[str]) -> None:
    """Refuse places where something is that a copy would be mixed with."""
    checkpoint, state = storage_at(into.checkpoint), into.state
    if checkpoint.list("") or checkpoint.directories(""):
        raise ConfigurationError(
            f"there is something at {shown(into.checkpoint)} already; stop its query and move it away, or give a "
            "place where nothing is"
        )
    there = [one for one in state.directories("") if any(is_of(one, job) for job in jobs)]
    if there:
        raise ConfigurationError(
            f"{shown(into.state_dir)} has state of application {there[0]!r} already; stop its query and move "
            f"{', '.join(map(state.describe, there))} away, or give a place where nothing of it is"
        )

"""A copy of a query as it was after a micro-batch: its checkpoint and its state, at places where nothing is yet.

Rule of this module: the original is only read, and may be running. What its query deletes meanwhile is no longer needed
by a later micro-batch, so the copy begins anew with that. The id of the query comes last: without it there is no
checkpoint.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Self

from millpond.adapters.backup.checkpoint_copy import CheckpointCopy
from millpond.adapters.backup.copied_files import StorageFiles
from millpond.adapters.backup.state_copy import alone_at, check_free, copy_state, delete_state, jobs_of
from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint, storage_at
from millpond.errors import ConfigurationError, InvalidArgumentError, MissingFileError, PlaceTakenError
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import below, shown
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.specs.directory import check_plain_name

_READ_AT_ONCE: Final = 8
_COPYING: Final = "copying"
"""A file in a checkpoint that is not whole yet."""


@dataclass(frozen=True)
class QueryPlace:
    """The place of a query: the paths or URIs of its checkpoint and its state.

    Attributes:
        checkpoint: its checkpointLocation.
        state_dir: its state directory.
    """

    checkpoint: str
    state_dir: str

    @classmethod
    def below(cls, directory: str) -> Self:
        """Return the place whose two parts are below one directory."""
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
    """The result of copying a query.

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
        """Return the same as JSON has it."""
        places = {"checkpoint": shown(self.place.checkpoint), "state_dir": shown(self.place.state_dir)}
        return {"batch": self.batch, **places, "files": len(self.files), "bytes": self.size}


def copy_query(
    original: QueryPlace,
    into: QueryPlace,
    batch: int | None = None,
    *,
    same: bool,
    application_id: str | None = None,
) -> QueryCopy:
    """Copy a query.

    Args:
        original: where it is.
        into: where nothing of it is yet.
        batch: the micro-batch after which the copy stands; None for the last one that is committed.
        same: whether the copy is the same query; otherwise its query has an id of its own.
        application_id: the id of the copy's job; None for the original's id.

    Raises:
        ConfigurationError: there is no such checkpoint or micro-batch, or something is there already where the copy is
            to be, or that is within the original; or the application id is no name of a directory, or that of the
            original, or the query has several jobs, whose ids it cannot take the place of.
        FormatError: the checkpoint, a manifest or a record is of a form that is not known.
        MissingFileError, CorruptFileError: a file is gone or damaged.
        DurabilityError: a storage failed.
    """
    if application_id is not None:
        check_plain_name("application id", application_id)
    checkpoint = SparkCheckpoint.at(original.checkpoint, _READ_AT_ONCE)
    _check_apart(original, into)
    while True:
        chosen = checkpoint.chosen(batch)
        try:
            return _copied(original, into, checkpoint, chosen, same, application_id)
        except (ConfigurationError, MissingFileError):
            if batch is not None or checkpoint.chosen(None) == chosen:
                raise


def _copied(
    original: QueryPlace,
    into: QueryPlace,
    checkpoint: SparkCheckpoint,
    batch: int,
    same: bool,
    application_id: str | None,
) -> QueryCopy:
    source, target, place = original.state, into.state, storage_at(into.checkpoint)
    manifests = current_manifests(source, checkpoint.manifests(batch), batch)
    jobs = jobs_of(source, manifests)
    renamed = None if application_id is None else (_only(jobs, application_id), application_id)
    there = jobs if application_id is None else {application_id}
    files = StorageFiles(original.location, checkpoint.storage, into.location, place)
    copy = CheckpointCopy(files, files.old, files.new, batch, same, renamed)
    _check_free(into, place, [])
    check_free(target, there)
    with alone_at(place, _COPYING):
        _check_free(into, place, [_COPYING])
        copied = copy_state(source, target, jobs, manifests, batch, renamed)
        try:
            copy.make()
        except BaseException:
            place.delete_directory("")
            delete_state(target, there)
            raise
    return QueryCopy(into, batch, copied)


def _only(jobs: Collection[str], application_id: str) -> str:
    """Return the application id of the only job, which is to have another one."""
    if len(jobs) != 1 or application_id in jobs:
        ids = ", ".join(map(repr, sorted(jobs)))
        raise InvalidArgumentError(
            f"the application id of the original is {ids}, and that of the copy cannot be {application_id!r}; "
            + ("give another" if len(jobs) == 1 else "only the id of a single job can be another, so give none")
        )
    return next(iter(jobs))


def _check_apart(original: QueryPlace, into: QueryPlace) -> None:
    mine = [f"{shown(storage.uri)}/" for storage in (storage_at(original.checkpoint), original.state)]
    for place, storage in ((into.checkpoint, storage_at(into.checkpoint)), (into.state_dir, into.state)):
        if any(f"{shown(storage.uri)}/".startswith(one) for one in mine):
            raise PlaceTakenError(
                f"{shown(place)} is within the checkpoint or the state directory that is copied "
                f"({shown(original.checkpoint)}, {shown(original.state_dir)}); give a place beside them"
            )


def _check_free(into: QueryPlace, place: Storage, own: Collection[str]) -> None:
    """Refuse a place for the checkpoint where something is, other than files of one's own."""
    if {file.path for file in place.list("")} - {*own} or place.directories(""):
        raise PlaceTakenError(
            f"something already exists at {shown(into.checkpoint)}; stop its query and move it away, or give a "
            "place where nothing is"
        )

"""The durable state of a job as it was after a micro-batch, in another state directory.

Rule of this module: it copies what that version of the state is made of, and what says what it is: claims, schemas and
records. Records of later generations stay behind, and so do notes of queries, letters and late rows, which are not the
fork's.
"""

from collections.abc import Collection, Iterator
from typing import Final

from millpond.adapters.spark.continuation.files import at_once
from millpond.errors import ConfigurationError, MissingFileError
from millpond.stores.durability.manifests.claim import is_claim
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import is_schema
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.history import History, record_path, sinks_of
from millpond.stores.evolution.record import EvolutionRecord

_CHUNK: Final = 1 << 24


def fork_state(storage: Storage, target: Storage, job: str, manifests: Collection[Manifest], batch: int) -> None:
    """Copy the state of a job.

    Args:
        storage: where it is.
        target: where nothing is yet.
        job: the application id of the job; its verbs have ids of their own below that.
        manifests: with which its tasks go on after the micro-batch.
        batch: the micro-batch.

    Raises:
        ConfigurationError: there is state of another job, or a file of that version is no longer retained.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: a storage failed.
    """
    applications = [one for one in storage.directories("") if _is_of(one, job)]
    others = sorted({one.application_id for one in manifests if not _is_of(one.application_id, job)})
    if others:
        raise ConfigurationError(
            f"the query has state of application {others[0]!r}, too, which the fork of {job!r} would lack; make all "
            "verbs of the query with one Millpond"
        )
    records = dict(one for application in applications for one in _records(storage, application, batch))
    running = {(one.application_id, one.task_id) for one in manifests}
    bases = [base for record in records.values() for base in record.bases.values()]
    yet = [base for base in bases if (base.application_id, base.task_id) not in running]
    files = {one.path(file) for one in (*manifests, *yet) for file in one.files}
    about = [file.path for application in applications for file in storage.list(application) if _tells(file.path)]
    at_once(lambda path: _copy(storage, target, path, batch), [*files, *about, *records])


def _is_of(application: str, job: str) -> bool:
    return f"{application}.".startswith(f"{job}.")


def _records(storage: Storage, application: str, batch: int) -> Iterator[tuple[str, EvolutionRecord]]:
    """The records of the generations that there were by then, by their paths."""
    for sink in sinks_of(storage, application):
        history = History.of(storage, application, sink)
        for record in history.records[history.led_on :]:
            if record.applies_to(batch + 1):
                yield record_path(application, sink, record.generation), record


def _tells(path: str) -> bool:
    """Whether a file tells what the state is."""
    name = path.rpartition("/")[2]
    return is_claim(name) or is_schema(name)


def _copy(storage: Storage, target: Storage, path: str, batch: int) -> None:
    try:
        with storage.reading(path) as source, target.writing(path) as copy:
            while part := source.read(_CHUNK):
                copy.write(part)
    except MissingFileError as error:
        raise ConfigurationError(
            f"{storage.describe(path)} is gone, which the state after micro-batch {batch} needs; give after=... a "
            "later micro-batch"
        ) from error

"""The durable state of jobs as it was after a micro-batch, in another state directory.

Rule of this module: it copies what that version of the state is made of, and what says what it is: claims, schemas and
records. Records of later generations stay behind, and so do notes of queries, letters and late rows.
"""

from collections.abc import Collection, Iterator

from millpond.adapters.backup.copied_files import at_once, copy_file
from millpond.errors import ConfigurationError, MissingFileError
from millpond.stores.durability.manifests.claim import is_claim
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import is_schema
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.history import History, record_path, sinks_of
from millpond.stores.evolution.record import EvolutionRecord


def jobs_of(storage: Storage, manifests: Collection[Manifest]) -> set[str]:
    """The application ids of the jobs that have made manifests; of verbs, that of the ``Millpond`` that has them.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    applications = {one.application_id for one in manifests}
    jobs = {one: {History.of(storage, one, sink).job for sink in sinks_of(storage, one)} for one in applications}
    return {job for application, found in jobs.items() for job in found or {application}}


def is_of(application: str, job: str) -> bool:
    """Whether an application is a job's own, or that of a verb of it."""
    return f"{application}.".startswith(f"{job}.")


def copy_state(
    storage: Storage, target: Storage, jobs: Collection[str], manifests: Collection[Manifest], batch: int
) -> dict[str, int]:
    """Copy the state of jobs.

    Args:
        storage: where it is.
        target: where nothing is yet.
        jobs: their application ids; verbs have ids of their own below those.
        manifests: with which tasks go on after the micro-batch.
        batch: the micro-batch.

    Returns:
        The bytes of each file, by its path in either.

    Raises:
        ConfigurationError: a file of that version is no longer retained.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: a storage failed.
    """
    applications = [one for one in storage.directories("") if any(is_of(one, job) for job in jobs)]
    histories = [History.of(storage, one, sink) for one in applications for sink in sinks_of(storage, one)]
    records = [record_path(one.application_id, one.sink, number) for one in histories for number in _made(one, batch)]
    files = {one.path(file) for one in (*manifests, *_beginning(histories, manifests, batch)) for file in one.files}
    about = [file.path for application in applications for file in storage.list(application) if _tells(file.path)]
    wanted = [*files, *about, *records]
    return dict(zip(wanted, at_once(lambda path: _copied(storage, target, path, batch), wanted), strict=True))


def _made(history: History, batch: int) -> dict[int, EvolutionRecord]:
    """The records of the generations that there were by then, by their numbers."""
    kept = history.records[history.led_on :]
    return {record.generation: record for record in kept if record.applies_to(batch + 1)}


def _beginning(histories: Collection[History], manifests: Collection[Manifest], batch: int) -> Iterator[Manifest]:
    """With what tasks begin that have had nothing to do by then; not those of verbs that are gone."""
    running = {(one.application_id, one.task_id) for one in manifests}
    there = {one.application_id for one in manifests}
    for history in histories:
        newest = list(_made(history, batch).values())[-1:]
        if history.application_id in there or not history.has_gone([], batch, batch):
            bases = (base for record in newest for base in record.bases.values())
            yield from (base for base in bases if (base.application_id, base.task_id) not in running)


def _tells(path: str) -> bool:
    """Whether a file tells what the state is."""
    name = path.rpartition("/")[2]
    return is_claim(name) or is_schema(name)


def _copied(storage: Storage, target: Storage, path: str, batch: int) -> int:
    try:
        return copy_file(storage, path, target, path)
    except MissingFileError as error:
        raise ConfigurationError(
            f"{storage.describe(path)} is gone, which the state after micro-batch {batch} needs; choose a later "
            "micro-batch"
        ) from error

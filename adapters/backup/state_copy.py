"""The durable state of jobs as it was after a micro-batch, in another state directory.

Rule of this module: it copies what that version of the state is made of, and what says what it is: claims, schemas and
records. Records of later generations stay behind, and so do notes of queries, letters and late rows.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from millpond.adapters.backup.copied_files import at_once, copy_file
from millpond.errors import MicroBatchNotKeptError, MissingFileError, PlaceTakenError
from millpond.stores.durability.manifests.claim import is_claim
from millpond.stores.durability.manifests.former_names import is_former_name, note_former_name, under
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import is_schema
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.evolution.history import History, record_path, sinks_of
from millpond.stores.evolution.record import EvolutionRecord


def jobs_of(storage: Storage, manifests: Collection[Manifest]) -> set[str]:
    """Return the application ids of the jobs that have made manifests; for verbs, the id of their ``Millpond``.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    applications = {one.application_id for one in manifests}
    jobs = {one: {History.of(storage, one, sink).job for sink in sinks_of(storage, one)} for one in applications}
    return {job for application, found in jobs.items() for job in found or {application}}


def is_of(application: str, job: str) -> bool:
    """Return whether an application is a job's own, or that of a verb of it."""
    return f"{application}.".startswith(f"{job}.")


@contextmanager
def alone_at(target: Storage, path: str) -> Iterator[None]:
    """Within it, nobody else makes a copy at a place. Who dies within it leaves a file, and nobody does afterwards.

    Args:
        target: the storage.
        path: the file, which is there as long as a copy is made.

    Raises:
        ConfigurationError: another process makes one, or has died while it did.
        DurabilityError: the storage failed.
    """
    mine = uuid4().hex.encode()
    target.put_once(path, mine)
    try:
        is_mine = target.read(path) == mine
    except MissingFileError:  # that of somebody else, who has just come to the end
        is_mine = False
    if not is_mine:
        raise PlaceTakenError(
            f"there is {target.describe(path)} already: a copy is being made there, or was interrupted; give another "
            "place, or delete what is there if nobody writes it any more"
        )
    try:
        yield
    finally:
        target.delete(path)


def check_free(target: Storage, jobs: Collection[str]) -> None:
    """Refuse a state directory that has state of jobs, with which a copy would be mixed.

    Raises:
        ConfigurationError: it has.
        DurabilityError: the storage failed.
    """
    there = _of_jobs(target, jobs)
    if there:
        raise PlaceTakenError(
            f"{shown(target.uri)} has state of application {there[0]!r} already; stop its query and move "
            f"{', '.join(map(target.describe, there))} away, or give a place where nothing of it is"
        )


def delete_state(target: Storage, jobs: Collection[str]) -> None:
    """Delete all state of jobs.

    Raises:
        DurabilityError: the storage failed.
    """
    for application in _of_jobs(target, jobs):
        target.delete_directory(application)


def _of_jobs(storage: Storage, jobs: Collection[str]) -> list[str]:
    return [one for one in storage.directories("") if any(is_of(one, job) for job in jobs)]


def copy_state(
    storage: Storage,
    target: Storage,
    jobs: Collection[str],
    manifests: Collection[Manifest],
    batch: int,
    renamed: tuple[str, str] | None = None,
) -> dict[str, int]:
    """Copy the state of jobs.

    Args:
        storage: where it is.
        target: where nothing is yet.
        jobs: their application ids; verbs have ids of their own below those.
        manifests: with which tasks go on after the micro-batch.
        batch: the micro-batch.
        renamed: the application id of the only job, and that which it has in the copy; None if it keeps it.

    Returns:
        The bytes of each file, by its path in the copy.

    Raises:
        ConfigurationError: a file of that version is no longer retained, or the target has state of such a job, or
            gets it from somebody else; then nothing is written.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: a storage failed.
    """
    names = _Names(renamed)
    there = [names.of(job) for job in jobs]
    check_free(target, there)
    with ExitStack() as alone:
        for job in sorted(there):
            alone.enter_context(alone_at(target, f"copying-{job}"))
        check_free(target, there)
        try:
            return _copy(storage, target, jobs, manifests, batch, names)
        except BaseException:
            delete_state(target, there)
            raise


@dataclass(frozen=True)
class _Names:
    """The application ids of a copy.

    Attributes:
        renamed: the id of the job, and that of the copy; None if all stay.
    """

    renamed: tuple[str, str] | None

    def of(self, application: str) -> str:
        """Return the name that an application has in the copy."""
        return application if self.renamed is None else under(application, *self.renamed) or application

    def at(self, path: str) -> str:
        """Return the path that a file has in the copy."""
        application, _, rest = path.partition("/")
        return f"{self.of(application)}/{rest}"


def _copy(
    storage: Storage,
    target: Storage,
    jobs: Collection[str],
    manifests: Collection[Manifest],
    batch: int,
    names: _Names,
) -> dict[str, int]:
    applications = _of_jobs(storage, jobs)
    histories = [History.of(storage, one, sink) for one in applications for sink in sinks_of(storage, one)]
    records = [record_path(one.application_id, one.sink, number) for one in histories for number in _made(one, batch)]
    files = {one.path(file) for one in (*manifests, *_beginning(histories, manifests, batch)) for file in one.files}
    about = [file.path for application in applications for file in storage.list(application) if _tells(file.path)]
    wanted = [*files, *about]
    copied = at_once(lambda path: _copied(storage, target, path, names.at(path), batch), wanted)
    sizes = dict(zip(wanted, copied, strict=True))
    sizes |= {path: _copy_record(storage, target, path, names) for path in records}
    if names.renamed is not None:
        for application in applications:
            note_former_name(target, names.of(application), application)
    return {names.at(path): size for path, size in sizes.items()}


def _copy_record(storage: Storage, target: Storage, path: str, names: _Names) -> int:
    """Copy a record, whose manifests are of the application's name in the copy."""
    content = storage.read(path)
    record = EvolutionRecord.from_json(content.decode(errors="replace"))
    bases = {task: replace(base, application_id=names.of(base.application_id)) for task, base in record.bases.items()}
    if bases != record.bases:
        content = replace(record, bases=bases).to_json().encode()
    target.put(names.at(path), content)
    return len(content)


def _made(history: History, batch: int) -> dict[int, EvolutionRecord]:
    """Return the records of the generations that there were by then, by their numbers."""
    kept = history.records[history.led_on :]
    return {record.generation: record for record in kept if record.applies_to(batch + 1)}


def _beginning(histories: Collection[History], manifests: Collection[Manifest], batch: int) -> Iterator[Manifest]:
    """Yield manifests with which tasks begin that had nothing to do by then; not those of verbs that are gone."""
    running = {(one.application_id, one.task_id) for one in manifests}
    there = {one.application_id for one in manifests}
    for history in histories:
        newest = list(_made(history, batch).values())[-1:]
        if history.application_id in there or not history.has_gone([], batch, batch, lambda: histories):
            bases = (base for record in newest for base in record.bases.values())
            yield from (base for base in bases if (base.application_id, base.task_id) not in running)


def _tells(path: str) -> bool:
    """Return whether a file tells what the state is."""
    name = path.rpartition("/")[2]
    return is_claim(name) or is_schema(name) or is_former_name(name)


def _copied(storage: Storage, target: Storage, path: str, place: str, batch: int) -> int:
    try:
        return copy_file(storage, path, target, place)
    except MissingFileError as error:
        raise MicroBatchNotKeptError(
            f"{storage.describe(path)} is gone, which the state after micro-batch {batch} needs; choose a later "
            "micro-batch"
        ) from error

"""Advice about damage in the state of a task: a note on the error that reports it.

Rule of this module: the code that finds a damaged row says what is damaged, and knows no task. The code that opened the
task's stores adds the note, which traces and the command line show below the message.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.errors import CorruptStoreError
from millpond.masking import without_known
from millpond.stores.backend.contract import Backend
from millpond.stores.durability.copies.restore import entries
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import COMMIT_ROW, DATA
from millpond.stores.specs.store_spec import StoreSpec


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes reports damage, found by the engine or where a row is read."""
    while error is not None and not isinstance(error, CorruptStoreError):
        error = error.__cause__ or error.__context__
    return error is not None


def contradicts(backend: Backend, spec: StoreSpec, manifest: Manifest, source: FileSource) -> bool:
    """Return whether a local copy, which is at ``manifest``, has other metadata than the durable files.

    Raises:
        DurabilityError: the durable files cannot be read.
    """
    own = {row: data for row, data in backend.scan(None, DATA) if row != COMMIT_ROW}
    return own != dict(entries(source, manifest, spec.name, spec.kind.format_version, span=Span(b"", DATA)))


def advise(error: BaseException, advice: str) -> None:
    """Add a note to an error, once, with the advice."""
    note = without_known(advice)
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def restored_next(task: str, local: Path, storage: Storage) -> str:
    """Return the advice after local copies that may have the damage were thrown away."""
    return (
        f"the local copies of {task} in {local} were thrown away, and the next attempt restores them from "
        f"{storage.describe('')}; start the query again if it has ended"
    )


def held_by_files(owner: str, storage: Storage) -> str:
    """Return the advice where durable files, which are as they were written, have the damage."""
    return (
        f"the durable files of {owner} in {storage.describe('')} hold it; read it with the serdes and the release that "
        "wrote it, or go back to an earlier micro-batch"
    )


@contextmanager
def advising_of_files(owner: str, storage: Storage) -> Iterator[None]:
    """Add a note to an error of damage in durable files that are read without local copies."""
    try:
        yield
    except CorruptStoreError as error:
        advise(error, held_by_files(owner, storage))
        raise


def task_of(application_id: str, task_id: str) -> str:
    """Return a task's name for notes."""
    return f"task {task_id!r} of application {application_id!r}"

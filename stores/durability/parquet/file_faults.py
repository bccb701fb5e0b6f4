"""The faults of a durable file: it is gone, it is damaged, or the storage fails.

Rule of this module: it tells these apart, and reads no rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from millpond.errors import CorruptFileError, MissingFileError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.storage.durable_file import DurableFile
from millpond.stores.durability.storage.storage import Storage


def broken_file(storage: Storage, manifest: Manifest) -> MissingFileError | CorruptFileError | None:
    """Return the error for the first file of ``manifest`` that is gone or has another size.

    One question shows that all is well. A listing may lag behind, so files that it lacks are looked for by name.

    Raises:
        DurabilityError: the storage failed.
    """
    if not manifest.files:
        return None
    sizes = storage.sizes(manifest.directory, [file.name for file in manifest.stored])
    for file in manifest.stored:
        if sizes.get(file.name) == file.size:
            continue
        try:
            with storage.reading(manifest.path(file)) as source:
                size = source.size()
        except MissingFileError:
            return missing_file(storage, manifest, file)
        if size != file.size:
            return _corrupt_file(storage, manifest, file, f"it has {size} bytes instead of {file.size}")
    return None


def missing_file(source: FileSource, manifest: Manifest, file: DurableFile) -> MissingFileError:
    """Return the error for a file of ``manifest`` that is gone."""
    return MissingFileError(
        f"the file {source.describe(manifest.path(file))} is gone, but the manifest of task {manifest.task_id!r} of "
        f"application {manifest.application_id!r} at commit {manifest.sequence} ({manifest.commit}) needs it; put it "
        "back, or restart the query at a batch whose files are all there"
    )


@contextmanager
def blaming(source: FileSource, manifest: Manifest, file: DurableFile) -> Iterator[None]:
    """Turn a failure to read a file into the error that blames the storage or the file."""
    path = manifest.path(file)
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:  # Arrow's own, for names and columns
        source.probe(path)
        raise _corrupt_file(source, manifest, file, error) from error


def _corrupt_file(source: FileSource, manifest: Manifest, file: DurableFile, fault: object) -> CorruptFileError:
    return CorruptFileError(
        f"the file {source.describe(manifest.path(file))} of task {manifest.task_id!r} is damaged: {fault}; put an "
        "undamaged copy back, or restart the query at a batch that does not need it"
    )

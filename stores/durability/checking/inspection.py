"""Reading a store's content at any manifest whose files are retained, without a task and without its local copy."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

from millpond.errors import BackendError
from millpond.stores.backend.contract import Backend, Changes, Entries
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.damage import advising_of_files, task_of
from millpond.stores.durability.copies.restore import entries, restore
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.known_keys import KnownKeys
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.store import Store
from millpond.stores.typed.versions.version_rows import JUST_ABOVE, plain_bounds


class DurableRows(Backend):
    """The rows of one store at one manifest, read from the durable files each time, but for the metadata.

    Of large files, only the row groups that can hold the keys asked for are read; of small ones, the keys once, and the
    rows if they have one of these keys.

    Args:
        source: the source of the files.
        manifest: the version.
        name: the name of the store.
        version: the local format of the rows.
    """

    def __init__(self, source: FileSource, manifest: Manifest, name: str, version: FormatVersion) -> None:
        self._source = source
        self._known = KnownKeys(source, manifest, name)
        self._name = name
        self._version = version

    def get(self, key: bytes) -> bytes | None:
        if key < DATA:
            return self._metadata.get(key)
        return next((value for found, value in self._rows(key, key + JUST_ABOVE)), None)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        rows = self._rows(start or b"", stop)
        return reversed(list(rows)) if reverse else rows

    @cached_property
    def _metadata(self) -> dict[bytes, bytes]:
        return dict(self._rows(b"", DATA))

    def _rows(self, start: bytes, stop: bytes | None) -> Entries:
        name, version = self._name, self._version
        bounds = plain_bounds(start, stop) if version is FormatVersion.LATEST_APART else (start, stop)
        span = Span(*bounds)
        for key, value in entries(self._source, self._known.having(span), name, version, span=span):
            if stop is not None and key >= stop:
                return
            if key >= start:
                yield key, value

    def write(self, changes: Changes) -> None:
        self._refuse()

    def flush(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BackendError(f"the durable rows of store {self._name!r} are read only; open the task to change them")

    def close(self) -> None:
        """Do nothing, as nothing is held open."""


def read_rows(
    storage: Storage, manifest: Manifest, spec: StoreSpec, *, deletes: bool = False
) -> Iterator[tuple[Any, Any, int | None]]:
    """Yield each key, value and timestamp that the store held at ``manifest``.

    The timestamp is None for plain stores. For a versioned store, every version of every key comes with its
    ``valid_from``. The keys of window and session stores are ``Windowed``; these are read into memory first, the others
    as a stream. With ``deletes``, the times from which a key had no value come as well, without a value.

    Raises:
        MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
        CorruptStoreError: a row is damaged, or another serde wrote it.
    """
    with advising_of_files(task_of(manifest.application_id, manifest.task_id), storage):
        if deletes and spec.versioned:
            yield from _with_deletes(_content(storage, manifest, spec))
            return
        for key, found in _content(storage, manifest, spec):
            yield (key, found.value, found.timestamp) if spec.kind.stamped else (key, found, None)


def read_versions(
    storage: Storage, manifest: Manifest, spec: StoreSpec
) -> Iterator[tuple[Any, Any, int | None, int | None]]:
    """Yield the same of a versioned store, with the ``valid_to`` of each version; None for those that are valid now.

    Raises as ``read_rows``.
    """
    with advising_of_files(task_of(manifest.application_id, manifest.task_id), storage):
        for key, found in _content(storage, manifest, spec):
            yield key, found.value, found.timestamp, found.valid_to


def _with_deletes(entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any, int]]:
    """Yield versions, oldest first for each key, and the ends of those that another does not follow at once."""
    entry = next(entries, None)
    while entry is not None:
        key, version = entry
        yield key, version.value, version.timestamp
        entry = next(entries, None)
        follows = entry is not None and entry[0] == key and entry[1].timestamp == version.valid_to
        if version.valid_to is not None and not follows:
            yield key, None, version.valid_to


def _content(storage: Storage, manifest: Manifest, spec: StoreSpec) -> Iterator[tuple[Any, Any]]:
    if spec.kind.in_segments:
        # The files are in the order of the rows, and here that is not the order of the keys.
        store: Any = read_store(storage, manifest, spec)
        return iter(store.fetch_keys())
    store = spec.open_read_only(Transaction(DurableRows(storage, manifest, spec.name, spec.kind.format_version)))
    return iter(store.scan())


def read_store(storage: Storage, manifest: Manifest, spec: StoreSpec) -> Store[Any, Any]:
    """Return the store at ``manifest``, in memory, as the read-only half of its kind.

    Raises:
        MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
    """
    backend = MemoryBackend()
    with advising_of_files(task_of(manifest.application_id, manifest.task_id), storage):
        restore(backend, storage, manifest, spec.name, spec.kind.format_version)
        return spec.open_read_only(Transaction(backend))

"""``StorePart``: one task's part of a store, as rows.

Rule of this module: it reads durable files and nothing else, so any process that reaches the state directory can do it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.adapters.inspect.selection import EVERYTHING, Selection
from millpond.adapters.inspect.store_form import Entry, StoreForm
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.durability.copies.damage import advising_of_files, task_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.typed.terms import KeptTerms, kept_terms


@dataclass(frozen=True)
class StorePart:
    """One task's part of a store. Can be pickled, and be read wherever the state directory can be reached.

    Attributes:
        storage: the state directory.
        manifest: the version of the task's state.
        form: how rows are read and shown.
    """

    storage: Storage
    manifest: Manifest
    form: StoreForm

    @property
    def task_id(self) -> str:
        """The task."""
        return self.manifest.task_id

    def rows(self, selection: Selection = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """Return the rows that are asked for, as a stream.

        Raises:
            ConfigurationError, SerdeError: the selection does not fit the store, or a row cannot be read.
            MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
            FormatError: it is of a later release.
        """
        return self._read(lambda store: self.form.entries(store, selection))

    def rows_of(self, key: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows of one key, given as it is stored; of a versioned store, its latest version.

        Raises what ``rows`` raises.
        """
        return self._read(lambda store: self.form.entries_of(store, key))

    def history_of(self, key: bytes, as_of: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all versions of one key of a versioned store, the oldest first, or the one that was valid at a time.

        Raises what ``rows`` raises.
        """

        def versions(store: Any) -> Iterator[Entry]:
            return ((key, version) for version in store.history(key, as_of, as_of))

        return self._read(versions)

    def kept_terms(self) -> KeptTerms:
        """Return the terms with which its rows were made.

        Raises what ``rows`` raises.
        """
        with self._durable() as rows:
            return kept_terms(self.form.name, None, rows)

    def _read(self, entries: Callable[[Any], Iterable[Entry]]) -> Iterator[pa.RecordBatch]:
        with self._opened() as store:
            yield from self.form.batches(entries(store))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The store."""
        with self._durable() as rows:
            yield self.form.open(rows)

    @contextmanager
    def _durable(self) -> Iterator[DurableRows]:
        """Yield the durable rows of the part; each file is opened once however much of it is read."""
        owner = task_of(self.manifest.application_id, self.manifest.task_id)
        with advising_of_files(owner, self.storage), Fetched(self.storage, self.manifest) as source:
            yield DurableRows(source, self.manifest, self.form.name, self.form.kind.format_version)

"""``StoreView``: one store of a query as it was after one micro-batch.

Rule of this module: it asks as few tasks as can have what is wanted. Where the key of a record decides in which task
its rows are, that task is asked first, and the others, several at once, only if it has none: a processor of the user's
may keep what it likes in the store of any task.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.selection import EVERYTHING, Selection
from millpond.adapters.inspect.store_form import StoreForm
from millpond.adapters.inspect.store_part import StorePart
from millpond.errors import StoreKindError
from millpond.stores.durability.parquet.prefetch import called_ahead
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.times import Instant
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.typed.terms import KeptTerms

_AT_ONCE: Final = 4
"""The number of tasks that are asked at once for a key that its own task does not have."""


@dataclass(frozen=True)
class StoreView:
    """One store after one micro-batch. Can be pickled.

    Attributes:
        application_id: the application, which for a verb ends with a dot and the verb's name.
        sink: the plain name of the sink that the store's query writes.
        batch: the micro-batch.
        shape: the store's shape, by the record of the state.
        partitions: how many tasks share its keys.
        form: how its rows are read and shown.
        parts: the part of each task, by task; tasks that never got a record have none. A global table, whose tasks have
            all rows each, has a single part.
    """

    application_id: str
    sink: str
    batch: int
    shape: StoreShape
    partitions: int
    form: StoreForm
    parts: Sequence[StorePart]

    @property
    def name(self) -> str:
        """The store's name."""
        return self.shape.name

    @property
    def kind(self) -> str:
        """The name of its kind, such as ``"timestamped-key-value"``."""
        return self.shape.kind.value

    @property
    def value_serde(self) -> str:
        """The name of what reads its values; of an aggregate, with the functions that it has now."""
        return self.form.value.serde or self.shape.value_serde

    @property
    def versioned(self) -> bool:
        """True if the store keeps the versions of a key."""
        return self.shape.kind.versioned

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows; see ``millpond.adapters.inspect.store_form``."""
        return self.form.schema

    @cached_property
    def terms(self) -> KeptTerms:
        """The terms of its rows, with those that tasks have got since the record was written.

        Raises what ``rows`` raises.
        """
        found = [part.kept_terms() for part in self.parts]
        if self.shape.terms is not None:
            found.insert(0, self.shape.terms.kept)
        fixed = {name: value for terms in found for name, value in terms.fixed.items()}
        return KeptTerms(fixed, {name: value for terms in found for name, value in terms.noted.items()})

    def rows(self, selection: Selection = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """Return the rows that are asked for, task by task, as a stream.

        Raises:
            ConfigurationError, SerdeError: the selection does not fit the store, or a row cannot be read.
            MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
            FormatError: it is of a later release.
        """
        return chain.from_iterable(part.rows(selection) for part in self.parts)

    def get(self, key: Any, as_of: Instant | None = None) -> pa.Table | None:
        """Return the rows of a key: one, or one for each window or session; None if there are none.

        Args:
            key: as the store's serde takes it; of a verb, the values of its key's columns, in order or by name.
            as_of: of a versioned store, the time whose version is wanted, as milliseconds since 1970 or a datetime;
                None for the latest.

        Raises what ``rows`` raises.
        """
        data = self.form.key.to_bytes(key)
        if as_of is None:
            return self._first(lambda part: part.rows_of(data), data)
        time = self.form.instant(as_of)
        return self._first(lambda part: part.history_of(data, time), data)

    def history(self, key: Any) -> pa.Table:
        """Return all versions of a key of a versioned store, the oldest first; deletes only end a version.

        Raises:
            ConfigurationError: the store keeps no versions.
            Exception: what ``rows`` raises.
        """
        if not self.versioned:
            raise StoreKindError(
                f"store {self.name!r} is of kind {self.kind} and keeps no versions; get tells what it has for a key"
            )
        data = self.form.key.to_bytes(key)
        found = self._first(lambda part: part.history_of(data), data)
        return self.schema.empty_table() if found is None else found

    def _first(self, read: Callable[[StorePart], Iterable[pa.RecordBatch]], key: bytes) -> pa.Table | None:
        """Return the rows that the task of the key has; if it has none, those of the first other task with any."""
        for parts in self._likely(key):
            with closing(called_ahead([partial(self._table, read, part) for part in parts], _AT_ONCE)) as tables:
                found = next((table for table in tables if table.num_rows), None)
            if found is not None:
                return found
        return None

    def _table(self, read: Callable[[StorePart], Iterable[pa.RecordBatch]], part: StorePart) -> pa.Table:
        return pa.Table.from_batches(list(read(part)), self.schema)

    def _likely(self, key: bytes) -> tuple[list[StorePart], list[StorePart]]:
        """Return the part whose task records of this key go to, and the others."""
        task_id = f"{self.shape.subtopology}_{partition_of(key, self.partitions)}"
        own = [part for part in self.parts if part.task_id == task_id]
        return own, [part for part in self.parts if part.task_id != task_id]

"""The common part of filter, map_values and transform_values: a table made of another, value by value.

Such a table has a store only if it asks for one. Without one it is read through its parent: the operation is applied to
what the parent's view finds.

A row for which the operation fails is not in the new table, if the policy leaves such records out. So it makes no
difference whether the new table has a store, and no reader sees a value that its parent has lost.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, nulls
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.table_view import Found, TableView
from millpond.processors.tables.writer import TableProcessor, without_repeated_tombstones


class TableOperation(ABC):
    """The function from the old table's keys and values to the new values."""

    drops_repeated_tombstones: bool = False
    """True if an update from no value to no value is unnecessary when the old value is known."""

    @abstractmethod
    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        """Return the new values, in the order of the old."""

    def apply_columns(self, keys: Array, values: Array) -> Array | None:
        """Return ``apply`` of columns; None if it needs objects."""
        return None

    @abstractmethod
    def read(self, key: Any, found: Found) -> Found:
        """Return the result of a look-up in the new table, from that of the old table, ``found``."""


class OperationView(TableView):
    """Reads a table without a store through its parent."""

    def __init__(self, parent: TableView, operation: TableOperation, context: ProcessorContext) -> None:
        self._parent = parent
        self._read = readable(operation.read, context)
        self.versioned = parent.versioned

    def get(self, key: Any) -> Found:
        return self._read(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        return self._read(key, self._parent.get_as_of(key, timestamp))

    def get_many(self, keys: Sequence[Any]) -> list[Found]:
        return list(map(self._read, keys, self._parent.get_many(keys)))

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[Found]:
        return list(map(self._read, keys, self._parent.get_many_as_of(keys, timestamps)))

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, Found]]:
        return [(time, self._read(key, found)) for time, found in self._parent.steps(key, earliest, until)]

    def step_after(self, key: Any, time: int) -> tuple[int, Found] | None:
        step = self._parent.step_after(key, time)
        return None if step is None else (step[0], self._read(key, step[1]))

    def horizon(self) -> int | None:
        return self._parent.horizon()

    def history_retention(self) -> int:
        return self._parent.history_retention()


def readable(read: Callable[..., Found], context: ProcessorContext) -> Callable[..., Found]:
    """Return ``read``, but finding nothing where it fails, if the policy leaves such records out; they were counted."""
    if not context.leaves_out:
        return read

    def read_or_nothing(*arguments: Any) -> Found:
        try:
            return read(*arguments)
        except Exception as error:  # a user's code may raise anything
            context.check(error)
            return None

    return read_or_nothing


class TableOperator(TableProcessor):
    """Applies an operation to each update, new value and old, and puts the results into the store if there is one.

    Args:
        operation: the operation.
        config: the configuration of the new table.
        versioned_parent: whether the parent is versioned; then every tombstone is kept (KIP-914).
    """

    def __init__(self, operation: TableOperation, config: TableConfig, *, versioned_parent: bool) -> None:
        super().__init__(config)
        self._operation = operation
        by_key = not config.caching and (config.store is None or not config.versioned)
        self.promises = Promises(repeatable=True, by_key=by_key)
        self._drop = operation.drops_repeated_tombstones and not versioned_parent

    def process(self, batch: Batch) -> None:
        values = self._news(batch)
        if self._config.store is not None:
            updates = batch.with_values(values)
        else:
            updates = Batch(
                batch.keys,
                values,
                batch.timestamps,
                self._olds(batch),
                batch.latest,
                batch.positions,
                batch.headers,
            )
        # Failures in there have been counted, so nothing above is done again.
        self.context.attempt(self._write, updates)

    def process_columns(self, columns: Columns) -> None:
        updates = None if self._config.store is not None else self._updates(columns)
        if updates is None:
            self.process(columns.to_batch())
        else:
            self._output.write_columns(without_repeated_tombstones(updates) if self._drop else updates)

    def _updates(self, columns: Columns) -> Columns | None:
        """Return the updates of a table without a store; None if they have to be objects."""
        keys, olds = columns.keys, None
        try:
            values = self._operation.apply_columns(keys, columns.values)
            if values is not None and self._config.send_olds:
                before = columns.olds
                olds = nulls(len(keys), values.type) if before is None else self._operation.apply_columns(keys, before)
        except Exception:  # a user's code may raise anything, and one by one shows for which row
            return None
        if values is None:
            return None
        return Columns(keys, values, columns.timestamps, columns.positions, olds, columns.latest)

    def _write(self, updates: Batch) -> None:
        self._output.write(updates, drop_repeated_tombstones=self._drop)

    def _news(self, batch: Batch) -> list[Any]:
        try:
            return self._operation.apply(batch.keys, batch.values)
        except Exception:  # a user's code may raise anything
            return list(map(self._new, batch.keys, batch.values, batch.timestamps, batch.headers_of_each))

    def _new(self, key: Any, value: Any, timestamp: int, headers: Headers | None) -> Any:
        if self._config.remade:
            return self._old(key, value)
        try:
            return self._operation.apply([key], [value])[0]
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp, headers=headers)
            return None

    def _olds(self, batch: Batch) -> list[Any] | None:
        if not self._config.send_olds:
            return None
        olds = batch.olds or [None] * len(batch)
        try:
            return self._operation.apply(batch.keys, olds)
        except Exception:  # a user's code may raise anything
            return list(map(self._old, batch.keys, olds))

    def _old(self, key: Any, value: Any) -> Any:
        """Return the result for a value that has been an update before, whose failure was counted then."""
        try:
            return self._operation.apply([key], [value])[0]
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

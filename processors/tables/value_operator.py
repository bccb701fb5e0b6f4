"""What filter, map_values and transform_values have in common: a table made of another, value by value.

Such a table has a store only if it asks for one. Without, it is read through its parent: the operation is applied to
what the parent's value getter finds.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.source import TableConfig, TableWriter, without_repeated_tombstones
from millpond.processors.tables.value_getters import ValueGetter
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

Found = ValueAndTimestamp[Any] | None


class TableOperation(ABC):
    """How each value of the new table follows from the key and the value of the old one."""

    drops_repeated_tombstones: bool = False
    """Whether an update from nothing to nothing is unnecessary, where the values before are known."""

    @abstractmethod
    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        """The new values, in the order of the old."""

    @abstractmethod
    def read(self, key: Any, found: Found) -> Found:
        """What a lookup in the new table finds where one in the old table found ``found``."""


class OperationGetter(ValueGetter):
    """Reads a table without a store through its parent."""

    def __init__(self, parent: ValueGetter, operation: TableOperation) -> None:
        self._parent = parent
        self._read = operation.read
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

    def horizon(self) -> int | None:
        return self._parent.horizon()


class TableOperator(Processor):
    """Applies an operation to each update, new value and old, and puts the results into the store if there is one.

    Args:
        versioned_parent: whether the parent is versioned; then no tombstone is unnecessary (KIP-914).
    """

    def __init__(self, operation: TableOperation, config: TableConfig, *, versioned_parent: bool) -> None:
        self._operation = operation
        self._config = config
        self._drop = operation.drops_repeated_tombstones and not versioned_parent

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._writer = None if self._config.store is None else TableWriter(context, self._config)

    def process(self, batch: Batch) -> None:
        values = self._operation.apply(batch.keys, batch.values)
        if self._writer is not None:
            self._writer.write(batch.with_values(values), drop_repeated_tombstones=self._drop)
            return
        if not self._config.send_olds:
            self.context.forward(Batch(batch.keys, values, batch.timestamps, None, batch.latest))
            return
        olds = self._operation.apply(batch.keys, batch.olds or [None] * len(batch))
        updates = Batch(batch.keys, values, batch.timestamps, olds, batch.latest)
        self.context.forward(without_repeated_tombstones(updates) if self._drop else updates)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

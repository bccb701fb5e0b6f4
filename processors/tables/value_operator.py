"""What filter, map_values and transform_values have in common: a table made of another, value by value.

Such a table has a store only if it asks for one. Without one it is read through its parent: the operation is applied to
what the parent's value getter finds.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from millpond.processors.runtime.batch import Batch
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.value_getters import ValueGetter
from millpond.processors.tables.writer import TableProcessor
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

Found = ValueAndTimestamp[Any] | None


class TableOperation(ABC):
    """How each value of the new table follows from the key and the value of the old one."""

    drops_repeated_tombstones: bool = False
    """Whether an update from no value to no value is unnecessary, if the old value is known."""

    @abstractmethod
    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        """The new values, in the order of the old."""

    @abstractmethod
    def read(self, key: Any, found: Found) -> Found:
        """What a lookup in the new table finds if one in the old table found ``found``."""


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


class TableOperator(TableProcessor):
    """Applies an operation to each update, new value and old, and puts the results into the store if there is one.

    Args:
        operation: what is applied.
        config: the configuration of the new table.
        versioned_parent: whether the parent is versioned; then every tombstone is kept (KIP-914).
    """

    def __init__(self, operation: TableOperation, config: TableConfig, *, versioned_parent: bool) -> None:
        super().__init__(config)
        self._operation = operation
        self._drop = operation.drops_repeated_tombstones and not versioned_parent

    def process(self, batch: Batch) -> None:
        values = self._operation.apply(batch.keys, batch.values)
        if self._config.store is not None:
            updates = batch.with_values(values)
        else:
            updates = Batch(batch.keys, values, batch.timestamps, self._olds(batch), batch.latest)
        self._output.write(updates, drop_repeated_tombstones=self._drop)

    def _olds(self, batch: Batch) -> list[Any] | None:
        if not self._config.send_olds:
            return None
        return self._operation.apply(batch.keys, batch.olds or [None] * len(batch))

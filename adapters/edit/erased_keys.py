"""``ErasedKeys``: the keys that are erased, as bytes, as values of columns, and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.adapters.inspect.columns import ShownColumn
from millpond.adapters.inspect.packed_columns import PackedKeyColumn
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import StoreShape

pc: Any = _compute

SHORTEST: Final = 4
"""So many bytes have to be there for their being found to mean anything."""


@dataclass(frozen=True)
class ErasedKeys:
    """Keys that are erased.

    Attributes:
        data: the bytes of whole keys, as stores have them.
        columns: the values of some columns of the keys of verbs, which stand for all keys that have them.
        packed: reads the keys of verbs, by the store's name.
        texts: what the keys, or the values of their columns, are as text.
    """

    data: frozenset[bytes]
    columns: Sequence[Mapping[str, Any]]
    packed: Mapping[str, ShownColumn]
    texts: frozenset[str]

    @classmethod
    def of(cls, views: Sequence[StoreView], keys: Sequence[Any]) -> Self:
        """The keys that users give.

        Args:
            views: the stores.
            keys: as ``erase`` takes them.

        Raises:
            ConfigurationError: one can be the key of no store.
        """
        packed = {view.name: view.form.key for view in views if isinstance(view.form.key, PackedKeyColumn)}
        data: set[bytes] = set()
        columns: list[Mapping[str, Any]] = []
        texts: set[str] = set()
        for key in keys:
            if isinstance(key, Mapping) and any(set(key) < set(_names(column)) for column in packed.values()):
                columns.append(key)
                texts.update(map(str, key.values()))
                continue
            errors = []
            for view in views:
                try:
                    mine = view.form.key.to_bytes(key)
                    data |= {mine, RecordKeys(view.shape, None, duplicates=False).of_key(mine)}
                except (ConfigurationError, SerdeError) as error:
                    errors.append(error)
            if len(errors) == len(views):
                raise ConfigurationError(f"{key!r} can be the key of no store: {errors[0]}")
            values = key.values() if isinstance(key, Mapping) else key if isinstance(key, list | tuple) else [key]
            texts.update(map(str, values))
        return cls(frozenset(data), columns, packed, frozenset(texts))

    def among(self, store: StoreShape, keys: Any) -> Any:
        """Which of an array of records' keys are erased, as a Boolean array."""
        found = pc.is_in(keys, value_set=pa.array(sorted(self.data), keys.type))
        column = self.packed.get(store.name)
        if column is None or not self.columns or not len(keys):
            return found
        rows = column.read(keys.to_pylist())
        for wanted in self.columns:
            if set(wanted) <= set(_names(column)):
                fits = pa.array([True] * len(keys))
                for name, value in wanted.items():
                    mine = pc.struct_field(rows, name)
                    fits = pc.and_(fits, pc.fill_null(pc.equal(mine, _scalar(value, mine.type)), False))
                found = pc.or_(found, fits)
        return found

    def concerns(self, task_id: str, partitions: int, holds_all: bool) -> bool:
        """Whether a task may have rows of them.

        Args:
            task_id: the task.
            partitions: how many there are.
            holds_all: whether it has a copy of a global table.
        """
        if holds_all or self.columns:
            return True
        return int(task_id.partition("_")[2]) in {partition_of(key, partitions) for key in self.data}

    @property
    def needles(self) -> list[bytes]:
        """The bytes that are looked for, of keys that are long enough."""
        found = {*self.data, *(text.encode() for text in self.texts)}
        escaped = {key.replace(b"\x00", b"\x00\xff") for key in found}
        return sorted(one for one in found | escaped if len(one) >= SHORTEST)


def _names(column: ShownColumn) -> list[str]:
    """The columns of a verb's key."""
    assert isinstance(column.type, pa.StructType)
    return [column.type.field(number).name for number in range(column.type.num_fields)]


def _scalar(value: Any, type_: pa.DataType) -> Any:
    if isinstance(value, str) and not pa.types.is_string(type_):
        return pa.scalar(value).cast(type_)
    return pa.scalar(value, type_)

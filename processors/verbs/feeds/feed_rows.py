"""``FeedRows``: the rows of a change feed on their way to a table, with the groups that they are in.

A row has its groups with it, since a delete does not: the key's old row leaves the groups that it was in. ::

    first group, second group, ..., row      each group as a foreign key is (``foreign_keyed``)
    order (terminated), 00 or 01, that       where changes bring an order (``ordered_rows``)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.errors import UnreadableRowError
from millpond.processors.aggregations.table_repartition import ColumnSelector
from millpond.processors.options.grouping import GroupingSets
from millpond.processors.verbs.aggregate import AggregatedRows
from millpond.processors.verbs.change_feed import Change
from millpond.processors.verbs.encoding.foreign_keyed import (
    FOREIGN,
    foreign_key_of,
    foreign_keys_of,
    with_foreign_keys,
    without_foreign_key,
    without_foreign_keys,
)
from millpond.processors.verbs.encoding.ordered_rows import with_order
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.verb import flattened
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde
from millpond.stores.encoding.rows.tuple_keys import KeyCodec


@dataclass(frozen=True)
class FeedRows(AggregatedRows):
    """Rows of a change feed that are aggregated by other columns than the feed's key.

    Attributes:
        calls: the calls, which know the place of each value in a row.
        groups: packs the keys of groups.
        sets: the sets of columns for each of which a row has a group; None if it is in one.
        by_order: whether the order of changes decides among rows of one time, too.
        late: whether a change may come in a later micro-batch than one of its key that counts more, by the order.
    """

    calls: GroupAggregate = field(kw_only=True)
    groups: KeyCodec = field(kw_only=True)
    sets: GroupingSets | None = field(default=None, kw_only=True)
    by_order: bool = field(default=False, kw_only=True)
    late: bool = field(default=False, kw_only=True)

    @property
    def memberships(self) -> int:
        """In how many groups each row is."""
        return 1 if self.sets is None else len(self.sets.sets)

    def values_of(self, rows: pa.Table, changes: Sequence[Change | None] | None = None) -> Any:
        values = super().values_of(rows, changes)
        if self.order is None:
            return values
        return pa.array(with_order(self.order.pack(flattened(rows["order"])), values.to_pylist()), pa.binary())

    def packed(self, rows: pa.Table) -> Any:
        inner = super().packed(rows)
        values = RowColumnSerde(inner.type.storage_type).write(PhysicalRowType.of(inner.storage))
        for key in reversed(list(self._groups(rows))):
            values = with_foreign_keys(self.groups, key, values, null_safe=True)
        return values

    def columns_of(self, values: Sequence[Any]) -> pa.Table:
        rows = self.calls.input_serde.deserialize_many([groups_and_row(value)[1] for value in values])
        made = pa.Table.from_arrays(self.calls.values_of(rows), schema=self.calls.values)
        return made.select(self.calls.arguments.names)

    def _columns(self, rows: pa.Table) -> list[Any]:
        moments, *values = super()._columns(rows)
        return self.calls.placed(moments, dict(zip(self.arguments, values, strict=True)))

    def _groups(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the columns of the keys of one group of each row after the other."""
        nothing = flattened(rows["key"]).select([])
        columns = flattened(rows["foreign"]) if "foreign" in rows.column_names else nothing
        if self.sets is None:
            yield columns
            return
        for key in self.sets.keys(columns):
            yield flattened(key)

    def _moments(self, rows: pa.Table) -> Any:
        return super()._moments(rows) if self.by_order else rows["timestamp"].combine_chunks()


def groups_and_row(value: bytes) -> tuple[list[bytes], bytes]:
    """Return the keys of the groups of a row, and the row, which begins as no version of a row with a group does.

    Raises what ``InGroup`` raises.
    """
    groups = []
    while value.startswith(FOREIGN):
        groups.append(_group_of(value))
        value = without_foreign_key(value)
    return groups, value


@dataclass(frozen=True)
class InGroup(ColumnSelector):
    """One of the groups of a row, and the row. Travels to the workers.

    Attributes:
        place: the number of the group.
        memberships: how many groups the row is in.
    """

    place: int
    memberships: int

    def __call__(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        """Return the group and the row of a value as ``FeedRows`` has packed it.

        Raises:
            FormatError: the value is of a version that this release does not know.
            UnreadableRowError: the value is damaged.
        """
        for _ in range(self.place):
            value = without_foreign_key(value)
        group = _group_of(value)
        for _ in range(self.memberships - self.place):
            value = without_foreign_key(value)
        return group, value

    def columns(self, keys: Any, values: Any) -> tuple[Any, Any]:
        for _ in range(self.place):
            values = without_foreign_keys(values)
        groups = foreign_keys_of(values)
        for _ in range(self.memberships - self.place):
            values = without_foreign_keys(values)
        if groups.null_count != values.null_count:
            raise pa.ArrowInvalid("a row is in no group")
        return groups, values


def _group_of(value: bytes) -> bytes:
    group = foreign_key_of(value)
    if group is None:
        raise UnreadableRowError(f"the row {value[:40]!r} is in no group")
    return group

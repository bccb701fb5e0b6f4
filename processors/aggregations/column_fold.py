"""Folding whole columns into aggregates by key: one read and one write of the store for each distinct key.

Rule of this module: no Python object is made of a value or a timestamp. Keys are equal if their bytes are.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.order.time_order import reached_by_key, stable_order
from millpond.stores.typed.timestamped_columns import TimestampedColumns

pc: Any = _compute
_Integers = npt.NDArray[np.int64]


class Groups:
    """The grouping of records by key.

    Args:
        keys: the keys, an Arrow array without nulls.
        numbers: each record's position in ``keys``, if these are distinct already.

    Attributes:
        keys: the distinct keys, in the order in which they first came.
        numbers: for each record, the position of its key in ``keys``.
    """

    def __init__(self, keys: Any, numbers: _Integers | None = None) -> None:
        if numbers is None:
            encoded = keys.dictionary_encode()
            keys, numbers = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
        self.keys = keys
        self.numbers: _Integers = numbers

    @cached_property
    def sizes(self) -> _Integers:
        """The number of records of each key."""
        return np.bincount(self.numbers, minlength=len(self.keys))

    @cached_property
    def ranks(self) -> _Integers:
        """The number of earlier records of the same key, for each record."""
        # Sorted by key, a record's rank is its distance from the first record of its key.
        order = stable_order(self.numbers)
        starts = np.cumsum(self.sizes) - self.sizes
        ranks = np.empty_like(self.numbers)
        ranks[order] = np.arange(len(order)) - starts[self.numbers[order]]
        return ranks

    def latest(self, times: _Integers) -> _Integers:
        """Return the greatest of each key's times."""
        latest = np.full(len(self.keys), np.iinfo(np.int64).min)
        if (times[1:] >= times[:-1]).all():
            latest[self.numbers] = times
        else:
            np.maximum.at(latest, self.numbers, times)
        return latest

    def first(self, times: _Integers) -> _Integers:
        """Return the time at each key's first record."""
        # Assigned backward, each key's first record is the last to be written.
        first = np.empty(len(self.keys), np.int64)
        first[self.numbers[::-1]] = times[::-1]
        return first

    def earliest(self, times: _Integers) -> _Integers:
        """Return the least of each key's times."""
        return -1 - self.latest(-1 - times)  # ``-1 - time`` turns the order around and cannot overflow.


class ColumnFold(ABC):
    """An aggregate of columns: what ``Aggregation.update`` does value by value.

    Where it would not give the same, it raises ``pyarrow.ArrowInvalid``, and the records are folded as objects.

    Attributes:
        result: the type of the aggregates.
    """

    result: pa.DataType

    @abstractmethod
    def totals(self, groups: Groups, values: Any, before: Any) -> Any:
        """Return each key's aggregate after all records.

        Args:
            groups: the records by key.
            values: the records' values, an Arrow array without nulls.
            before: each key's aggregate until now, an Arrow array, null where there is none.
        """

    @abstractmethod
    def running(self, groups: Groups, values: Any, before: Any) -> Any:
        """Return the aggregate of its key after each record; the arguments are as in ``totals``."""


class MergingFold(ColumnFold):
    """A fold whose aggregates can be merged, whatever the order of the values was: what sessions need."""

    @abstractmethod
    def merged(self, groups: Groups, aggregates: Any) -> Any:
        """Return the aggregate of all values of each key, null where the key has none.

        Args:
            groups: the aggregates by key.
            aggregates: the aggregates, an Arrow array without nulls.
        """


class ColumnCount(MergingFold):
    """The number of values."""

    result = pa.int64()

    def totals(self, groups: Groups, values: Any, before: Any) -> Any:
        return pa.array(_from_zero(before) + groups.sizes)

    def running(self, groups: Groups, values: Any, before: Any) -> Any:
        return pa.array(_from_zero(before)[groups.numbers] + groups.ranks + 1)

    def merged(self, groups: Groups, aggregates: Any) -> Any:
        totals = np.zeros(len(groups.keys), np.int64)
        np.add.at(totals, groups.numbers, aggregates.to_numpy())
        return pa.array(totals, mask=groups.sizes == 0)


def _from_zero(counts: Any) -> _Integers:
    known: _Integers = counts.fill_null(0).to_numpy()
    return known


def inverse(order: Any) -> _Integers:
    """Return the place of each position in ``order``, an Arrow array."""
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return places


def fold_columns(
    fold: ColumnFold,
    store: TimestampedColumns,
    columns: Columns,
    *,
    last_only: bool,
    olds: bool = False,
    reached: _Integers | None = None,
) -> Columns:
    """Fold records into their keys' aggregates.

    Args:
        fold: the aggregate.
        store: has the aggregates.
        columns: the records, without null keys and values.
        last_only: whether only each key's last update is wanted.
        olds: whether updates have the aggregate before them.
        reached: where aggregates expire, the time that has been reached at each record; no aggregate of a record
            expires at another one.

    Returns:
        The updates: one for each record, or one for each key in the order in which they first came. An update's
        timestamp is the greatest that its key has shown by then.

    Raises:
        pyarrow.ArrowInvalid: values or aggregates cannot be folded as columns; nothing has been written.
    """
    groups = Groups(columns.keys)
    order, before, known, told = known_states(store, groups, None if reached is None else groups.first(reached))
    totals = fold.totals(groups, columns.values, before)
    latest = np.maximum(known, groups.latest(columns.timestamps))
    if last_only:
        updates = Columns(groups.keys, totals, latest, olds=told if olds else None)
    else:
        times = np.maximum(reached_by_key(columns.timestamps, groups.numbers), known[groups.numbers])
        updates = Columns(columns.keys, fold.running(groups, columns.values, before), times)
    store.put(groups.keys.take(order), totals.take(order), latest[order.to_numpy()])
    return updates


def merge_columns(fold: MergingFold, store: TimestampedColumns, partials: Columns, *, olds: bool = False) -> Columns:
    """Merge partial aggregates into their keys' aggregates; returns each key's update, with ``olds`` if asked for."""
    groups = Groups(partials.keys)
    order, before, known, told = known_states(store, groups)
    there = before.is_valid()
    # The aggregates so far come before the partial ones, each with the number of its key.
    owners = np.concatenate([np.flatnonzero(there.to_numpy(zero_copy_only=False)), groups.numbers])
    totals = fold.merged(Groups(groups.keys, owners), pa.concat_arrays([before.filter(there), partials.values]))
    latest = np.maximum(known, groups.latest(partials.timestamps))
    store.put(groups.keys.take(order), totals.take(order), latest[order.to_numpy()])
    return Columns(groups.keys, totals, latest, olds=told if olds else None)


def known_states(
    store: TimestampedColumns, groups: Groups, reached: _Integers | None = None
) -> tuple[Any, Any, _Integers, Any]:
    """Return the order of the keys, and each key's aggregate and timestamp so far; null and the least if it has none.

    The last item is the aggregate as the receiver of expirations knows it. In the order of keys, an engine reads
    faster, and the changes need no second sort.
    """
    order = pc.sort_indices(groups.keys)
    places: Any = pa.array(inverse(order))
    at = None if reached is None else reached[order.to_numpy()]
    values, times, olds = store.get_with_olds(groups.keys.take(order), at)
    before, since = values.take(places), times.take(places)
    told = before if olds is values else olds.take(places)
    return order, before, since.fill_null(np.iinfo(np.int64).min).to_numpy(), told

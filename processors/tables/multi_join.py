"""Many tables joined by one key: all changes of a key within a micro-batch make one update, of the state at its end.

A chain of joins of two sends a result for each change, and so results that are gone at the end of the micro-batch.
Here updates only say which keys to look at. Whether a key had a result before is told by the sides that have changed,
each of which says whether it had a row, and by what is there of the others.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, Records, joined, valid
from millpond.processors.runtime.late import Booleans
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.latest_only import latest_only
from millpond.processors.tables.table_view import TableStore
from millpond.stores.encoding.times import MIN_TIME

_Integers = npt.NDArray[np.int64]


def shown_sides(there: Sequence[Booleans], types: Sequence[JoinType]) -> list[Booleans]:
    """Return masks of the sides that the results of keys show, as in a chain of joins: none where there is no result.

    Args:
        there: for each side, a mask of the keys that have a row.
        types: the type of the join of each side but the first with those before it.

    >>> orders, payments, parcels = (np.array([key in keys for key in "abc"]) for keys in ("ab", "b", "ac"))
    >>> shown = shown_sides([orders, payments, parcels], [JoinType.INNER, JoinType.OUTER])
    >>> ["".join(key for key, one in zip("abc", side) if one) for side in shown]
    ['b', 'b', 'ac']
    """
    whole, *others = there
    shown = [whole]
    for side, join_type in zip(others, types, strict=True):
        # If the sides before have no result, an outer join does not show their rows either.
        shown = [*(one & whole for one in shown), side]
        if join_type is JoinType.INNER:
            whole = whole & side
        elif join_type is JoinType.OUTER:
            whole = whole | side
    return [one & whole for one in shown]


class ChangedKeys(Operator):
    """Encodes for each update of a side the side, and whether its key had a row before: ``2 * side + had``.

    Args:
        side: the number of the side.
        versioned: whether the side is versioned: an update that is not its key's latest changes nothing (KIP-914).
    """

    promises = Promises(by_key=True, keeps_records=True)

    def __init__(self, side: int, versioned: bool) -> None:
        self._side = side
        self._versioned = versioned

    def process(self, batch: Batch) -> None:
        kept = latest_only(self.context, batch, self._versioned)
        olds = kept.olds or [None] * len(kept)
        self.context.forward(kept.with_values([2 * self._side + (old is not None) for old in olds]))

    def process_columns(self, columns: Columns) -> None:
        kept = latest_only(self.context, columns, self._versioned)
        had = np.zeros(len(kept), np.bool_) if kept.olds is None else valid(kept.olds)
        self.context.forward_columns(kept.with_values(pa.array(2 * self._side + had.astype(np.int64))))


class _Side(NamedTuple):
    """The state of one side at some keys.

    Attributes:
        rows: the rows, null where there is none.
        had: a mask of the keys that had one before the micro-batch.
        times: the time of the row, or of its deletion; the least one where there is neither.
        changed: a mask of the keys that have an update.
    """

    rows: Array
    had: Booleans
    times: _Integers
    changed: Booleans


class MultiJoin(Operator):
    """Joins the rows of all sides at the keys that ``ChangedKeys`` names, at the end of the micro-batch.

    A result is a struct of the rows of all sides, null for missing ones. Its time is the newest one of its rows
    and of the updates that have changed it.

    Args:
        stores: the stores of the sides.
        types: the type of the join of each side but the first with those before it.
    """

    promises = Promises(at_flush=True)

    def __init__(self, stores: Sequence[str], types: Sequence[JoinType]) -> None:
        self._stores = stores
        self._types = types

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._tables = [TableStore(context.store(name)) for name in self._stores]
        self.promises = replace(self.promises, looks_up=dict.fromkeys(self._stores, False))
        self._waiting: list[Records] = []

    def process(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def process_columns(self, columns: Columns) -> None:
        self._waiting.append(columns)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.context.forward_columns(self._results(_as_columns(joined(waiting))))

    def _results(self, updates: Columns) -> Columns:
        encoded = updates.keys.dictionary_encode()
        keys, numbers = encoded.dictionary, encoded.indices.to_numpy()
        sides = [self._side(place, keys, numbers, updates) for place in range(len(self._stores))]
        before = shown_sides([side.had for side in sides], self._types)
        now = shown_sides([valid(side.rows) for side in sides], self._types)
        # A row that no result has, neither before nor now, changes none.
        changed = [side.changed & (one | other) for side, one, other in zip(sides, before, now, strict=True)]
        places = np.flatnonzero(np.logical_or.reduce(changed))
        times = np.maximum.reduce(
            [np.where(one | other, side.times, MIN_TIME) for side, one, other in zip(sides, changed, now, strict=True)]
        )
        rows: Any = pa.array(places)
        return Columns(keys.take(rows), _together([side.rows for side in sides], now).take(rows), times[places])

    def _side(self, place: int, keys: Array, numbers: _Integers, updates: Columns) -> _Side:
        values = updates.values.to_numpy()
        mine = np.flatnonzero(values >> 1 == place)
        of_key = numbers[mine]
        rows, times = self._latest(place, keys)
        had, changed, newest = valid(rows), np.zeros(len(keys), np.bool_), times.fill_null(MIN_TIME).to_numpy().copy()
        # Of several updates of a key, the first tells what there was before, and the last when its row went.
        had[of_key[::-1]] = (values[mine] & 1).astype(np.bool_)[::-1]
        newest[of_key] = updates.timestamps[mine]
        changed[of_key] = True
        return _Side(rows, had, newest, changed)

    def _latest(self, place: int, keys: Array) -> tuple[Array, Array]:
        """Return the row of each key and its time, null where there is none."""
        found = self._tables[place].get_columns(keys)
        if found is not None:
            return found[0].cast(pa.binary()), found[1]
        entries = self._tables[place].get_many(keys.to_pylist())
        return (
            pa.array([None if one is None else one.value for one in entries], pa.binary()),
            pa.array([None if one is None else one.timestamp for one in entries], pa.int64()),
        )


def _together(rows: Sequence[Array], shown: Sequence[Booleans]) -> Array:
    """Return structs of the rows that are shown, null where none is."""
    sides = [column.take(pa.array(np.arange(len(column)), mask=~one)) for column, one in zip(rows, shown, strict=True)]
    nothing: Any = pa.array(~np.logical_or.reduce(shown))
    return pa.StructArray.from_arrays(sides, [str(place) for place in range(len(sides))], mask=nothing)


def _as_columns(records: Records) -> Columns:
    if isinstance(records, Columns):
        return records
    keys, values = pa.array(records.keys, pa.binary()), pa.array(records.values, pa.int64())
    return Columns(keys, values, np.array(records.timestamps, np.int64))

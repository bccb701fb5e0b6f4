"""``GroupFold``: the states of groups after rows have left them and joined them, for whole columns of rows.

Rule of this module: it knows the places in rows and states; the functions know values, ``GroupValues`` bytes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.column_fold import Groups
from millpond.processors.runtime.batches.columns import nulls
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.feeds.group_values import Counts, GroupValues
from millpond.processors.verbs.functions.reversible.counted import Counted, Values
from millpond.processors.verbs.functions.reversible.reversible import Reversible
from millpond.stores.encoding.rows.msgpack_columns import FEW, array_lengths, unpack_columns
from millpond.stores.encoding.rows.physical import from_physical
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde

pc: Any = _compute
Array = Any
"""An Arrow array."""

Integers = npt.NDArray[np.int64]


class GroupFold:
    """Folds rows that leave groups and join them.

    Args:
        calls: the calls; the first of them counts rows.
        values: counts values.
    """

    def __init__(self, calls: GroupAggregate, values: GroupValues) -> None:
        self._calls = calls
        self._values = values
        self._counts = any(isinstance(function, Counted) for function in calls.functions)

    def after(self, groups: Groups, rows: Array, signs: Integers, before: Array) -> Array:
        """Return the state of each group, null where it has no row any more.

        Args:
            groups: the rows by group.
            rows: the rows' values for the calls, packed, in the order in which they leave and join.
            signs: -1 for a row that leaves its group, 1 for one that joins it.
            before: the state of each group until now, null where it has none.

        Raises:
            RecordError: a result leaves its type.
            SerdeError: a row or a state is not what this aggregation has written.
        """
        states = before.storage.flatten()
        counted = _counting(groups, signs, states[0])
        numbers = groups.numbers
        if not counted.all():
            rows, numbers, signs = rows.filter(pa.array(counted)), numbers[counted], signs[counted]
        begins = before.is_null()
        if self._counts and before.null_count:
            self._values.forget(groups.keys.filter(begins))
        columns, lengths = self._columns(rows)
        keys = groups.keys.to_pylist() if len(groups.keys) == 1 else ()
        made = self._calls.of_each(
            lambda number: self._made(number, groups.keys, columns, lengths, numbers, signs, states[number]), keys
        )
        fields = list(before.type.storage_type)
        return PhysicalRowType.of(pa.StructArray.from_arrays(made, fields=fields, mask=pc.less(made[0], 1)))

    def _columns(self, rows: Array) -> tuple[list[Array], Integers]:
        """Return the columns of rows, and how many places each row has: later ones are null."""
        types = self._calls.row_types
        if len(rows) >= FEW:
            try:
                return _side_by_side(rows, types)
            except pa.ArrowInvalid:
                pass  # Reading row by row says what is wrong.
        read = [self._calls.input_serde.deserialize(row) for row in rows.to_pylist()]
        columns = [
            pa.nulls(len(read))
            if type_ is None
            else from_physical([row[place] if place < len(row) else None for row in read], type_)
            for place, type_ in enumerate(types)
        ]
        return columns, np.array(list(map(len, read)), np.int64)

    def _made(
        self,
        number: int,
        keys: Array,
        columns: list[Array],
        lengths: Integers,
        groups: Integers,
        signs: Integers,
        states: Array,
    ) -> Array:
        """Return the states of one function."""
        function, place = self._calls.functions[number], self._calls.places[number]
        values, times = columns[place], columns[0]
        counts_for = lengths > place
        if not counts_for.all():
            some: Any = pa.array(counts_for)
            values, times, groups, signs = (
                values.filter(some),
                times.filter(some),
                groups[counts_for],
                signs[counts_for],
            )
        if isinstance(function, Reversible):
            return function.changed(states, values, times, groups, signs)
        assert isinstance(function, Counted)
        begins = self._values.of_call(keys, place)
        ordered, rows = function.keys(values, times), function.rows(values, times)
        there: Any = ordered.is_valid()
        mask = there.to_numpy(zero_copy_only=False)
        ordered, rows = ordered.filter(there), rows.filter(there)
        counts = self._values.counts(begins, groups[mask], ordered, signs[mask])
        firsts: Any = pa.array(counts.firsts)
        serde = None if function.row_type is None else RowColumnSerde(pa.struct([("0", function.row_type)]))
        met = rows.take(firsts)
        packed = pa.scalar(b"") if serde is None else serde.write(_row_of(met))
        came, went = counts.before == 0, counts.after == 0
        after = function.after(
            states,
            _some(counts, ordered, met, came & ~went),
            _some(counts, ordered, met, went & ~came),
            lambda lost: self._following(function, serde, begins, counts, lost),
        )
        self._values.put(counts, packed)
        return after

    def _following(
        self, function: Counted, serde: RowColumnSerde | None, begins: Array, counts: Counts, lost: Integers
    ) -> Array:
        """Return the rows of the first values of some groups that the store has, and that have not gone."""
        assert serde is not None
        gone = set(counts.places.filter(pa.array(counts.after == 0)).to_pylist())
        wanted = begins.take(pa.array(lost)).to_pylist()
        found = [self._values.first(begin, gone, greatest=function.greatest) for begin in wanted]
        return serde.read(pa.array(found, pa.binary())).storage.flatten()[0]


def _side_by_side(rows: Array, types: Sequence[pa.DataType | None]) -> tuple[list[Array], Integers]:
    """Return the columns of rows, and how many places each row has, for ``GroupFold._columns``.

    Raises:
        pyarrow.ArrowInvalid: a row has too many places, or none.
    """
    lengths = array_lengths(rows)
    found = np.unique(lengths)
    if found[0] < 1 or found[-1] > len(types):
        raise pa.ArrowInvalid("a row has more places than there are")
    some = [np.flatnonzero(lengths == length) for length in found]
    parts = [
        [
            *unpack_columns(rows.take(pa.array(places)), types[:length]),
            *map(partial(_nulls, len(places)), types[length:]),
        ]
        for places, length in zip(some, found.tolist(), strict=True)
    ]
    if len(parts) == 1:
        return parts[0], lengths
    order: Any = pa.array(np.argsort(np.concatenate(some)))
    return [pa.concat_arrays(columns).take(order) for columns in zip(*parts, strict=True)], lengths


def _nulls(size: int, type_: pa.DataType | None) -> Array:
    return nulls(size, pa.null() if type_ is None else type_)


def _row_of(values: Array) -> Array:
    return PhysicalRowType.of(pa.StructArray.from_arrays([values], names=["0"]))


def _some(counts: Counts, ordered: Array, rows: Array, some: npt.NDArray[np.bool_]) -> Values:
    mask: Any = pa.array(some)
    return Values(counts.groups[some], ordered.take(pa.array(counts.firsts[some])), rows.filter(mask))


def _counting(groups: Groups, signs: Integers, members: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of rows that count: a row that leaves a group without rows does not (KIP-904)."""
    counts = np.ones(len(signs), np.bool_)
    left = members.fill_null(0).to_numpy().copy()
    leaving = np.bincount(groups.numbers[signs < 0], minlength=len(left))
    doubtful = leaving > left
    if not doubtful.any():
        return counts
    for row in np.flatnonzero(doubtful[groups.numbers]).tolist():
        group, sign = groups.numbers[row], signs[row]
        if sign < 0 and not left[group]:
            counts[row] = False
        else:
            left[group] += sign
    return counts

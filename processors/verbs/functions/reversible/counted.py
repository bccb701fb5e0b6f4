"""Functions of values that a store counts: the least and the greatest, the first and the last, and how many there are.

Rule of this module: it knows values, how they are ordered, and what a state says of them; where they are counted, and
how the next one is found, it is told. So what a change costs does not depend on how many values a group has.

The states::

    min, max          nil, or the value
    first, last       nil, or [time, value]
    count_distinct    int
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.column_forms import equal_forms, ranks_of
from millpond.processors.verbs.functions.columns import Array, Integers, picked, present
from millpond.processors.verbs.functions.counts import CountDistinct
from millpond.processors.verbs.functions.forms import holds_floats
from millpond.processors.verbs.functions.function import StatefulFunction, without_notes
from millpond.processors.verbs.functions.picks import Extreme, First
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.msgpack_columns import pack_values
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

pc: Any = _compute

_ZERO: Final = b"\x01"
"""Behind a 0.0, so that a -0.0 comes before it."""


class Values(NamedTuple):
    """Some values of groups.

    Attributes:
        groups: the number of each one's group.
        keys: the keys that order them.
        rows: the values themselves, in the type of the states; unused where states say nothing of values.
    """

    groups: Integers
    keys: Array
    rows: Array


Following: TypeAlias = Callable[[Integers], Array]
"""Of each of some groups the row that comes first now, as the function has them; null where none is left."""


class Counted(StatefulFunction):
    """A function of rows that come and go, whose values a store counts.

    Attributes:
        greatest: whether the greatest of the values counts, or else the least.
        row_type: the type of the rows that are kept with the counts; None if none are.
    """

    greatest: bool = False
    row_type: pa.DataType | None

    @abstractmethod
    def keys(self, values: Array, times: Array) -> Array:
        """Return bytes that compare, and are equal, as values count; null where a row does not count."""

    @abstractmethod
    def rows(self, values: Array, times: Array) -> Array:
        """Return the rows that are kept of values, of ``row_type``."""

    @abstractmethod
    def after(self, states: Array, came: Values, went: Values, following: Following) -> Array:
        """Return the states of many groups after values that were new have come, and values have gone for good."""


class CountedDistinct(Counted):
    """The number of different values.

    Args:
        function: the function for rows that stay.
    """

    type = pa.int64()
    nullable = False
    state_type = pa.int64()
    initial = 0
    row_type = None

    def __init__(self, function: CountDistinct) -> None:
        self.type = function.type

    def keys(self, values: Array, times: Array) -> Array:
        return spread(pack_values(equal_forms(values.drop_null())), present(values))

    def rows(self, values: Array, times: Array) -> Array:
        return pa.nulls(len(values))

    def after(self, states: Array, came: Values, went: Values, following: Following) -> Array:
        counts = states.fill_null(0).to_numpy()
        more, fewer = (np.bincount(some.groups, minlength=len(counts)) for some in (came, went))
        return pa.array(counts + more - fewer)

    def results(self, states: Array) -> Array:
        return states


class CountedExtreme(Counted):
    """The value that comes before all others.

    Args:
        function: the function for rows that stay.
    """

    def __init__(self, function: Extreme) -> None:
        self.type, self.state_type, self.row_type = function.type, function.state_type, function.state_type
        self.greatest = function.greatest
        self._function: StatefulFunction = function
        self._codec = KeyCodec(pa.schema([("value", without_notes(function.type))]))
        self._floats = holds_floats(function.type)

    def keys(self, values: Array, times: Array) -> Array:
        some = values.drop_null()
        keys = self._codec.pack_columns(pa.table([some], schema=pa.schema([("value", some.type)])))
        if pa.types.is_floating(some.type):
            keys = pc.binary_join_element_wise(keys, pc.if_else(_is_zero(some), _ZERO, b""), b"")
        elif self._floats:
            signs = with_leaves(some, some.type, _signs)
            behind = self._codec.pack_columns(pa.table([signs], schema=pa.schema([("value", some.type)])))
            keys = pc.binary_join_element_wise(keys, behind, b"")
        return spread(keys, present(values))

    def rows(self, values: Array, times: Array) -> Array:
        return values

    def after(self, states: Array, came: Values, went: Values, following: Following) -> Array:
        keys = self._keys_of(states)
        decided = pc.equal(went.keys, keys.take(pa.array(went.groups))).fill_null(False)
        lost = np.unique(went.groups[decided.to_numpy(zero_copy_only=False)])
        stays = present(states)
        stays[lost] = False
        found = following(lost)
        mask: Any = pa.array(stays)
        rows = pa.concat_arrays([states.filter(mask), found, came.rows])
        ordered = pa.concat_arrays([keys.filter(mask), self._keys_of(found), came.keys])
        groups = np.concatenate([np.flatnonzero(stays), lost, came.groups])
        there = present(ordered)
        some: Any = pa.array(there)
        ranks = ranks_of(ordered.filter(some))
        return picked(rows.filter(some), ranks, groups[there], len(states), greatest=self.greatest, last=False)

    def _keys_of(self, states: Array) -> Array:
        """Return the keys by which the values of states are ordered; null where there is none."""
        return self.keys(states, None)

    def results(self, states: Array) -> Array:
        return self._function.results(states)


class CountedByTime(CountedExtreme):
    """The value of the earliest or the latest row; at equal times the bytes of the values decide.

    Args:
        function: the function for rows that stay.
    """

    def __init__(self, function: First) -> None:
        self.type, self.state_type, self.row_type = function.type, function.state_type, function.state_type
        self.greatest, self._ignore_nulls = function.greatest, function.ignore_nulls
        self._function = function
        self._codec = KeyCodec(pa.schema([function.state_type.field(0)]))

    def keys(self, values: Array, times: Array) -> Array:
        moments = self._codec.pack_columns(pa.table([times], names=["time"]))
        keys = pc.binary_join_element_wise(moments, pack_values(values), b"")
        return pc.if_else(values.is_valid(), keys, None) if self._ignore_nulls else keys

    def rows(self, values: Array, times: Array) -> Array:
        return pa.StructArray.from_arrays([times, values], fields=list(cast(pa.StructType, self.state_type)))

    def _keys_of(self, states: Array) -> Array:
        times, values = states.drop_null().flatten()
        return spread(self.keys(values, times), present(states))


def _is_zero(numbers: Array) -> Array:
    found = numbers.to_numpy()
    return pa.array((found == 0) & ~np.signbit(found))


def _signs(leaves: Array) -> Array:
    """Return the signs of floats, in which values that are equal may differ; null stays null."""
    if not pa.types.is_floating(leaves.type):
        return leaves
    numbers = leaves.to_numpy(zero_copy_only=False)
    signs = np.where(np.isnan(numbers), 1, np.copysign(1, numbers)).astype(numbers.dtype)
    return pa.array(signs, leaves.type, mask=~present(leaves), from_pandas=False)

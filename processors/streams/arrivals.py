"""Records of both sides of a join, in the order in which they came, as whole columns.

Rule of this module: a record is kept as its serde writes it, in whatever form runs come. Runs that their
serdes cannot write as they are have to be joined as objects, which tells which record fails.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.columns import Records
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import FARTHEST
from millpond.stores.typed.store import column_of

pc: Any = _compute
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

NOBODY: Final = -1
"""The number of the key of a record without a key or a value."""


class ColumnForm:
    """A serde, and what does the same for whole columns.

    Args:
        serde: the serde, which has a column form.
    """

    def __init__(self, serde: Serde[Any]) -> None:
        columns = column_serde(serde)
        assert columns is not None
        self.columns: ColumnSerde = columns
        self._serde = serde

    def both(self, column: Any) -> tuple[Any, Any]:
        """Return values in the serde's own type and their bytes, null where they are null.

        Args:
            column: a list of objects, or an Arrow array.

        Raises:
            pyarrow.ArrowInvalid: the array is of a type that the serde cannot write.
            SerdeError: it cannot write one of the objects.
        """
        if isinstance(column, list):
            written = self._serde.serialize_many([value for value in column if value is not None])
            data: Any = pa.array(column_of(written, column), pa.binary())
            return self.columns.read(data), data
        if not self.columns.takes(column.type):
            raise pa.ArrowInvalid(f"the serde {self._serde.name!r} does not write columns of {column.type}")
        own = self.columns.own(column)
        return own, self.columns.write(own)


class SideRecords(NamedTuple):
    """The records of one side.

    Attributes:
        places: their places among the records of both sides.
        times: their timestamps.
        keys, values: their keys and values in the types of the serdes, null where there is none.
        data: the bytes of the values.
        numbers: the numbers of the keys, ``NOBODY`` without a key or a value.
    """

    places: Integers
    times: Integers
    keys: Any
    values: Any
    data: Any
    numbers: Integers

    @property
    def complete(self) -> Integers:
        """The positions of the records that have a key and a value."""
        return np.flatnonzero(self.numbers != NOBODY)

    @property
    def keyless(self) -> Booleans:
        """A mask of the records that have a value, but no key."""
        alone: Booleans = pc.and_(self.values.is_valid(), self.keys.is_null()).to_numpy(zero_copy_only=False)
        return alone


class Arrivals(NamedTuple):
    """The records of both sides.

    Attributes:
        times: the timestamps of all, by place.
        keys: the bytes of the different keys, in ascending order, by number.
        sides: the records of each side.
    """

    times: Integers
    keys: Any
    sides: Mapping[Side, SideRecords]


def arrivals(runs: Sequence[tuple[Side, Records]], keys: ColumnForm, values: Mapping[Side, ColumnForm]) -> Arrivals:
    """Return the records of runs in the order of their positions, or else as they came.

    Raises:
        pyarrow.ArrowInvalid: a run is of a type that serdes cannot write, or of times so far off that sums of them
            leave 64 bits.
        SerdeError: a serde cannot write one of the objects.
    """
    times = np.concatenate([np.asarray(run.timestamps, np.int64) for _, run in runs])
    if abs(times).max() >= FARTHEST or times.min() < -FARTHEST:
        raise pa.ArrowInvalid("timestamps are too far off")
    order = _order([run for _, run in runs])
    left = np.concatenate([np.full(len(run), side is Side.LEFT) for side, run in runs])
    encoded = {side: _encoded(side, runs, order, left, keys, values[side]) for side in Side}
    distinct, numbers = ranked(pa.concat_arrays([one[1] for one in encoded.values()]))
    sides = {}
    for side, (own_keys, _, own_values, data) in encoded.items():
        places = np.flatnonzero(left[order] == (side is Side.LEFT))
        present = data.is_valid().to_numpy(zero_copy_only=False)
        own = np.where(present, numbers[: len(places)], NOBODY)
        numbers = numbers[len(places) :]
        sides[side] = SideRecords(places, times[order][places], own_keys, own_values, data, own)
    return Arrivals(times[order], distinct, sides)


def ranked(keys: Any) -> tuple[Any, Integers]:
    """Return the different keys in ascending order, and for each key its position in them, -1 for null.

    >>> distinct, numbers = ranked(pa.array([b"b", None, b"a", b"b"]))
    >>> distinct.to_pylist(), numbers.tolist()
    ([b'a', b'b'], [1, -1, 0, 1])
    """
    encoded = keys.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    ranks[-1] = NOBODY
    return encoded.dictionary.take(order), ranks[encoded.indices.fill_null(-1).to_numpy()]


def _order(runs: Sequence[Records]) -> Integers:
    """Return the order of records that are laid end to end."""
    size = sum(map(len, runs))
    if len(runs) == 1:
        return np.arange(size)
    positions = np.concatenate([np.asarray(run.positions, np.int64) for run in runs])
    return positions.argsort(kind="stable")


def _encoded(
    side: Side,
    runs: Sequence[tuple[Side, Records]],
    order: Integers,
    left: Booleans,
    keys: ColumnForm,
    values: ColumnForm,
) -> tuple[Any, Any, Any, Any]:
    """Return keys, their bytes, values and their bytes of one side, in order."""
    own = [run for of, run in runs if of is side]
    columns = [(*keys.both(run.keys), *values.both(run.values)) for run in own]
    if not columns:
        columns = [(*keys.both([]), *values.both([]))]
    mine = left == (side is Side.LEFT)
    places: Any = pa.array((np.cumsum(mine) - 1)[order[mine[order]]])
    whole = (pa.concat_arrays(parts) for parts in zip(*columns, strict=True))
    key, key_data, value, data = (column if len(runs) == 1 else column.take(places) for column in whole)
    return key, key_data, value, data

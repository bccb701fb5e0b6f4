"""A run of records as Arrow columns: what flows where nobody needs a Python object of each record.

Rule: columns are never changed, and say the same as the ``Batch`` that they turn into. Which form a processor takes is
its own choice (``Processor.process_columns``); nobody asks a run for its form but those who bring runs in or carry them
out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch, concatenate, in_order

Array: TypeAlias = Any
"""An Arrow array."""


class Columns:
    """Records of one stream, or updates of one table that are their keys' newest by timestamp, in arrival order.

    Attributes:
        keys: the keys, an Arrow array.
        values: the values, an Arrow array.
        timestamps: int milliseconds since the epoch.
        positions: those of ``Batch.positions``; None where the columns come in order.
        olds: for a table, the values before updates, an Arrow array; None if no operator needs them, or for a stream.
    """

    __slots__ = ("_batch", "keys", "olds", "positions", "timestamps", "values")

    def __init__(
        self,
        keys: Array,
        values: Array,
        timestamps: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64] | None = None,
        olds: Array | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.positions = positions
        self.olds = olds
        self._batch: Batch | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Columns(keys={self.keys.type}, values={self.values.type}, {len(self)} records)"

    def to_batch(self) -> Batch:
        """The same records as Python objects, which are made once."""
        if self._batch is None:
            positions = None if self.positions is None else self.positions.tolist()
            keys, values = self.keys.to_pylist(), self.values.to_pylist()
            olds = None if self.olds is None else self.olds.to_pylist()
            self._batch = Batch(keys, values, self.timestamps.tolist(), olds, positions=positions)
        return self._batch

    def slice(self, start: int, stop: int) -> "Columns":
        """The records from ``start`` up to but not including ``stop``."""
        size = stop - start
        return Columns(
            self.keys.slice(start, size),
            self.values.slice(start, size),
            self.timestamps[start:stop],
            None if self.positions is None else self.positions[start:stop],
            None if self.olds is None else self.olds.slice(start, size),
        )

    def select(self, keep: npt.NDArray[np.bool_]) -> "Columns":
        """The records whose entry in ``keep`` is true."""
        mask: Any = pa.array(keep)
        return Columns(
            self.keys.filter(mask),
            self.values.filter(mask),
            self.timestamps[keep],
            None if self.positions is None else self.positions[keep],
            None if self.olds is None else self.olds.filter(mask),
        )

    def taken(self, places: npt.NDArray[np.int64]) -> "Columns":
        """The records at ``places``, in that order."""
        rows: Any = pa.array(places)
        return Columns(
            self.keys.take(rows),
            self.values.take(rows),
            self.timestamps[places],
            None if self.positions is None else self.positions[places],
            None if self.olds is None else self.olds.take(rows),
        )

    def present(self, *, values: bool = False) -> "Columns":
        """The records that have a key, and with ``values`` a value, too; these columns themselves if all have."""
        columns = (self.keys, self.values) if values else (self.keys,)
        if not any(column.null_count for column in columns):
            return self
        valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
        return self.select(np.logical_and.reduce(valid))

    def parts(self, most: int) -> Iterator["Columns"]:
        """The same records, at most so many at a time."""
        for start in range(0, len(self), most):
            yield self.slice(start, min(start + most, len(self)))

    def with_values(self, values: Array) -> "Columns":
        """The same keys and times with other values; of a plain stream."""
        return Columns(self.keys, values, self.timestamps, self.positions)

    def with_olds(self, olds: Array) -> "Columns":
        """The same updates with the values before them."""
        return Columns(self.keys, self.values, self.timestamps, self.positions, olds)

    def at(self, positions: npt.NDArray[np.int64]) -> "Columns":
        """The same records at these positions."""
        return Columns(self.keys, self.values, self.timestamps, positions, self.olds)


Records: TypeAlias = Batch | Columns
"""A run of records in either form."""


def joined(runs: Sequence[Records]) -> Records:
    """The records of many runs of a stream as one run; columns only if all of them are, and of the same types."""
    if len(runs) == 1:
        return runs[0]
    return _laid_end_to_end(runs) or concatenate([run.to_batch() for run in runs])


def put_in_order(runs: Sequence[Records]) -> Records:
    """The records of runs that have positions, in the order of these and without; ties stay as they come."""
    whole = _laid_end_to_end(runs)
    if whole is None:
        return in_order([run.to_batch() for run in runs])
    positions: npt.NDArray[np.int64] = np.concatenate([np.asarray(run.positions) for run in runs])
    if (positions[1:] >= positions[:-1]).all():
        return whole
    return whole.taken(positions.argsort(kind="stable"))


def _laid_end_to_end(runs: Sequence[Records]) -> Columns | None:
    """All runs as columns without positions; None if one is objects, their types differ, or they are too large."""
    columns = [run for run in runs if isinstance(run, Columns)]
    olds = [run.olds for run in columns if run.olds is not None]
    types = {(run.keys.type, run.values.type, None if run.olds is None else run.olds.type) for run in columns}
    if len(columns) < len(runs) or len(types) > 1:
        return None
    try:
        keys = pa.concat_arrays([run.keys for run in columns])
        values = pa.concat_arrays([run.values for run in columns])
        before = pa.concat_arrays(olds) if olds else None
    except pa.ArrowInvalid:  # a column of bytes holds 2 GiB
        return None
    return Columns(keys, values, np.concatenate([run.timestamps for run in columns]), olds=before)


def as_column(result: Any, size: int) -> Array:
    """What a vectorized function returned, as one Arrow array of the right length.

    Raises:
        TypeError: Arrow cannot make an array of it.
        ValueError: it has another length.
    """
    try:
        column = result if isinstance(result, pa.Array | pa.ChunkedArray) else pa.array(result)
    except (pa.ArrowException, TypeError) as error:
        raise TypeError(
            f"a vectorized function returned a {type(result).__name__}, of which Arrow makes no array ({error}); "
            "return an array of one value for each record"
        ) from error
    if len(column) != size:
        raise ValueError(f"a vectorized function returned {len(column)} values for {size} records; return one for each")
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def nulls(size: int, type_: Any) -> Array:
    """A column of nothing but nulls of a type of Arrow."""
    return pa.nulls(size, type_)


def spread(values: Array, present: npt.NDArray[np.bool_]) -> Array:
    """The values in the places where ``present`` is true, null elsewhere."""
    if len(values) == len(present):
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))

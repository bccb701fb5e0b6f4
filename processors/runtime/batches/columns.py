"""A run of records as Arrow columns: the form in which they flow where nobody needs a Python object of each record.

Rule: columns are never changed, and say the same as the ``Batch`` that they turn into. Which form a processor takes is
its own choice (``Processor.process_columns``); only the code that brings runs in or carries them out asks a run for its
form.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch, concatenate, in_order

Array: TypeAlias = Any
"""An Arrow array."""


class Columns:
    """Records of one stream, or updates of one table, in arrival order.

    Attributes:
        keys: the keys, an Arrow array.
        values: the values, an Arrow array; for a table, the new value of each update, null where the row was deleted.
        timestamps: int milliseconds since the epoch.
        positions: as in ``Batch.positions``; None where the columns come in order.
        olds: for a table, the value before each update, an Arrow array; None if no operator needs them.
        latest: for a table, whether each update is its key's newest by timestamp (KIP-914); None means all are.
    """

    __slots__ = ("_batch", "keys", "latest", "olds", "positions", "timestamps", "values")

    def __init__(
        self,
        keys: Array,
        values: Array,
        timestamps: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64] | None = None,
        olds: Array | None = None,
        latest: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.positions = positions
        self.olds = olds
        self.latest = latest
        self._batch: Batch | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Columns(keys={self.keys.type}, values={self.values.type}, {len(self)} records)"

    def to_batch(self) -> Batch:
        """Return the same records as Python objects, which are made once."""
        if self._batch is None:
            self._batch = Batch(
                self.keys.to_pylist(),
                self.values.to_pylist(),
                self.timestamps.tolist(),
                None if self.olds is None else self.olds.to_pylist(),
                None if self.latest is None else self.latest.tolist(),
                None if self.positions is None else self.positions.tolist(),
            )
        return self._batch

    def slice(self, start: int, stop: int) -> "Columns":
        """Return the records from ``start`` up to but not including ``stop``."""
        size = stop - start
        return Columns(
            self.keys.slice(start, size),
            self.values.slice(start, size),
            self.timestamps[start:stop],
            None if self.positions is None else self.positions[start:stop],
            None if self.olds is None else self.olds.slice(start, size),
            None if self.latest is None else self.latest[start:stop],
        )

    def select(self, keep: npt.NDArray[np.bool_]) -> "Columns":
        """Return the records whose entry in ``keep`` is true; these columns themselves if all are."""
        if keep.all():
            return self
        mask: Any = pa.array(keep)
        return Columns(
            self.keys.filter(mask),
            self.values.filter(mask),
            self.timestamps[keep],
            None if self.positions is None else self.positions[keep],
            None if self.olds is None else self.olds.filter(mask),
            None if self.latest is None else self.latest[keep],
        )

    def taken(self, places: npt.NDArray[np.int64]) -> "Columns":
        """Return the records at ``places``, in that order."""
        rows: Any = pa.array(places)
        return Columns(
            self.keys.take(rows),
            self.values.take(rows),
            self.timestamps[places],
            None if self.positions is None else self.positions[places],
            None if self.olds is None else self.olds.take(rows),
            None if self.latest is None else self.latest[places],
        )

    def present(self, *, keys: bool = True, values: bool = False) -> "Columns":
        """Return the records that have a key, a value or both, as asked; these columns themselves if all have."""
        wanted = [column for column, asked in ((self.keys, keys), (self.values, values)) if asked and column.null_count]
        return self.select(valid(*wanted)) if wanted else self

    def parts(self, most: int) -> Iterator["Columns"]:
        """Yield the same records, at most so many at a time."""
        for start in range(0, len(self), most):
            yield self.slice(start, min(start + most, len(self)))

    def as_stream(self) -> "Columns":
        """Return the same records without what only updates of a table have; these columns if they have none of it."""
        return self if self.olds is None and self.latest is None else self.with_values(self.values)

    def with_values(self, values: Array) -> "Columns":
        """Return the same keys and times with other values; plain columns of a stream."""
        return Columns(self.keys, values, self.timestamps, self.positions)

    def at(self, positions: npt.NDArray[np.int64]) -> "Columns":
        """Return the same records at these positions."""
        return Columns(self.keys, self.values, self.timestamps, positions, self.olds, self.latest)


Records: TypeAlias = Batch | Columns
"""A run of records in either form."""


def joined(runs: Sequence[Records]) -> Records:
    """Return the records of many runs of a stream as one run; as columns only if all of them are, of the same types."""
    if len(runs) == 1:
        return runs[0]
    return _laid_end_to_end(runs) or concatenate([run.to_batch() for run in runs])


def put_in_order(runs: Sequence[Records]) -> Records:
    """Return the records of runs by their positions, without positions; ties stay as they come."""
    whole = _laid_end_to_end(runs)
    if whole is None:
        return in_order([run.to_batch() for run in runs])
    positions: npt.NDArray[np.int64] = np.concatenate([np.asarray(run.positions) for run in runs])
    if (positions[1:] >= positions[:-1]).all():
        return whole
    return whole.taken(positions.argsort(kind="stable"))


def _laid_end_to_end(runs: Sequence[Records]) -> Columns | None:
    """Return all runs as columns without positions; None if one has objects, types differ, or they are too large."""
    columns = [run for run in runs if isinstance(run, Columns)]
    types = {(run.keys.type, run.values.type, None if run.olds is None else run.olds.type) for run in columns}
    if len(columns) < len(runs) or len(types) > 1:
        return None
    latest = [np.ones(len(run), np.bool_) if run.latest is None else run.latest for run in columns]
    try:
        keys = pa.concat_arrays([run.keys for run in columns])
        values = pa.concat_arrays([run.values for run in columns])
        olds = None if columns[0].olds is None else pa.concat_arrays([cast(Array, run.olds) for run in columns])
    except pa.ArrowInvalid:  # a column of bytes holds 2 GiB
        return None
    return Columns(
        keys,
        values,
        np.concatenate([run.timestamps for run in columns]),
        None,
        olds,
        np.concatenate(latest) if any(run.latest is not None for run in columns) else None,
    )


def valid(*columns: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows in which all of these columns, Arrow arrays or chunked ones, have a value."""
    present: npt.NDArray[np.bool_] = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
    return present


def as_column(result: Any, size: int) -> Array:
    """Return the result of a vectorized function as one Arrow array of the right length.

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
    """Return a column of nothing but nulls of a type of Arrow."""
    return pa.nulls(size, type_)


def spread(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return each position as often as its count says, and how often it has come before.

    >>> [column.tolist() for column in spread(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    positions = np.arange(len(counts)).repeat(counts)
    return positions, np.arange(len(positions)) - (np.cumsum(counts) - counts)[positions]

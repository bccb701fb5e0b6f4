"""Stream operators whose users' functions take whole Arrow columns: no Python object is made of a record.

Rule of this module: records that come as objects become columns first, of the types that Arrow finds for them, and the
results become objects again. A function for which no result of a record depends on another record gives the same
either way, record by record, too.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.options.functions import positional_parameters
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, as_column
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises


class _Vectorized(Operator):
    """One step on columns."""

    promises = Promises(repeatable=True, keeps_positions=True)

    def process(self, batch: Batch) -> None:
        times = np.array(batch.timestamps, np.int64)
        self._forward(batch, Columns(pa.array(batch.keys), pa.array(batch.values), times))

    @abstractmethod
    def _forward(self, batch: Batch, columns: Columns) -> None:
        """Forward the results as a batch; both arguments are the same records."""


class VectorizedMapValues(_Vectorized):
    """Replaces the values with ``mapper(values)`` or ``mapper(keys, values)``."""

    promises = replace(_Vectorized.promises, by_key=True, keeps_records=True)

    def __init__(self, mapper: Callable[..., Any]) -> None:
        self._mapper = mapper
        self._keyed = positional_parameters(mapper) == 2

    def process_columns(self, columns: Columns) -> None:
        self.context.forward_columns(columns.with_values(self._mapped(columns)))

    def _forward(self, batch: Batch, columns: Columns) -> None:
        self.context.forward(batch.with_values(self._mapped(columns).to_pylist()))

    def _mapped(self, columns: Columns) -> Array:
        arguments = (columns.keys, columns.values) if self._keyed else (columns.values,)
        return as_column(self._mapper(*arguments), len(columns))


class VectorizedFilter(_Vectorized):
    """Passes on the records for which ``predicate(keys, values)`` is ``wanted``; null is not true."""

    promises = replace(_Vectorized.promises, by_key=True, keeps_records=True)

    def __init__(self, predicate: Callable[[Any, Any], Any], wanted: bool = True) -> None:
        self._predicate = predicate
        self._wanted = wanted

    def process_columns(self, columns: Columns) -> None:
        self.context.forward_columns(columns.select(self._verdicts(columns)))

    def _forward(self, batch: Batch, columns: Columns) -> None:
        self.context.forward(batch.select(self._verdicts(columns).tolist()))

    def _verdicts(self, columns: Columns) -> npt.NDArray[np.bool_]:
        verdicts = as_column(self._predicate(columns.keys, columns.values), len(columns))
        true: npt.NDArray[np.bool_] = verdicts.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        return true if self._wanted else ~true


class VectorizedSelectKey(_Vectorized):
    """Replaces the keys with ``selector(keys, values)``."""

    def __init__(self, selector: Callable[[Any, Any], Any]) -> None:
        self._selector = selector

    def process_columns(self, columns: Columns) -> None:
        keys = self._selected(columns)
        self.context.forward_columns(Columns(keys, columns.values, columns.timestamps, columns.positions))

    def _forward(self, batch: Batch, columns: Columns) -> None:
        keys = self._selected(columns).to_pylist()
        positions, headers = batch.positions, batch.headers
        self.context.forward(Batch(keys, batch.values, batch.timestamps, positions=positions, headers=headers))

    def _selected(self, columns: Columns) -> Array:
        return as_column(self._selector(columns.keys, columns.values), len(columns))

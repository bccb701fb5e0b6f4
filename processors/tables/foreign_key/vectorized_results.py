"""The result task of a foreign-key join whose joiner takes whole columns.

Rule of this module: answers and left rows that come as columns have the results that they have one by one, and no
Python object is made of a row. If that fails, for whatever reason, they become objects, and are joined one by one if
that fails, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, Records, nulls, valid
from millpond.processors.runtime.batches.user_functions import ColumnFunction
from millpond.processors.runtime.counters import CounterName
from millpond.processors.tables.foreign_key.message_columns import (
    Booleans,
    Messages,
    read_left_row_column,
    read_response_column,
)
from millpond.processors.tables.foreign_key.messages import Content
from millpond.processors.tables.foreign_key.results import ResponseJoin, RowJoining, UnjoinedRows
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MIN_TIME

pc: Any = _compute


class ColumnJoining(RowJoining):
    """Joins columns of left values with columns of foreign ones.

    Args:
        joiner: makes results for columns of keys, left values and foreign values; the last of these are null where
            there is none.
    """

    _joiner: ColumnFunction

    def _results_of(self, asking: Batch, lefts: Sequence[Any], foreigns: Sequence[Any]) -> list[Any]:
        try:
            return self._joiner.many(asking.keys, lefts, foreigns)
        except Exception:  # a user's code may raise anything
            return super()._results_of(asking, lefts, foreigns)


class VectorizedUnjoinedRows(ColumnJoining, UnjoinedRows):
    """``UnjoinedRows`` with a joiner of columns."""

    def __init__(self, joiner: ColumnFunction, serdes: tuple[Serde[Any], Serde[Any]]) -> None:
        super().__init__(joiner, serdes)
        self._serdes = column_serde(serdes[0]), column_serde(serdes[1])

    def process_columns(self, columns: Columns) -> None:
        try:
            results = self._columns_of(columns)
        except Exception:  # a user's code may raise anything
            results = None
        if results is None:
            self.process(columns.to_batch())
        else:
            self.context.forward_columns(results)

    def _columns_of(self, columns: Columns) -> Columns | None:
        """Return the results; None if the left values have to be objects."""
        lefts, foreigns = self._serdes
        if lefts is None or foreigns is None or columns.olds is None:
            return None
        news, olds = read_left_row_column(columns.values), read_left_row_column(columns.olds)
        there, was_there = valid(news.hashes), valid(olds.hashes)
        kept = there & ~news.named
        told = kept | (~there & was_there & ~olds.named)
        joined = columns.select(kept)
        values = lefts.read(news.values.filter(pa.array(kept)))
        results = self._joiner.of_columns(joined.keys, values, nulls(len(values), foreigns.type))
        return columns.select(told).with_values(spread(results, kept[told]))


class VectorizedResponseJoin(ColumnJoining, ResponseJoin):
    """``ResponseJoin`` with a joiner of columns."""

    def __init__(
        self, joiner: ColumnFunction, rows: str, result: str, serdes: tuple[Serde[Any], Serde[Any]], join_type: JoinType
    ) -> None:
        super().__init__(joiner, rows, result, serdes, join_type)
        self._serdes: Any = column_serde(serdes[0]), column_serde(serdes[1])

    def _resolve_run(self, answers: Records) -> None:
        made = self._made(answers) if isinstance(answers, Columns) else None
        if made is None:
            self._resolve(answers.to_batch())
            return
        results, retracted = made
        self.context.count(CounterName.DROPPED_STALE_RESPONSE, len(answers) - len(results))
        if not retracted.any():
            self.context.forward_columns(results)
            return
        asked = results.keys.filter(pa.array(retracted))
        known = None if len(results.keys.unique()) < len(results) else self._results.get_columns(asked)
        if known is None:
            self._forward_retracting(results.to_batch(), retracted.tolist())
        else:
            retracted[retracted] = ~valid(known[1])
            self.context.forward_columns(results.select(~retracted))

    def _made(self, columns: Columns) -> tuple[Columns, Booleans] | None:
        """Return the results of answers that are not stale, and a mask of retracted ones; None if it needs objects."""
        if None in self._serdes:
            return None
        try:
            found = self._rows.get_columns(columns.keys)
            if found is None:
                return None
            answers, (kept, since) = read_response_column(columns.values), found
            lefts = read_left_row_column(kept)
            same = pc.equal(answers.hashes, lefts.hashes).fill_null(False).to_numpy(zero_copy_only=False)
            same |= ~(valid(answers.hashes) | valid(lefts.hashes))
            lost = (answers.numbers != Content.VALUE) & ~lefts.named & self._inner
            current = same | lost
            times = np.maximum(columns.timestamps, since.fill_null(MIN_TIME).to_numpy())
            joined = Columns(columns.keys, lefts.values, times).select(current)
            answers, whose = answers.select(current), same[current]
            retracted = (answers.numbers == Content.RETRACTION) | ~whose
            return joined.with_values(self._joined_columns(joined, answers)), retracted
        except Exception:  # a user's code may raise anything
            return None

    def _joined_columns(self, rows: Columns, answers: Messages) -> Array:
        """Return the results of left rows, whose values are bytes, with their answers; null where there is none."""
        found = answers.numbers == Content.VALUE
        there = valid(rows.values) & (found if self._inner else True)
        asking = rows.select(there)
        data = pc.if_else(pa.array(found), answers.rests, pa.scalar(None, pa.binary())).filter(pa.array(there))
        distinct = data.dictionary_encode()
        left_serde, foreign_serde = self._serdes
        foreigns = foreign_serde.read(distinct.dictionary).take(distinct.indices)
        return spread(self._joiner.of_columns(asking.keys, left_serde.read(asking.values), foreigns), there)

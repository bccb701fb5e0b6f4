"""The join of two streams within a window with a joiner of whole columns: no object is made of a record.

Rule of this module: a run is joined as columns, or not at all and then record by record: where a serde refuses a
record, a row of a store is damaged, or the joiner fails, so that the record and the pair are known, and where records
have headers. Where left records have windows of their own, there is no other way than columns. Until the joiner has
returned, nothing changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.batch import BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, Records, as_column
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import is_of_record
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.streams.arrivals import ColumnForm, arrivals
from millpond.processors.streams.unpaired_records import Waiting, WaitingRecords
from millpond.processors.streams.window_join import StreamStreamJoinPlan, WindowJoin
from millpond.processors.streams.window_run import NOTHING, SidePlan, WindowRun
from millpond.stores.encoding.times import FARTHEST
from millpond.stores.typed.windows.duplicate_columns import DuplicateColumns
from millpond.stores.typed.windows.window import WindowStore

COLUMNS_FROM = 24
"""The least number of records in a run that is joined as columns; fewer are faster one by one."""

MOST_RESULTS = 1 << 16
"""The greatest number of results that the joiner makes at a time."""


class VectorizedWindowJoin(WindowJoin):
    """Joins records of both sides.

    Args:
        plan: the plan; its joiner is called with the keys, the left and the right values of many pairs, null where
            there is no partner, as Arrow arrays of one length, and returns an array of as many. The serdes of the
            stores have column forms.
        stores: the window store of each side.
        waiting: the records without a partner; None if they come out at once, or never.
    """

    def __init__(
        self, plan: StreamStreamJoinPlan, stores: Mapping[Side, WindowStore[Any, Any]], waiting: WaitingRecords | None
    ) -> None:
        self._keys = ColumnForm(stores[Side.LEFT].key_serde)
        self._values = {side: ColumnForm(store.value_serde) for side, store in stores.items()}
        self._joiner = plan.joiner
        super().__init__(replace(plan, joiner=self._of_one), stores, waiting)
        self._plans = {
            side: SidePlan(
                DuplicateColumns(stores[side], self._values[side].columns),
                one.back,
                one.ahead,
                one.closes_after,
                one.emits_unmatched,
                one.meets_once,
                plan.emits_pairs,
                plan.own.read if plan.own is not None and side is Side.LEFT else None,
            )
            for side, one in self._sides.items()
        }
        lengths = (length for one in self._sides.values() for length in (one.back, one.ahead, one.closes_after))
        self._near = max(map(abs, (*lengths, stores[Side.LEFT].retention))) < FARTHEST
        self._own = plan.own is not None

    def _join_kept(self, kept: Sequence[tuple[Side, Records]], context: ProcessorContext) -> None:
        enough = sum(len(run) for _, run in kept) >= COLUMNS_FROM
        plain = all(isinstance(run, Columns) or run.headers is None for _, run in kept)
        found = self._joined(kept) if self._own or (enough and plain and self._near) else None
        if found is None:
            super()._join_kept(kept, context)
            return
        run, results = found
        run.write()
        for side, dropped in run.dropped.items():
            self._sides[side].context.count(CounterName.DROPPED_NULL, dropped)
        for columns in results:
            context.forward_columns(columns)

    def _joined(self, kept: Sequence[tuple[Side, Records]]) -> tuple[WindowRun, list[Columns]] | None:
        """Return the run and its results; None if it has to be joined record by record."""
        waiting = None if self._waiting is None else self._waiting.rows
        try:
            run = WindowRun(arrivals(kept, self._keys, self._values), self._plans, waiting)
            return run, self._results(run)
        except Exception as error:  # a user's code may raise anything
            if self._own or not is_of_record(error):
                raise
            return None

    def _results(self, run: WindowRun) -> list[Columns]:
        keys = run.keys(self._keys.columns.read)
        left, right = (run.values(side, self._values[side].columns.read) for side in (Side.LEFT, Side.RIGHT))
        results = []
        for start in range(0, len(run.results.times), MOST_RESULTS):
            part = slice(start, start + MOST_RESULTS)
            chosen = keys.take(pa.array(run.results.keys[part]))
            sides = (_taken(left, run.results.left[part]), _taken(right, run.results.right[part]))
            times = run.results.times[part]
            results.append(Columns(chosen, as_column(self._joiner(chosen, *sides), len(times)), times))
        return results

    def _emit(self, out: BatchBuilder, records: Sequence[Waiting], context: ProcessorContext) -> None:
        if not records:
            return
        try:
            keys = self._array(self._keys, [record.key for record in records])
            left, right = (
                self._array(self._values[side], [one.value if one.side is side else None for one in records])
                for side in (Side.LEFT, Side.RIGHT)
            )
            results = as_column(self._joiner(keys, left, right), len(records)).to_pylist()
        except Exception:  # a user's code may raise anything; record by record, it is known for which
            super()._emit(out, records, context)
            return
        for record, result in zip(records, results, strict=True):
            out.add(record.key, result, record.timestamp)

    def _of_one(self, key: Any, left: Any, right: Any) -> Any:
        """Return the joiner's result for one pair of objects."""
        forms = (self._keys, self._values[Side.LEFT], self._values[Side.RIGHT])
        columns = (self._array(form, [one]) for form, one in zip(forms, (key, left, right), strict=True))
        (result,) = as_column(self._joiner(*columns), 1).to_pylist()
        return result

    @staticmethod
    def _array(form: ColumnForm, values: Sequence[Any]) -> Any:
        return pa.array(values, form.columns.type)


def _taken(column: Any, positions: Any) -> Any:
    """Return the entries at some positions, null at ``NOTHING``."""
    missing = positions == NOTHING
    return column.take(pa.array(positions, mask=missing if missing.any() else None))

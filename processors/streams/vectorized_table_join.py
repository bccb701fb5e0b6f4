"""Stream-table join with a joiner of whole columns: each distinct key is looked up once, and no object is made of it.

Rule of this module: matches are the same as record by record (``millpond.processors.streams.table_join``).
Records that have to wait, or whose look-up keys come from a function, are objects; their values become
columns, of the types that Arrow finds for them.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import Unfit
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, as_column, valid
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Booleans
from millpond.processors.streams.table_join import StreamTableJoin, moved
from millpond.stores.encoding.nulls import spread

pc: Any = _compute


class VectorizedStreamTableJoin(StreamTableJoin):
    """Joins each record of a stream with the table's value for its key.

    The joiner is called with the keys, the values and the table's values of many records, null where there is none, as
    Arrow arrays of one length, and returns an array of as many.
    """

    def process_columns(self, columns: Columns) -> None:
        if self._at_flush:
            self._keep(columns)
            return
        if self._buffer is not None or self._selector is not None:
            self.process(columns.to_batch())
            return
        kept = columns.present(keys=not self._left, values=True)
        if len(kept):
            joined, missed = self._joined(kept)
            self._note_missed(kept, missed)
            self.context.forward_columns(joined)
        self.context.count(CounterName.DROPPED_NULL, len(columns) - len(kept))

    def _joined(self, kept: Columns) -> tuple[Columns, Booleans | None]:
        """Return the results, and which records were looked up beyond the history."""
        found, missed = self._met(kept)
        if not self._left and found.null_count:
            kept, found = kept.select(valid(found)), found.drop_null()
        if not len(kept):
            return kept, missed
        return kept.with_values(as_column(self._joiner(kept.keys, kept.values, found), len(kept))), missed

    def _met(self, kept: Columns) -> tuple[Array, Booleans | None]:
        """Return the match of each record, null for none, and a mask of look-ups beyond the history."""
        if self._direction.looks_ahead:
            batch = kept.to_batch()
            entries, nothing = self._look_up(batch)
            missed = self._missed(nothing, batch.timestamps)
            return self._values(self._matches(batch, entries)), missed
        found, since = self._look_up_columns(kept)
        missed = self._missed(~valid(found) & valid(kept.keys), kept.timestamps) if found.null_count else None
        if self._tolerance is not None:
            found = _without(found, ~self._within(kept, since))
        if self._where is not None and self._unfit is Unfit.MISS:
            found = _without(found, self._failing_columns(kept, found, since))
        return found, missed

    def _look_up_columns(self, kept: Columns) -> tuple[Array, Array]:
        """Return the table's value for each record, and its timestamp."""
        keyed = kept.present()
        found = self._view.get_columns_as_of(keyed.keys, moved(keyed.timestamps, self._first))
        if found is None:
            entries = self._look_up(kept.to_batch())[0]
            times = [None if entry is None else entry.timestamp for entry in entries]
            return self._values(entries), pa.array(times, pa.int64())
        values, since = found if self._unfit is Unfit.MISS else self._passed_columns(keyed, *found)
        keys = valid(kept.keys)
        return spread(values, keys), spread(since, keys)

    def _passed_columns(self, records: Columns, found: Array, since: Array) -> tuple[Array, Array]:
        """Return ``_passed`` of records with keys."""
        # Each round of look-ups lies behind those before it; ``places`` has where each record's version is.
        values, times, places = [found], [since], np.arange(len(records))
        failing = np.flatnonzero(self._failing_columns(records, found, since))
        begun, size = since.take(pa.array(failing)), len(records)
        while len(failing):
            rows = records.taken(failing)
            older = self._view.get_columns_as_of(rows.keys, begun.to_numpy() - 1)
            assert older is not None
            values.append(older[0])
            times.append(older[1])
            places[failing] = np.arange(size, size + len(failing))
            size += len(failing)
            again = self._failing_columns(rows, *older)
            failing, begun = failing[again], older[1].filter(pa.array(again))
        shown: Any = pa.array(places)
        return pa.concat_arrays(values).take(shown), pa.concat_arrays(times).take(shown)

    def _failing_columns(self, records: Columns, found: Array, since: Array) -> Booleans:
        """Return a mask of the records whose version is not too old, but does not fulfill the condition."""
        failing = valid(found) if self._tolerance is None else valid(found) & self._within(records, since)
        rows: Any = pa.array(failing)
        failing[failing] = ~self._fit(records.values.filter(rows), found.filter(rows))
        return failing

    def _within(self, records: Columns, since: Array) -> Booleans:
        """Return a mask of the records whose version is not too old."""
        near = pc.less_equal(pc.subtract(pa.array(records.timestamps), since), self._tolerance)
        within: Booleans = near.fill_null(False).to_numpy(zero_copy_only=False)
        return within

    def _fits(self, values: list[Any], entries: list[Any]) -> list[bool]:
        fit: list[bool] = self._fit(pa.array(values), self._values(entries)).tolist()
        return fit

    def _fit(self, values: Array, found: Array) -> Booleans:
        """Return a mask of the table's values that fulfill the condition; none of them is missing."""
        if not len(values):
            return np.zeros(0, np.bool_)
        assert self._where is not None
        fit: Booleans = (
            as_column(self._where(values, found), len(values)).fill_null(False).to_numpy(zero_copy_only=False)
        )
        return fit

    def _join(self, kept: Batch) -> None:
        if not len(kept):
            return
        looked_up, (entries, nothing) = kept, self._look_up(kept)
        missed = self._missed(nothing, kept.timestamps)
        entries = self._matches(kept, entries)
        if not self._left:
            kept = kept.select([entry is not None for entry in entries])
            entries = [entry for entry in entries if entry is not None]
        results: list[Any] = []
        if len(kept):
            joined = self._joiner(pa.array(kept.keys), pa.array(kept.values), self._values(entries))
            results = as_column(joined, len(kept)).to_pylist()
        self._note_missed(looked_up, missed)
        self.context.forward(kept.with_values(results))

    def _values(self, entries: list[Any]) -> Array:
        """Return the table's values, of their own type even where all of them are null."""
        return pa.array([None if entry is None else entry.value for entry in entries], self._view.value_type)


def _without(found: Array, hidden: Booleans) -> Array:
    """Return the values that were found, null where ``hidden`` is true."""
    return found.take(pa.array(np.arange(len(found)), mask=hidden))

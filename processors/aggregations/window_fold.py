"""Folding whole columns into windows: the common part of all kinds of windows.

Windows that close give final results, or each window that changes gives its last update.

Rule of this module: answers are the same as record by record. A run for which that takes more than arithmetic on whole
columns is left to objects, before anything has changed. Within a fold keys are the bytes that their serde writes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.column_fold import ColumnFold, inverse
from millpond.processors.runtime.batches.column_tuples import chosen, laid_end_to_end
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.windowed_columns import windowed_keys
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.times import FARTHEST
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window_columns import WindowColumns, Windows

pc: Any = _compute
Integers = npt.NDArray[np.int64]


_LEAST_PART: Final = 1024
"""The least average number of records in parts of a run: below it, reading the windows near each costs too much."""


class Standing(NamedTuple):
    """The state of an aggregation before a run.

    Attributes:
        stream_time: the greatest timestamp that it has seen; ``MIN_TIME`` if none.
        observed: the time by which its store forgets; ``MIN_TIME`` if none.
        waiting: how many windows wait in it.
    """

    stream_time: int
    observed: int
    waiting: int


class Folded(NamedTuple):
    """The outcome of a run.

    Attributes:
        results: the final results of what has closed, or the last update of each window that has changed.
        stream_time: the greatest timestamp so far.
        waiting: how many windows wait for their final results now.
        late: how many records were late, each counted for every window that it was late for.
        replaced: how many updates there were besides those in ``results``, which took their places.
    """

    results: Columns
    stream_time: int
    waiting: int
    late: int = 0
    replaced: int = 0


class WindowFold(ABC):
    """Folds columns into windows of one kind.

    Args:
        keys: the key serde, for whole columns.
        values: the store's value serde, for whole columns.
        reach: a window is closed once stream time is this far past the time that windows go by.
        final: whether final results come out, or else updates.
        olds: whether updates have the aggregate before them.
    """

    def __init__(self, keys: ColumnSerde, values: ColumnSerde, reach: int, *, final: bool, olds: bool) -> None:
        self._keys = keys
        self._values = values
        self._reach = reach
        self._final = final
        self._olds = olds

    def takes(self, columns: Columns, stream_time: int) -> bool:
        """Return whether the keys are of a type that can be written, and no sum of times leaves 64 bits."""
        earliest, latest = int(columns.timestamps.min()), max(int(columns.timestamps.max()), stream_time)
        return self._keys.takes(columns.keys.type) and earliest > -FARTHEST and max(latest, self._reach) < FARTHEST

    @abstractmethod
    def fold(self, columns: Columns, standing: Standing, partials: Columns | None = None) -> Folded | None:
        """Fold in records, without null keys and values, and write the store; None if they have to be objects.

        Args:
            columns: the records.
            standing: the state of the aggregation.
            partials: aggregates of other records of the same micro-batch, each of one window that holds its time, or of
                a part of a session (``session_parts``); then ``columns`` are in the order of time, and perhaps none.
                None for no others.

        Raises:
            pyarrow.ArrowInvalid: a row of the store is damaged; nothing has changed.
        """

    def cut(self, columns: Columns, stream_time: int) -> list[Columns]:
        """Return the parts of a run that ``fold`` has refused, in order, for another try; else the run itself."""
        strays = self._strays(reached_since(stream_time, columns.timestamps) - columns.timestamps)
        edges = np.flatnonzero(strays[1:] != strays[:-1]) + 1
        if len(edges) * _LEAST_PART > len(columns):
            return [columns]
        bounds = [0, *edges.tolist(), len(columns)]
        return [columns.slice(start, stop) for start, stop in pairwise(bounds)]

    def _strays(self, behind: Integers) -> npt.NDArray[np.bool_]:
        """Return which records may have to be objects, and the others not, by how far they are behind stream time."""
        return np.zeros(len(behind), np.bool_)

    def _results(self, keys: Any, starts: Integers, ends: Integers, values: Any, timestamps: Integers) -> Columns:
        return Columns(windowed_keys(self._keys.read(keys), starts, ends), values, timestamps)


class StartedWindowFold(WindowFold):
    """Folds columns into windows that go by their places, from which their starts and ends follow.

    Args:
        fold: the aggregate.
        store: has the aggregates.
        keys, values: its serdes, for whole columns.
        reach: a window is closed once stream time is this far past its place, or earlier.
        bounds: the starts and ends of windows by their places.
        final: whether final results come out, or else updates.
        olds: whether updates have the aggregate before them.
    """

    def __init__(
        self,
        fold: ColumnFold,
        store: TimestampedWindowStore[Any, Any],
        keys: ColumnSerde,
        values: ColumnSerde,
        reach: int,
        bounds: Callable[[Integers], tuple[Integers, Integers]],
        *,
        final: bool,
        olds: bool,
    ) -> None:
        super().__init__(keys, values, reach, final=final, olds=olds)
        self._fold = fold
        self._retention = store.retention
        self._store = WindowColumns(store, values)
        self._bounds = bounds

    @property
    def _nothing(self) -> Windows:
        none = np.empty(0, np.int64)
        return Windows(pa.array([], pa.binary()), none, pa.array([], self._values.type), none)

    def _updates(self, windows: Windows, before: Any) -> Columns:
        """Return the last updates of windows, which were like ``before``: null where they were not there."""
        updates = self._came_out(windows)
        updates.olds = before if self._olds else None
        return updates

    def _closed(self, *parts: Windows) -> Columns:
        """Return the results of windows that have closed."""
        whole = laid_end_to_end(parts)
        return self._came_out(chosen(whole, closing_order(whole.keys, whole.starts)))

    def _came_out(self, windows: Windows) -> Columns:
        keys, places, values, timestamps = windows
        return self._results(keys, *self._bounds(places), values, timestamps)


def closing_order(keys: Any, *times: Integers) -> Integers:
    """Return the places of windows in the order in which they come out: by first time, second time, then key."""
    order = np.lexsort(times[::-1])
    ties = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in times:
        ties &= column[order[1:]] == column[order[:-1]]
    return np.lexsort((inverse(pc.sort_indices(keys)), *times[::-1])) if ties.any() else order


def places_in(keys: Any, distinct: Any) -> Integers:
    """Return the place of each key among distinct ones, -1 where it is missing."""
    found: Integers = pc.index_in(keys, value_set=distinct).fill_null(-1).to_numpy().astype(np.int64)
    return found


def reached_since(stream_time: int, times: Integers) -> Integers:
    """Return stream time at each record."""
    reached: Integers = np.maximum(np.maximum.accumulate(times), stream_time)
    return reached


def times_of(records: Records) -> Integers:
    """Return the timestamps of records."""
    return np.asarray(records.timestamps, np.int64)

"""Results of an aggregate that are added later get the earlier rows: each entry of its state, those within its bounds.

Rule of this module: the state says which windows and sessions there are, and rows say what is in them. Rows are folded
one by one in the order of time, by the functions that fold new rows. Other results in entries are
copied; an entry without rows stays as it is, since a missing state counts as the state before any row.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.distribution.exchange import PLACE
from millpond.processors.dsl.wiring.aggregations import AnyWindows
from millpond.processors.options.changed_windows import ChangedWindows
from millpond.processors.options.windows import SessionWindows, SlidingWindows
from millpond.processors.verbs.encoding.state_serde import StateSerde
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.rows import tables_of_columns
from millpond.stores.encoding.keys import DATA, TIME_SIZE, last_time, unpack_time, unterminated
from millpond.stores.encoding.partitions import partitions_of
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.evolution.old_rows import OldRows
from millpond.stores.evolution.seeding import Sowing
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.snapshots import write_commit
from millpond.stores.specs.store_spec import KeyForm
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE
from millpond.stores.typed.windows.segments import key_part

_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("task", pa.string()),
    ("key", pa.binary()),
    ("timestamp", pa.int64()),
    ("place", pa.int64()),
    ("value", pa.binary()),
]
PAST_SCHEMA: Final = pa.schema(_COLUMNS)
"""Rows on their way to the tasks of their keys; ``place`` decides among those of one key and time."""

IN_ORDER: Final = ("task", "key", "timestamp", "place")
"""By which the rows of a task are sorted."""


@dataclass(frozen=True)
class PastRows:
    """Folds earlier rows into the state with which a task begins. Travels to the workers.

    Attributes:
        store: the store of the verb's results.
        partitions: how many tasks there are.
        windows: the verb's windows, in microseconds; None for one result a key.
        calls: the calls that came later.
        states: the rows of the store.
        places: the places in these rows of the states of the calls, in their order.
    """

    store: StoreShape
    partitions: int
    windows: AnyWindows | None
    calls: RowAggregate
    states: StateSerde
    places: tuple[int, ...]

    def sent(self, records: pa.Table) -> pa.Table:
        """Return packed rows as ``PAST_SCHEMA``: keys, values, times and, if needed, what decides among equals."""
        keys = records["key"].combine_chunks()
        place: Any = records[PLACE] if PLACE in records.column_names else pa.array(np.arange(records.num_rows))
        tasks = [f"{self.store.subtopology}_{partition}" for partition in range(self.partitions)]
        numbers: Any = pa.array(partitions_of(keys, self.partitions))
        rows = self.calls.input_serde.columns
        value = rows.write(rows.read(records["value"].combine_chunks()))
        columns: list[Any] = [pa.array(tasks).take(numbers), keys, records["timestamp"], place, value]
        return pa.Table.from_arrays(columns, schema=PAST_SCHEMA)

    def written(self, sowing: Sowing, rows: pa.Table) -> dict[str, Manifest]:
        """Write the state with which tasks begin, by task id; leave out tasks whose state does not change.

        Args:
            sowing: the state with which they begin otherwise.
            rows: all rows of some tasks, in the order of ``IN_ORDER``.

        Raises:
            RecordError: a result leaves its type.
            MissingFileError, CorruptFileError: a file of the state is gone or damaged.
            SerdeError: an entry of the state is not this verb's.
            DurabilityError: the storage failed.
        """
        found = {}
        for task_id, (start, stop) in _runs(rows["task"]).items():
            base = sowing.bases.get(task_id)
            tables = iter(()) if base is None else self._tables(sowing, base, rows[start:stop])
            first = next(tables, None)
            if base is not None and first is not None:
                found[task_id] = write_commit(sowing.storage, base, chain([first], tables))
        return found

    def _tables(self, sowing: Sowing, base: Manifest, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of the store that have changed, in key order."""
        kind, runs = self.store.kind, _runs(rows["key"])
        times: list[Any] = rows["timestamp"].to_pylist()
        packed: list[Any] = rows["value"].to_pylist()
        values = list(map(self.calls.input_serde.deserialize, packed))
        stamp = TIMESTAMP_SIZE if kind.stamped else 0
        for keys, olds in OldRows(sowing.storage, base, self.store.name, kind).columns():
            changed: dict[bytes, bytes] = {}
            for row, old in zip(keys.to_pylist(), olds.to_pylist(), strict=True):
                key, first, last = self._bounds(row)
                begin, end = runs.get(key, (0, 0))
                within = slice(bisect_left(times, first, begin, end), bisect_right(times, last, begin, end))
                if within.start < within.stop:
                    changed[row] = old[:stamp] + self._filled(key, old[stamp:], values[within])
            if changed:
                columns = (pa.array(part, pa.binary()) for part in (list(changed), list(changed.values())))
                yield from tables_of_columns(self.store.name, kind.format_version, *columns)

    def _filled(self, key: bytes, old: bytes, rows: list[tuple[Any, ...]]) -> bytes:
        states = self.calls.initializer()
        for row in rows:
            states = self.calls.aggregator(key, row, states)
        return self.states.with_added(old, dict(zip(self.places, states, strict=True)))

    def _bounds(self, row: bytes) -> tuple[bytes, int, int]:
        """Return the key of an entry, and the first and the last time that belong to it."""
        form = self.store.kind.key_form
        if form is KeyForm.PLAIN:
            return row[len(DATA) :], MIN_TIME, MAX_TIME
        rest = TIME_SIZE * (2 if form is KeyForm.SESSION else 1)
        key, time = unterminated(key_part(row, rest)), unpack_time(row, len(row) - rest)
        return (key, *self._session(last_time(row), time)) if form is KeyForm.SESSION else (key, *self._window(time))

    def _session(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last time in a session as the store has it, which may last until it is cut."""
        if isinstance(self.windows, SessionWindows) and self.windows.gap_of and self.windows.within is not None:
            grid = self.windows.within.grid
            return start, min(end, grid.end(grid.last(start)) - 1)
        return start, end

    def _window(self, place: int) -> tuple[int, int]:
        """Return the first and the last time in the window with a place."""
        windows = self.windows
        if isinstance(windows, ChangedWindows):
            windows = windows.eras[bisect_right(windows.since, place)]
        assert windows is not None
        assert not isinstance(windows, SessionWindows)
        if isinstance(windows, SlidingWindows):
            return place, place + windows.difference
        return windows.grid.begin(place), windows.grid.end(place) - 1


def _runs(column: Any) -> dict[Any, tuple[int, int]]:
    """Return the beginning and the end of each run of equal values in a sorted column."""
    values = column.to_pylist()
    starts = [place for place, value in enumerate(values) if not place or value != values[place - 1]]
    return {values[start]: (start, stop) for start, stop in pairwise([*starts, len(values)])}

"""``TakenRows``: new rows of some keys, and what each of them gets of the rows before it.

Rule of this module: it knows rows in order and columns of states; ``frames`` knows which are merged.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.late import Integers
from millpond.processors.verbs.aggregate import plain_column
from millpond.processors.verbs.functions.columns import listed, lists_of
from millpond.processors.verbs.functions.distances import Booleans
from millpond.processors.verbs.ordered.frames import Layout, framed, places_in
from millpond.processors.verbs.ordered.over_spec import OverSpec
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.times import MIN_TIME

pc: Any = _compute


class TakenRows:
    """New rows in the order of their keys and then their own, beside what is known of these keys.

    Args:
        spec: what is made of them.
        keys: the keys.
        numbers: the key of each row, as its position among these.
        rows: the rows.
        found: what is known of each key, null where nothing is.
        times: of its last row, null where there is none.
    """

    def __init__(self, spec: OverSpec, keys: Any, numbers: Integers, rows: Columns, found: Any, times: Any) -> None:
        self.rows = rows
        self._spec, self._calls, self._keys, self._numbers = spec, spec.calls, keys, numbers
        firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        self._lasts = np.append(firsts[1:], len(numbers)) - 1
        since = times.fill_null(0).to_numpy()
        there = found.is_valid().to_numpy(zero_copy_only=False) & ~spec.far(since, rows.timestamps[firsts])
        self._known, self._since = there, since[there]
        states, lists = found.storage.flatten()
        self._states = states.filter(pa.array(there))
        columns = spec.rows.unpack(rows.values)
        arguments = [plain_column(columns[name].combine_chunks()) for name in spec.arguments.values()]
        new = pa.StructArray.from_arrays([pa.array(rows.timestamps), *arguments], fields=list(spec.kept_rows))
        before, counts = listed(lists.filter(pa.array(there)))
        lengths = np.zeros(len(keys), np.int64)
        lengths[there] = counts
        self._layout = Layout.of(lengths, numbers)
        self._all = self._layout.column(before, new)
        self._times = self._all.field(0).to_numpy()
        self._places = places_in(self._begins(self._layout, self._times))

    @property
    def last_times(self) -> Integers:
        """The time of the last row of each key."""
        times: Integers = self.rows.timestamps[self._lasts]
        return times

    def pass_on(self) -> tuple[Any, Any]:
        """The results of the rows, and what is kept of the keys from now on."""
        calls = self._calls
        columns = {name: self._before(name, offset) for name, offset in calls.lags.items()}
        states = None
        if calls.aggregate is not None:
            states = self._running() if self._spec.frame.whole else self._framed()
            columns |= zip(calls.aggregate.schema.names, calls.aggregate.results_of_columns(states), strict=True)
        results = pa.StructArray.from_arrays([columns[name] for name in calls.schema.names], fields=list(calls.schema))
        return results, self._kept(states)

    def _begins(self, layout: Layout, times: Integers) -> Booleans:
        """Where rows begin that share no frame with those before."""
        begins = np.append(True, layout.keys[1:] != layout.keys[:-1])
        begins[1:] |= self._spec.far(times[:-1], times[1:])
        return begins

    def _before(self, name: str, offset: int) -> Any:
        """The value of an argument, so many rows before each new one."""
        new = self._layout.new
        nobody: Any = pa.array(self._places[new] < offset)
        argument = self._all.field(1 + self._calls.arguments.get_field_index(name))
        found = argument.take(pc.if_else(nobody, None, pa.array(new - offset)))
        type_ = self._calls.schema.field(name).type
        return with_leaves(found, type_, lambda leaves: leaves) if pa.types.is_nested(type_) else found

    def _running(self) -> Any:
        """The states of all rows up to each one: those before it are in what its key's last row came out with."""
        layout = Layout.of(self._known.astype(np.int64), self._numbers)
        before = PhysicalRowType.of(self._states)
        new = self._layout.new
        states = layout.column(before, self._alone(self._all.take(pa.array(new)), self._numbers))
        times = layout.column(pa.array(self._since), pa.array(self.rows.timestamps)).to_numpy()
        places = places_in(self._begins(layout, times))
        return framed(states, places, layout.new, places[layout.new] + 1, self._calls.merged)

    def _framed(self) -> Any:
        """The states of the rows that count for each one."""
        layout, frame, places = self._layout, self._spec.frame, self._places
        if frame.rows is not None:
            ends = layout.new
            lengths = np.minimum(places[ends] + 1, frame.rows)
        else:
            assert frame.within is not None
            starts, ends = _around(layout.keys, self._times, frame.within)
            starts, ends = starts[layout.new], ends[layout.new]
            lengths = np.minimum(ends - starts, places[ends]) + 1
        return framed(self._alone(self._all, layout.keys), places, ends, lengths, self._calls.merged)

    def _alone(self, rows: Any, numbers: Integers) -> Any:
        """The states that rows bring, each alone."""
        return self._calls.alone(self._keys.take(pa.array(numbers)), rows.flatten())

    def _kept(self, states: Any) -> Any:
        """What is kept of each key: the states of its last row, and what may be reached from the next one."""
        spec, size = self._spec, len(self._lasts)
        last = pa.nulls(size, spec.calls.states) if states is None else states.take(pa.array(self._lasts)).storage
        lasts = self._layout.new[self._lasts][self._layout.keys]
        numbers = np.arange(len(lasts))
        reached = lasts - numbers < spec.deepest
        if spec.frame.within is not None and spec.calls.aggregate is not None:
            reached |= self._times >= np.maximum(self._times[lasts], MIN_TIME + spec.frame.within) - spec.frame.within
        reached &= numbers >= lasts - self._places[lasts]
        counts = np.bincount(self._layout.keys[reached], minlength=size)
        form = spec.state_serde.struct
        lists = lists_of(self._all.filter(pa.array(reached)), counts, form.field("rows").type, nullable=False)
        return PhysicalRowType.of(pa.StructArray.from_arrays([last, lists], fields=list(form)))


def _around(keys: Integers, times: Integers, within: int) -> tuple[Integers, Integers]:
    """For each row, the first one of its key that is at most so much earlier, and the last one of its time.

    Args:
        keys: in ascending order.
        times: in ascending order within each key.
        within: not negative.
    """
    distinct, ranks = np.unique(times, return_inverse=True)
    least = np.searchsorted(distinct, np.maximum(times, MIN_TIME + within) - within)
    width = len(distinct) + 1
    rows = keys * width + ranks
    return np.searchsorted(rows, keys * width + least), np.searchsorted(rows, rows, "right") - 1

"""``TakenRows``: new rows of some keys, and what each of them gets of the rows before it.

Rule of this module: it knows rows in order and columns of states; ``frames`` knows which are merged.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.late import Integers
from millpond.processors.verbs.aggregate import plain_column
from millpond.processors.verbs.functions.distances import Booleans
from millpond.processors.verbs.ordered.frames import Layout, framed, places_in
from millpond.processors.verbs.ordered.over_spec import NO_ARGUMENT, OverSpec
from millpond.processors.verbs.ordered.over_state import KeptRows
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.times import MIN_TIME

pc: Any = _compute


class TakenRows:
    """New rows in the order of their keys and then their own, beside the state of these keys.

    Args:
        spec: the parameters of the operator.
        keys: the keys.
        numbers: the key of each row, as its position among these.
        rows: the rows.
        found: the state of each key, null where there is none.
        times: the time of its last row, null where there is none.
    """

    def __init__(self, spec: OverSpec, keys: Any, numbers: Integers, rows: Columns, found: Any, times: Any) -> None:
        self.rows = rows
        self._spec, self._calls, self._keys, self._numbers = spec, spec.calls, keys, numbers
        firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        self._lasts = np.append(firsts[1:], len(numbers)) - 1
        since = times.fill_null(0).to_numpy()
        there = found.is_valid().to_numpy(zero_copy_only=False) & ~spec.far(since, rows.timestamps[firsts])
        self._known, self._since = there, since[there]
        kept = found.filter(pa.array(there))
        self._states = spec.state.states_of(kept)
        before = spec.state.rows_of(kept)
        lengths = np.zeros(len(keys), np.int64)
        lengths[there] = before.counts
        self._layout = Layout.of(lengths, numbers)
        self._times = self._layout.column(pa.array(before.times), pa.array(rows.timestamps)).to_numpy()
        self._places = places_in(self._begins(self._layout, self._times))
        self._new = self._arguments()
        self._reached = {call: self._whole(call, before) for call in before.arguments}

    @property
    def last_times(self) -> Integers:
        """The time of the last row of each key."""
        times: Integers = self.rows.timestamps[self._lasts]
        return times

    def pass_on(self) -> tuple[Any, Any]:
        """Return the results of the rows, and the new states of the keys."""
        calls = self._calls
        columns = {name: self._before(name, offset) for name, offset in calls.lags.items()}
        states = None
        if calls.aggregate is not None:
            states = self._running() if self._spec.frame.whole else self._framed()
            columns |= zip(calls.aggregate.schema.names, calls.aggregate.results_of_columns(states), strict=True)
        results = pa.StructArray.from_arrays([columns[name] for name in calls.schema.names], fields=list(calls.schema))
        return results, self._kept(states)

    def _begins(self, layout: Layout, times: Integers) -> Booleans:
        """Return a mask of rows that share no frame with those before."""
        begins = np.append(True, layout.keys[1:] != layout.keys[:-1])
        begins[1:] |= self._spec.far(times[:-1], times[1:])
        return begins

    def _arguments(self) -> dict[int, Any]:
        """Return the arguments of the new rows for each call that has some."""
        columns = self._spec.rows.unpack(self.rows.values)
        arguments = self._spec.arguments.items()
        return {
            self._calls.positions[name]: plain_column(columns[column].combine_chunks()) for name, column in arguments
        }

    def _whole(self, call: int, before: KeptRows) -> tuple[Any, Booleans]:
        """Return all rows' arguments for a call whose arguments are kept, and a mask of rows that count for it."""
        known, counting = before.argument(call)
        new = self._new.get(call)
        new = pa.nulls(len(self.rows), NO_ARGUMENT) if new is None else new
        counts = self._layout.column(pa.array(counting), pa.array(np.ones(len(self.rows), np.bool_)))
        return self._layout.column(known, new), counts.to_numpy(zero_copy_only=False)

    def _before(self, name: str, offset: int) -> Any:
        """Return the value of an argument, so many rows before each new one."""
        new = self._layout.new
        nobody: Any = pa.array(self._places[new] < offset)
        argument, _ = self._reached[self._calls.positions[name]]
        found = argument.take(pc.if_else(nobody, None, pa.array(new - offset)))
        type_ = self._calls.schema.field(name).type
        return with_leaves(found, type_, lambda leaves: leaves) if pa.types.is_nested(type_) else found

    def _running(self) -> Any:
        """Return the states of all rows up to each one; the results of a key's last row have the rows before it."""
        layout = Layout.of(self._known.astype(np.int64), self._numbers)
        fields = list(self._calls.states)
        before = PhysicalRowType.of(pa.StructArray.from_arrays(self._states, fields=fields))
        states = layout.column(before, self._alone(self.rows.timestamps, self._new, self._numbers))
        times = layout.column(pa.array(self._since), pa.array(self.rows.timestamps)).to_numpy()
        places = places_in(self._begins(layout, times))
        return framed(states, places, layout.new, places[layout.new] + 1, self._calls.merged)

    def _framed(self) -> Any:
        """Return the states of the rows that count for each one."""
        layout, frame, places = self._layout, self._spec.frame, self._places
        if frame.rows is not None:
            ends = layout.new
            lengths = np.minimum(places[ends] + 1, frame.rows)
        else:
            assert frame.within is not None
            starts, ends = _around(layout.keys, self._times, frame.within)
            starts, ends = starts[layout.new], ends[layout.new]
            lengths = np.minimum(ends - starts, places[ends]) + 1
        arguments = {call: argument for call, (argument, _) in self._reached.items()}
        alone = self._counted(self._alone(self._times, arguments, layout.keys))
        return framed(alone, places, ends, lengths, self._calls.merged)

    def _alone(self, times: Integers, arguments: Mapping[int, Any], numbers: Integers) -> Any:
        """Return the states that rows bring, each alone."""
        calls = self._calls
        given = [] if calls.aggregate is None else calls.aggregate.arguments.names
        columns = [arguments[calls.positions[name]] for name in given]
        return calls.alone(self._keys.take(pa.array(numbers)), [pa.array(times), *columns])

    def _counted(self, states: Any) -> Any:
        """Return the state of each row alone; the initial state where a row came before the call."""
        calls, columns = self._calls, states.storage.flatten()
        for number, call in enumerate(calls.aggregated):
            _, counting = self._reached[call]
            if not counting.all():
                positions = np.where(counting, np.arange(len(states)), len(states))
                nothing = pa.array([calls.initial[number]], columns[number].type)
                columns[number] = pa.concat_arrays([columns[number], nothing]).take(pa.array(positions))
        return PhysicalRowType.of(pa.StructArray.from_arrays(columns, fields=list(calls.states)))

    def _kept(self, states: Any) -> Any:
        """Return the state of each key: the states of its last row, and the rows that the next one may reach."""
        spec, size, keys = self._spec, len(self._lasts), self._layout.keys
        last = pa.nulls(size, spec.calls.states) if states is None else states.take(pa.array(self._lasts)).storage
        lasts = self._layout.new[self._lasts][keys]
        numbers = np.arange(len(lasts))
        reached = lasts - numbers < spec.deepest
        if spec.frame.within is not None and spec.calls.aggregate is not None:
            reached |= self._times >= np.maximum(self._times[lasts], MIN_TIME + spec.frame.within) - spec.frame.within
        reached &= numbers >= lasts - self._places[lasts]
        arguments = {}
        for call, (argument, counting) in self._reached.items():
            own = reached & counting
            arguments[call] = argument.filter(pa.array(own)), np.bincount(keys[own], minlength=size)
        rows = KeptRows(self._times[reached], np.bincount(keys[reached], minlength=size), arguments)
        return spec.state.made(last.flatten(), rows)


def _around(keys: Integers, times: Integers, within: int) -> tuple[Integers, Integers]:
    """Return, for each row, the first one of its key that is at most so much earlier, and the last one of its time.

    Args:
        keys: in ascending order.
        times: their times, in ascending order within each key.
        within: not negative.
    """
    distinct, ranks = np.unique(times, return_inverse=True)
    least = np.searchsorted(distinct, np.maximum(times, MIN_TIME + within) - within)
    width = len(distinct) + 1
    rows = keys * width + ranks
    return np.searchsorted(rows, keys * width + least), np.searchsorted(rows, rows, "right") - 1

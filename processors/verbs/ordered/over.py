"""``over``: each row once, with what the rows of its key up to it have: running aggregates, and single rows before it.

It is SQL's ``OVER (PARTITION BY key ORDER BY time ...)``. A frame is all rows up to a row, itself included, or the last
so many of them (``ROWS BETWEEN n - 1 PRECEDING AND CURRENT ROW``), or those that are at most so much earlier, with all
that have its time (``RANGE BETWEEN ... PRECEDING AND CURRENT ROW``).

Rows wait until nothing earlier can come (``rows_in_time``), so what has come out stays right, however rows come. With a
time to live a key is forgotten that has had no row for that long, and the next row is its first.

Of each key the state has what its last row came out with, which is all that a frame from the beginning needs, and the
arguments of those rows before the next one that a shorter frame or a ``lag`` may reach.

Rule of this module: it knows rows in order and columns of states; ``frames`` knows which are merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ConfigurationError, SerdeError
from millpond.processors.aggregations.column_fold import ColumnFold, Groups, MergingFold, inverse
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.late import Integers
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.verbs.aggregate import plain_column
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import LAG
from millpond.processors.verbs.functions.columns import listed, lists_of
from millpond.processors.verbs.functions.distances import Booleans
from millpond.processors.verbs.functions.function import without_notes
from millpond.processors.verbs.functions.row_fold import TIMES, rows_type
from millpond.processors.verbs.ordered.frames import Layout, framed, places_in
from millpond.processors.verbs.ordered.rows_in_time import InTime, RowsInTime, in_order
from millpond.processors.verbs.projections import Keys, Times
from millpond.processors.verbs.row_aggregate import InputSerde, RowAggregate
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, chosen, nullable
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.physical import from_physical, normalized
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Written
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

pc: Any = _compute

STORE: Final = "over"
"""The store with what each key's last row came out with."""

LAST_TIME: Final = "last_time"
"""The column with the time of that row."""


@dataclass(frozen=True)
class Frame:
    """Which rows of a key count for each row.

    Attributes:
        rows: how many at most, itself included; None for any number.
        within: how much earlier they are at most, in microseconds; None for any time.
    """

    rows: int | None = None
    within: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all rows count that came before it."""
        return self.rows is None and self.within is None


class Calls:
    """The results, and what rows bring for them. Travels to the workers.

    Args:
        calls: by the names of results, in the order of the columns.
        types: by the same names, the types of the values that rows bring; ``count()`` has none.

    Attributes:
        aggregate: those that aggregate; None if there are none.
        lags: of the others by name, how many rows before it each looks.
        arguments: by name, the columns that rows bring, in their one form.
        schema: the results.
    """

    def __init__(self, calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType]) -> None:
        if not calls:
            raise ConfigurationError(
                "there is nothing to show of the rows before each; give at least one call, such as {'n': count()}"
            )
        self.lags = {name: int(call.options["offset"]) for name, call in calls.items() if call.function == LAG}
        aggregated = {name: call for name, call in calls.items() if name not in self.lags}
        self.aggregate = RowAggregate(aggregated, types) if aggregated else None
        found = {name: normalized(types[name], name) for name in self.lags}
        results = {} if self.aggregate is None else {one.name: one for one in self.aggregate.schema}
        results |= {name: pa.field(name, type_) for name, type_ in found.items()}
        of_aggregate = [] if self.aggregate is None else list(self.aggregate.arguments)
        self.arguments = pa.schema([*of_aggregate, *(pa.field(name, type_) for name, type_ in found.items())])
        self.schema = nullable(pa.schema([results[name] for name in calls]))

    @property
    def states(self) -> pa.StructType:
        """The struct of the states of those that aggregate."""
        if self.aggregate is None:
            return pa.struct([])
        result: Any = self._fold.result
        struct: pa.StructType = result.storage_type
        return struct

    @property
    def _fold(self) -> MergingFold:
        assert self.aggregate is not None
        fold: ColumnFold | None = self.aggregate.aggregation.columns
        assert isinstance(fold, MergingFold)
        return fold

    def alone(self, keys: Any, columns: Sequence[Any]) -> Any:
        """The states that rows bring, each alone.

        Args:
            keys: of the rows; for errors.
            columns: their times, and then their arguments.

        Raises:
            RecordError: a result leaves its type.
        """
        assert self.aggregate is not None
        serde = self.aggregate.input_serde
        fields = list(rows_type(self.aggregate.arguments.types, TIMES))
        values = PhysicalRowType.of(pa.StructArray.from_arrays(columns[: len(fields)], fields=fields))
        nothing = PhysicalRowType.of(pa.nulls(len(keys), self.states))
        try:
            return self._fold.totals(Groups(keys, np.arange(len(keys))), values, nothing)
        except pa.ArrowInvalid:
            begin, add = self.aggregate.initializer, self.aggregate.aggregator
            rows = map(serde.deserialize, serde.columns.write(values).to_pylist())
            return self._as_column([add(key, row, begin()) for key, row in zip(keys.to_pylist(), rows, strict=True)])

    def merged(self, older: Any, newer: Any) -> Any:
        """The states of the rows of both, for each.

        Raises:
            RecordError: a result leaves its type.
        """
        assert self.aggregate is not None
        numbers = np.arange(len(older))
        try:
            both = Groups(pa.array(numbers), np.concatenate([numbers, numbers]))
            return self._fold.merged(both, pa.concat_arrays([older, newer]))
        except pa.ArrowInvalid:
            serde = self.aggregate.state_serde
            sides = [map(serde.deserialize, serde.columns.write(side).to_pylist()) for side in (older, newer)]
            return self._as_column([self.aggregate.merger(None, *pair) for pair in zip(*sides, strict=True)])

    def _as_column(self, states: Sequence[Any]) -> Any:
        assert self.aggregate is not None
        serde = self.aggregate.state_serde
        return serde.columns.read(pa.array([serde.serialize(state) for state in states], pa.binary()))


class StateSerde(InputSerde):
    """What is kept of a key: the states of its last row, and rows before the next one, each with its time.

    Args:
        name: says all that the bytes depend on.
        rows: the struct of both.
    """

    def __init__(self, name: str, rows: pa.DataType) -> None:
        super().__init__(rows)
        self.name = name

    def __reduce__(self) -> Any:
        return StateSerde, (self.name, self._rows)

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        try:
            self.columns.read(pa.array([data], pa.binary()))
        except pa.ArrowInvalid as error:
            raise SerdeError(f"{data!r} is no state of {self.name}: {error}") from error
        return super().deserialize(data)

    @property
    def struct(self) -> pa.StructType:
        """The struct of both."""
        assert isinstance(self._rows, pa.StructType)
        return self._rows


@dataclass(frozen=True)
class OverSpec(InTime):
    """What the operator needs to know.

    Attributes:
        calls: the results.
        arguments: by their names, the columns of the rows with the arguments.
        rows: reads the rows.
        frame: which rows count.
        ttl: after how long without a row a key begins anew, in microseconds; None for never.
    """

    calls: Calls = field(compare=False)
    arguments: Mapping[str, str] = field(compare=False)
    rows: RowCodec = field(compare=False)
    frame: Frame
    ttl: int | None

    @property
    def deepest(self) -> int:
        """How many rows before the next one are needed, by number."""
        framed_rows = 0 if self.frame.rows is None or self.calls.aggregate is None else self.frame.rows - 1
        return max([framed_rows, *self.calls.lags.values()])

    @property
    def kept_rows(self) -> pa.StructType:
        """The struct of a row that is kept: its time, and the arguments in their order."""
        arguments = [pa.field(str(place), without_notes(one.type)) for place, one in enumerate(self.calls.arguments)]
        return pa.struct([pa.field("time", pa.int64()), *arguments])

    @property
    def state_serde(self) -> StateSerde:
        """How the state of a key is kept."""
        rows = pa.list_(pa.field("item", self.kept_rows, nullable=False))
        states = "" if self.calls.aggregate is None else self.calls.aggregate.state_serde.name
        lags = ", ".join(f"{name} {offset}" for name, offset in self.calls.lags.items())
        name = f"over-state-1: {states}; lags {lags}; rows {self.kept_rows}"
        return StateSerde(name, pa.struct([pa.field("states", self.calls.states), pa.field("rows", rows)]))

    @property
    def lives(self) -> int | None:
        """How long what is kept of a key may still count after its last row, in microseconds; None for ever."""
        if self.ttl is not None or self.frame.within is None or self.calls.lags:
            return self.ttl
        return self.frame.within

    def far(self, earlier: Integers, later: Integers) -> Booleans:
        """Which of these times are so much later than the other ones that nothing counts of what was before."""
        if self.lives is None:
            return np.zeros(len(later), np.bool_)
        far: Booleans = later > np.minimum(earlier, MAX_TIME - self.lives) + self.lives
        return far

    @property
    def stores(self) -> list[StoreSpec]:
        """The store of states, whose clock is the watermark, and the one of what waits."""
        ttl = None if self.lives is None else min(self.lives + 1, MAX_TIME)
        kept = StoreSpec(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, self.state_serde, ttl=ttl)
        return [kept, self.buffer.store_spec]


class Over(RowsInTime):
    """Passes each row on with its results."""

    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec)
        self._spec = spec

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store: TimestampedKeyValueStore[bytes, Any] = context.store(STORE)
        keys = column_serde(BYTES)
        assert keys is not None
        self._kept = TimestampedColumns(store, keys, self._spec.state_serde.columns)
        self._expiry = store.expiry

    def observe(self, time: int) -> None:
        if self._expiry is not None:
            self._expiry.observe(time)

    def complete(self) -> None:
        """Take all rows that wait, as if the clock had come so far; so whatever comes behind them later is late."""
        time = None if self._buffer is None else self._buffer.stream_time
        if time is not None:
            self.advance(min(time + self._in_time.late + 1, MAX_TIME))

    def take(self, rows: Columns) -> None:
        encoded = rows.keys.dictionary_encode()
        sorted_keys = pc.sort_indices(encoded.dictionary)
        keys, numbers = encoded.dictionary.take(sorted_keys), inverse(sorted_keys)[encoded.indices.to_numpy()]
        order = in_order(numbers, rows.timestamps, rows.values)
        found, times = self._kept.get(keys)
        taken = _Taken(self._spec, keys, numbers[order], self.plain(rows.taken(order)), found, times)
        results, kept = taken.pass_on()
        self._kept.put(keys, kept, pa.array(taken.last_times))
        fields = [pa.field("row", pa.binary()), pa.field("results", results.type)]
        values = pa.StructArray.from_arrays([taken.rows.values, results], fields=fields)
        # Rows are in the order of their keys.
        ascending = taken.rows.timestamps.argsort(kind="stable")
        self.context.forward_columns(taken.rows.with_values(values).taken(ascending))


class _Taken:
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


@dataclass(frozen=True)
class ResultsOfRows(Projection):
    """The columns of a row, and its results.

    Attributes:
        codec: reads the rows.
        names: which of their columns.
        results: the results.
    """

    codec: RowCodec
    names: Sequence[str]
    results: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*nullable(chosen(self.codec.schemas.current, self.names)), *self.results])

    def columns(self, batch: Batch, first: int) -> list[Any]:
        fields = [pa.field("row", pa.binary()), pa.field("results", pa.struct(list(self.results)))]
        return self._columns(pa.array(batch.values, pa.struct(fields)))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values)

    def _columns(self, values: Any) -> list[Any]:
        packed, results = values.flatten()
        rows = self.codec.unpack(packed)
        return [*(rows.column(name) for name in self.names), *results.flatten()]


@dataclass(frozen=True)
class LastResults(Projection):
    """What a key's last row came out with, of the results that aggregate.

    Attributes:
        calls: make them of states.
        rows: the struct of what is kept.
    """

    calls: Calls
    rows: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([]) if self.calls.aggregate is None else nullable(self.calls.aggregate.schema)

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self._columns(from_physical(batch.values, self.rows))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values.storage)

    def _columns(self, kept: Any) -> list[Any]:
        aggregate = self.calls.aggregate
        if aggregate is None:
            return []
        return aggregate.results_of_columns(PhysicalRowType.of(kept.flatten()[0]))


def over(
    name: str,
    rows: PackedRows,
    calls: Mapping[str, AggregateCall],
    arguments: Mapping[str, str],
    frame: Frame,
    *,
    late: int,
    ttl: int | None,
    columns: Sequence[str],
    written: Mapping[str, str],
) -> Verb:
    """The verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        calls: by the names of results.
        arguments: by the names of the results that take values, the columns of the rows with these.
        frame: which rows count for each.
        late: how late a row may be, and so how long each waits, in microseconds.
        ttl: after how long without a row a key begins anew, in microseconds; None for never.
        columns: the columns of the result that rows have, besides those of the key.
        written: by the names of results, the calls as a user writes them.

    Raises:
        ConfigurationError: a call does not take what rows bring for it.
    """
    current = rows.rows.schemas.current
    bound = Calls(calls, {result: current.field(column).type for result, column in arguments.items()})
    taken = {name: arguments[name] for name in bound.arguments.names}
    spec = OverSpec(late, True, rows.order is not None, bound, taken, rows.rows, frame, ttl)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    stream = builder.stream(rows.topic, Consumed(BYTES, BYTES))
    stream.process(partial(Over, spec), stores=spec.stores, name=name, keeps_key=True).to(name)
    keys = Keys.of_rows(rows)
    kept = LastResults(bound, spec.state_serde.struct)
    stores = {STORE: (keys, kept, Times(LAST_TIME, rows.times))}
    terms = {
        "calls": Written(", ".join(f"{result}: {call}" for result, call in written.items())),
        "last": Written(frame.rows),
        "within": Written(None) if frame.within is None else frame.within,
    }
    parts = (keys, ResultsOfRows(rows.rows, columns, bound.schema))
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, terms=terms)

"""``aggregate``: columns aggregated by key, or by key and window; updates come out, or final results only."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.own_gaps import PackedGaps
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KGroupedStream, KTable
from millpond.processors.dsl.wiring.aggregations import AnyWindows, first_windows
from millpond.processors.dsl.wiring.grouping import WindowedGrouping
from millpond.processors.dsl.wiring.table import StoredTable
from millpond.processors.options.changed_windows import ChangedWindows
from millpond.processors.options.cumulative_windows import CumulativeWindows
from millpond.processors.options.grouping import GROUPING_ID
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.placing import begins_of, ends_of, session_ends
from millpond.processors.options.records import Consumed
from millpond.processors.options.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
)
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.batches.windowed_columns import WindowedArray
from millpond.processors.verbs.functions.function import without_notes
from millpond.processors.verbs.functions.row_fold import rows_type
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Times, in_micros
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import MICROS, Input, Projection, Verb, flattened
from millpond.stores.encoding.column_keys import pack_times
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.physical import check_text, from_physical, normalized, plain_leaves
from millpond.stores.encoding.rows.row_columns import PackedRowType
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.terms import Written
from millpond.stores.typed.windows.windowed import Windowed

pc: Any = _compute

WINDOW: Final = "window"
"""The column with the start and the end of a window."""

STORE: Final = "aggregate"
"""The store."""

GAP: Final = "millpond_gap"
"""The column that rows get with the gaps of their sessions, in microseconds, where each has its own."""

Windows: TypeAlias = TimeWindows | CumulativeWindows | SlidingWindows | SessionWindows

NO_CHANGES: Final[Mapping[int, Windows]] = {}
"""The argument if there have never been other windows."""

NO_BITS: Final[Mapping[str, int]] = {}
"""The argument if no result tells of grouping sets."""


@dataclass(frozen=True)
class AggregatedRows(Input):
    """Rows that are folded into an aggregate: their times and the columns of the calls.

    Attributes:
        arguments: the results of the calls that take values, each as the column ``value`` has it, and behind them the
            gap, if rows have one of their own.
        shared: the arguments that are the same column as another one, with this; the others are packed.
        types: the types of the arguments; ``aggregate`` fills them in.
    """

    arguments: Sequence[str]
    shared: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    types: pa.Schema = field(default=pa.schema([]), kw_only=True)

    def columns_of(self, values: Sequence[Any]) -> pa.Table:
        # A row's time, or that and an order, comes first.
        packed = (name for name in self.arguments if name not in self.shared)
        places = {name: place for place, name in enumerate(packed, start=1)}
        columns = [
            from_physical([value[places[self.shared.get(column.name, column.name)]] for value in values], column.type)
            for column in self.types
        ]
        return pa.Table.from_arrays(columns, schema=self.types)

    def packed(self, rows: pa.Table) -> Any:
        columns = self._columns(rows)
        fields = rows_type([column.type for column in columns[1:]], columns[0].type)
        return PackedRowType.of(pa.StructArray.from_arrays(columns, fields=list(fields)))

    def _columns(self, rows: pa.Table) -> list[Any]:
        """Return the time of each row, and what else it brings."""
        arguments = zip(self.arguments, flattened(rows["value"]).columns, strict=True) if self.arguments else ()
        packed = [column.combine_chunks() for name, column in arguments if name not in self.shared]
        return [self._moments(rows), *map(plain_column, packed)]

    def _moments(self, rows: pa.Table) -> Any:
        """Return the time of each row; with an order, bytes that compare as time and order do."""
        times: Any = rows["timestamp"].combine_chunks()
        if self.order is None:
            return times
        orders = self.order.pack_columns(flattened(rows["order"]))
        return pc.binary_join_element_wise(pack_times(times.to_numpy()), orders, b"")


def plain_column(column: Any) -> Any:
    """Return a column as rows have it: in the one form of its type, without notes.

    Raises:
        RecordError: a string is not UTF-8, or a time beyond what microseconds can tell.
    """
    return with_leaves(column, without_notes(normalized(column.type)), _checked)


def _checked(leaves: Any) -> Any:
    plain = plain_leaves(leaves)
    check_text(plain)
    return plain


@dataclass(frozen=True)
class WindowedKeys(Projection):
    """The columns of the key, and the window.

    Attributes:
        codec: reads the keys.
        windows: the windows, in microseconds.
        times: the type of start and end.
    """

    codec: KeyCodec
    windows: AnyWindows
    times: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.codec.schema, pa.field(WINDOW, pa.struct(self._bounds))])

    @property
    def identity(self) -> Sequence[str]:
        return self.schema.names

    @property
    def _bounds(self) -> list[Any]:
        return [pa.field("start", self.times), pa.field("end", self.times)]

    def columns(self, batch: Batch, first: int) -> list[Any]:
        keys, starts, ends = ([windowed[place] for windowed in batch.keys] for place in range(3))
        return self._columns(keys, np.array(starts, np.int64), np.array(ends, np.int64))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        keys: WindowedArray = columns.keys
        return self._columns(*(keys.entries(name) for name in Windowed._fields))

    def _columns(self, keys: Any, starts: Any, ends: Any) -> list[Any]:
        # A key is in many windows, and read once.
        encoded: Any = pa.array(keys, pa.binary()).dictionary_encode()
        distinct = self.codec.unpack(encoded.dictionary)
        shown = begins(self.windows, starts), self._ends(starts, ends)
        bounds = [in_micros(times, self.times) for times in shown]
        window = pa.StructArray.from_arrays(bounds, fields=self._bounds)
        return [*distinct.take(encoded.indices).columns, window]

    def _ends(self, starts: Any, ends: Any) -> Any:
        """Return the ends as they are shown: for a session when its gap is over, as in Spark, or where it is cut."""
        if not isinstance(self.windows, ChangedWindows):
            return session_ends(self.windows, np.asarray(ends)) if isinstance(self.windows, SessionWindows) else ends
        begun, shown = np.asarray(starts), np.array(ends)
        numbers = np.searchsorted(np.array(self.windows.since, np.int64), begun, side="right")
        for number, era in enumerate(self.windows.eras):
            own = numbers == number
            if isinstance(era, SessionWindows):
                shown[own] = session_ends(era, shown[own])
            else:
                shown[own] = ends_of(era, begun[own])
        return shown


@dataclass(frozen=True)
class Groupings(Projection):
    """The columns of ``grouping``: 1 where a result is of all values of a column, else 0.

    Attributes:
        codec: reads the keys, with ``grouping_id``.
        bits: the bit of ``grouping_id`` for each result, by its name.
    """

    codec: KeyCodec
    bits: Mapping[str, int]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, pa.int8()) for name in self.bits])

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self._told([key.key if isinstance(key, Windowed) else key for key in batch.keys])

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        keys = columns.keys
        return self._told(keys.entries("key") if isinstance(keys, WindowedArray) else keys)

    def _told(self, keys: Any) -> list[Any]:
        ids = self.codec.unpack(keys)[GROUPING_ID]
        return [pc.bit_wise_and(pc.shift_right(ids, bit), 1).cast(pa.int8()) for bit in self.bits.values()]


@dataclass(frozen=True)
class Results(Projection):
    """The results of the aggregate functions.

    Attributes:
        aggregate: makes them of states.
        windows: the windows of the keys, in microseconds; None without. A result that lacks rows of its window
            is null.
    """

    aggregate: RowAggregate
    windows: AnyWindows | None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in self.aggregate.schema])

    def columns(self, batch: Batch, first: int) -> list[Any]:
        results = list(self.aggregate.results(batch.values, batch.keys).columns)
        if self.windows is None:
            return results
        return self._whole(results, pa.array([windowed.start for windowed in batch.keys], pa.int64()))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        results = self.aggregate.results_of_columns(columns.values)
        return results if self.windows is None else self._whole(results, columns.keys.entries("start"))

    def _whole(self, results: Any, starts: Any) -> list[Any]:
        assert self.windows is not None
        return self.aggregate.whole(results, begins(self.windows, starts))


def begins(windows: AnyWindows, starts: Any) -> Any:
    """Return the starts of windows, from those in stores; stores have the start of the last step of cumulative ones."""
    return pa.array(begins_of(windows, np.asarray(starts))) if isinstance(windows, CumulativeWindows) else starts


def aggregate(
    name: str,
    rows: AggregatedRows,
    calls: RowAggregate,
    windows: Windows | None,
    *,
    final: bool,
    until: Mapping[int, Windows] = NO_CHANGES,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    told: Mapping[str, int] = NO_BITS,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        calls: the results.
        windows: the windows, in milliseconds, as the user gave them; None for one result a key.
        final: whether a window's result comes out once, when the window closes, instead of after each micro-batch that
            changes it.
        until: the windows that begin before some time, by that time, in microseconds; it is a boundary of those after.
        ttl: how long a result lives after its last row, in microseconds, where there are no windows; None for ever.
        expired: the treatment of expired results.
        told: the bits of ``grouping_id`` that are shown as columns, by the names of these.
    """
    calls = calls.of_verb(name, rows.keys)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=calls.state_serde)
    grouped = builder.stream(rows.topic, Consumed(BYTES, calls.input_serde)).group_by_key()
    kept = Materialized(STORE, value_serde=calls.state_serde, caching=not final, ttl=ttl, expired=expired)
    cut = None if windows is None else changed_windows(windows, until)
    aggregation = replace(calls.aggregation, combiner=calls.combiner(rows, cut))
    KTable(aggregated_table(grouped, aggregation, cut, kept, final=final)).to(name)
    keys = Keys.of_rows(rows) if cut is None else WindowedKeys(rows.keys, cut, rows.times)
    results = Results(calls, cut)
    shown = (keys, *([Groupings(rows.keys, told)] if told else []), results)
    parts = shown if final else (*shown, ChangeColumns(rows.times))
    stores = {STORE: (*shown, Times(CHANGE_TIME, rows.times))}
    rows = replace(rows, types=calls.arguments)
    follows_time = windows is not None or ttl is not None
    terms = {} if rows.grouping is None else {"by": Written(rows.grouping)}
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, follows_time=follows_time, terms=terms)


def aggregated_table(
    grouped: KGroupedStream, aggregation: Aggregation, windows: AnyWindows | None, kept: Materialized, *, final: bool
) -> StoredTable:
    """Return the aggregate of each key, or of each key and window.

    Args:
        grouped: the rows.
        aggregation: the computation.
        windows: the windows, in microseconds; None for one aggregate a key.
        kept: the store, with the serde of aggregates.
        final: whether a window's aggregate comes out once, when the window closes.
    """
    emit = EmitStrategy.ON_WINDOW_CLOSE if final else EmitStrategy.ON_WINDOW_UPDATE
    grouping = grouped.grouping
    if windows is None:
        return grouping.aggregate(aggregation, kept, kept.value_serde)
    if isinstance(first_windows(windows), SessionWindows):
        # A session is kept as long as it takes rows: one that ends as long ago as the store keeps it is gone there.
        kept = replace(kept, retention=windows.retention + 1)
    return WindowedGrouping(grouping, windows, emit).aggregate(aggregation, kept, kept.value_serde)


class _TimeWindows(TimeWindows):
    from_epoch = False

    def __init__(self, windows: TimeWindows) -> None:
        for name in ("size", "advance", "grace", "offset"):
            object.__setattr__(self, name, getattr(windows, name) * MICROS)
        if windows.calendar is not None:
            object.__setattr__(self, "calendar", replace(windows.calendar, scale=TimeUnit.MICROSECOND))


class _CumulativeWindows(CumulativeWindows):
    def __init__(self, windows: CumulativeWindows) -> None:
        for name in ("size", "step", "grace", "offset"):
            object.__setattr__(self, name, getattr(windows, name) * MICROS)


class _SlidingWindows(SlidingWindows):
    from_epoch = False


def _sessions_in_micros(windows: SessionWindows) -> SessionWindows:
    within = None if windows.within is None else _TimeWindows(windows.within)
    made, gap_of = copy(windows), None if windows.gap_of is None else PackedGaps()
    every = {"gap": windows.gap * MICROS, "grace": windows.grace * MICROS, "within": within, "gap_of": gap_of}
    for name, value in every.items():
        object.__setattr__(made, name, value)
    return made


def windows_in_micros(windows: Windows) -> Windows:
    """Return the same windows, in microseconds, of all times."""
    if isinstance(windows, SessionWindows):
        return _sessions_in_micros(windows)
    if isinstance(windows, SlidingWindows):
        return _SlidingWindows(windows.difference * MICROS, grace=windows.grace * MICROS)
    return _CumulativeWindows(windows) if isinstance(windows, CumulativeWindows) else _TimeWindows(windows)


def changed_windows(windows: Windows, until: Mapping[int, Windows]) -> AnyWindows:
    """Return all windows, in microseconds; windows in ``until`` begin before the time that is their key."""
    if not until:
        return windows_in_micros(windows)
    eras = [windows_in_micros(one) for one in (*(until[time] for time in sorted(until)), windows)]
    return ChangedWindows([one for one in eras if isinstance(one, TimeWindows | SessionWindows)], sorted(until))

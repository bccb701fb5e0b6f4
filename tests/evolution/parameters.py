"""Topologies whose parameters are others at a restart, and those of which stored rows depend on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.processors import (
    CumulativeWindows,
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millpond.processors.options.grouping import GroupingSets, grouping_sets
from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.record_processor import RecordProcessor
from millpond.processors.verbs.aggregate import aggregate
from millpond.processors.verbs.aggregates import AggregateCall, count, last, sum
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.deduplicate import deduplicate
from millpond.processors.verbs.joins.asof_join import Correcting, asof_join
from millpond.processors.verbs.joins.multi_join import multi_join
from millpond.processors.verbs.joins.stream_join import BOUNDS, OwnBounds, stream_join
from millpond.processors.verbs.joins.table_join import table_join
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor
from millpond.processors.verbs.latest import latest
from millpond.processors.verbs.ordered.over import over
from millpond.processors.verbs.ordered.over_spec import Calls, Frame
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.top_n import OrderedRows, top_n
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.calendar import Calendar, CalendarUnit
from tests.processors.verbs.running import an_aggregated_input, an_input


def grouped(windows: Any, emit: str = "updates", name: str = "counts", **kept: Any) -> Topology:
    """Return counts of windows."""
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    windowed = builder.stream("in").group_by_key().windowed_by(windows)
    if emit == "final":
        windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windowed.count(Materialized(name, **kept)).to("out")
    return builder.build()


def own_gaps(at_most: int) -> SessionWindows:
    """Return sessions with a gap of each record."""
    return SessionWindows(lambda key, value: value, at_most=at_most)


def suppressed(until: Suppressed, grace: int = 0) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=grace)).count(Materialized("counts"))
    counts.suppress(until).to("out")
    return builder.build()


def streams_joined(windows: JoinWindows, how: str = "inner", name: str = "pairs") -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right = builder.stream("left"), builder.stream("right")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[how]
    join(right, lambda one, other: f"{one}{other}", windows=windows, joined=StreamJoined(name=name)).map_values(
        str, value_serde="string"
    ).to("out")
    return builder.build()


def tables_joined(how: str, *, foreign: bool = False, history: Any = "latest") -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    kept = Materialized.versioned if history == "complete" else lambda name, **_: Materialized(name)
    left = builder.table("left", materialized=kept("left", history_retention=100))
    right = builder.table("right", materialized=kept("right", history_retention=100))
    options: dict[str, Any] = {"materialized": kept("joined", history_retention=100)}
    if foreign:
        options |= {"foreign_key": lambda key, value: value, "name": "fk"}
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[how]
    join(right, lambda one, other: f"{one}{other}", **options).to("out")
    return builder.build()


def below_a_join(how: str, below: str = "grouped") -> Topology:
    """Return a topology that keeps rows behind a join of tables that has no store."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    left, right, other = (builder.table(name, materialized=Materialized(name)) for name in ("left", "right", "other"))
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[how]
    joined = join(right, lambda one, other: f"{one}{other}").filter(lambda key, value: value != "")
    if below == "kept":
        joined = joined.map_values(lambda value: value, Materialized("kept"))
    elif below == "held back":
        joined = joined.suppress(Suppressed.until_time_limit(5, name="held"))
    elif below == "foreign key":
        joined = joined.join(other, lambda one, other: one, foreign_key=lambda key, value: value, name="fk")
    else:
        joined = joined.group_by(lambda key, value: (value, value)).count(Materialized("counts"))
    joined.to_stream().map_values(str, value_serde="string").to("out")
    return builder.build()


def stream_with_table(
    history: int, wait: int | None = None, joined: Mapping[str, Any] | None = None, **kept: Any
) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    table = builder.table("table", materialized=Materialized.versioned("table", history_retention=history, **kept))
    how = Joined(name="j", grace=wait, **(joined or {}))
    pairs = builder.stream("in").join(table, lambda one, other: (one, other), how)
    pairs.map_values(str, value_serde="string").to("out")
    return builder.build()


class Ignoring(RecordProcessor):
    def process_record(self, key: object, value: object, timestamp: int) -> None:
        self.context.store("mine").put(key, value, timestamp)


def with_a_store(**options: Any) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    spec = StoreSpec("mine", StoreKind.WINDOW, STRING, INT64, **{"retention": 100, "window_size": 10, **options})
    builder.stream("in").process(Ignoring, stores=[spec]).to("out")
    return builder.build()


class Rule(KeyedProcessor):
    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> None:
        pass


KEY, VALUE = {"k": pa.string()}, {"v": pa.int64()}
ORDER = KeyCodec(pa.schema([("o", pa.int64())]))


def of_latest(history: int = 10, order: KeyCodec | None = None) -> Topology:
    return latest("v", replace(an_input("input", KEY, VALUE), order=order), history=history, columns=["v"]).topology


def of_aggregate(
    calls: dict[str, AggregateCall] | None = None,
    windows: Any = None,
    order: KeyCodec | None = None,
    *,
    final: bool = False,
    grouping: GroupingSets | None = None,
) -> Topology:
    calls = calls or {"n": count(), "s": sum("v")}
    types = {name: pa.int64() for name, call in calls.items() if call.column is not None}
    rows = replace(an_aggregated_input("input", KEY, types), order=order, grouping=grouping)
    bound = RowAggregate(calls, types, ordered=order is not None)
    return aggregate("v", rows, bound, windows, final=final).topology


def of_top_n(n: int = 2, windows: Any = None, *, descending: bool = False, final: bool = False) -> Topology:
    rows = OrderedRows.of(replace(an_input("input", KEY, VALUE), order=ORDER), (descending,))
    return top_n("v", rows, n, windows, columns=["v"], final=final).topology


def of_deduplicate(
    within: int = 10, late: int = 5, *, waits: bool = True, order: KeyCodec | None = None, name: str = "v"
) -> Topology:
    rows = replace(an_input("input", KEY, VALUE), order=order)
    return deduplicate(name, rows, within=within, late=late, waits=waits, columns=["v"]).topology


def of_over(
    frame: Frame | None = None, late: int = 5, ttl: int | None = None, order: KeyCodec | None = None, name: str = "v"
) -> Topology:
    rows, calls = replace(an_input("input", KEY, VALUE), order=order), Calls({"n": count("v")}, {"n": VALUE["v"]})
    frame = frame or Frame()
    return over(name, rows, calls, {"n": "v"}, frame, late=late, ttl=ttl, columns=["v"]).topology


def of_apply(*, ordered: bool = False) -> Topology:
    rows = an_input("input", KEY, VALUE)
    made = apply_topology("v", Rule(), rows.keys, rows.rows, 10, ordered=ordered)
    return Verb(made, {"input": rows}, ()).topology


def sides(**options: Any) -> tuple[PackedRows, PackedRows]:
    return an_input("left", KEY, {**VALUE}, **options), an_input("right", KEY, {"w": pa.int64()})


def of_asof_join(grace: int | None = 5, order: KeyCodec | None = None, null_safe: bool = False) -> Topology:
    one, other = sides()
    other = replace(other, order=order)
    made = asof_join("v", one, other, JoinType.INNER, history=10, grace=grace, columns=["w"], null_safe=null_safe)
    return made.topology


def of_corrected_join(how: JoinType = JoinType.INNER, key: str = "v") -> Topology:
    one, other = sides()
    correcting = Correcting(10, [key])
    return asof_join("v", one, other, how, history=10, grace=None, columns=["w"], correcting=correcting).topology


def of_stream_join(
    windows: JoinWindows,
    how: JoinType = JoinType.LEFT,
    null_safe: bool = False,
    bounds: OwnBounds | None = None,
) -> Topology:
    one, other = sides()
    if bounds is not None:
        one = an_input("left", KEY, {**VALUE, **dict.fromkeys(BOUNDS.values(), pa.int64())})
    made = stream_join("v", one, other, how, windows, columns=["w"], shared={}, bounds=bounds, null_safe=null_safe)
    return made.topology


def of_table_join(
    how: JoinType = JoinType.INNER,
    history: int | None = None,
    foreign: dict[str, Any] | None = None,
    orders: tuple[KeyCodec | None, KeyCodec | None] = (None, None),
    null_safe: bool = False,
) -> Topology:
    one, other = sides(foreign=foreign)
    one, other = replace(one, order=orders[0]), replace(other, order=orders[1])
    made = table_join(
        "v", one, other, how, history=history, left_columns=["v"], right_columns=["w"], null_safe=null_safe
    )
    return made.topology


def of_multi_join(
    tables: Sequence[str] = ("a", "b", "c"),
    types: Sequence[JoinType] = (JoinType.INNER, JoinType.LEFT),
    history: int | None = None,
    order: KeyCodec | None = None,
    null_safe: bool = False,
) -> Topology:
    first, *others = (an_input(name, KEY, {name: pa.int64()}) for name in tables)
    made = multi_join(
        "v", [replace(first, order=order), *others], types, history=history, columns=[[name] for name in tables],
        null_safe=null_safe,
    )  # fmt: skip
    return made.topology


class Change(NamedTuple):
    """A parameter that is another one at a restart.

    Attributes:
        of: whose it is, and its name: what ``PARAMETERS`` says is refused by this case.
        before, after: the topologies.
        told: what the message says of the old and the new value; None if the shape itself is another.
    """

    of: tuple[str, ...]
    before: Topology
    after: Topology
    told: str | None


SECOND = 1_000_000
BOUNDED = OwnBounds(5 * SECOND, [*BOUNDS])
DAYS = TimeWindows("1 day", zone="Europe/Berlin")
MONTHS = Calendar(CalendarUnit.MONTH, "UTC")
REFUSED = [
    Change(("TimeWindows.size",), grouped(TimeWindows(600_000)), grouped(TimeWindows(1_200_000)),
           "by a windowed aggregation with size='10 minutes' and not '20 minutes'"),
    Change(("TimeWindows.advance",), grouped(TimeWindows(10, advance=5)), grouped(TimeWindows(10, advance=2)),
           "advance='5 milliseconds' and not '2 milliseconds'"),
    Change(("TimeWindows.offset",), grouped(TimeWindows(10)), grouped(TimeWindows(10, offset=5)),
           "with no offset and not '5 milliseconds', .*; write no offset again"),
    Change(("TimeWindows.offset, none",), grouped(TimeWindows(10, offset=5)), grouped(TimeWindows(10)),
           "with offset='5 milliseconds' and not none, .*; write offset='5 milliseconds' again"),
    Change(("TimeWindows.calendar",), grouped(DAYS), grouped(TimeWindows("1 day")),
           "with zone='Europe/Berlin' and not none, .*; write zone='Europe/Berlin' again"),
    Change(("TimeWindows.zone, none",), grouped(TimeWindows("1 day")), grouped(DAYS),
           "with no zone and not 'Europe/Berlin', .*; write no zone again"),
    Change(("TimeWindows.zone",), grouped(DAYS), grouped(TimeWindows("1 day", zone="UTC")),
           "zone='Europe/Berlin' and not 'UTC'"),
    Change(("TimeWindows.size, of a calendar",), grouped(DAYS), grouped(TimeWindows("1 month", zone="Europe/Berlin")),
           "size='1 day' and not '1 month', advance='1 day' and not '1 month'"),
    Change(("TimeWindows.week_start",), grouped(TimeWindows("1 week", zone="UTC", week_start="sunday")),
           grouped(TimeWindows("1 week", zone="UTC")), "week_start='sunday' and not 'monday'"),
    Change(("Millpond.aggregate.window, of another zone",), of_aggregate(windows=DAYS),
           of_aggregate(windows=TimeWindows("1 day", zone="UTC")),
           r"'1 day', zone='Europe/Berlin'\)}, with a time that no row has reached and at which new windows begin"),
    Change(("CumulativeWindows.size",), grouped(CumulativeWindows(60, 10)), grouped(CumulativeWindows(30, 10)),
           "size='60 milliseconds' and not '30 milliseconds'"),
    Change(("CumulativeWindows.step",), grouped(CumulativeWindows(60, 10)), grouped(CumulativeWindows(60, 20)),
           "step='10 milliseconds' and not '20 milliseconds'"),
    Change(("CumulativeWindows.offset",), grouped(CumulativeWindows(60, 10)),
           grouped(CumulativeWindows(60, 10, offset=5)), "with no offset and not '5 milliseconds'"),
    Change(("windowed_by.windows, of cumulative ones",), grouped(TimeWindows(60)), grouped(CumulativeWindows(60, 10)),
           "windows='TimeWindows' and not 'CumulativeWindows'"),
    Change(("CumulativeWindows.grace, shorter, of final results",),
           grouped(CumulativeWindows(60, 10, grace=20), "final"),
           grouped(CumulativeWindows(60, 10, grace=5), "final"), "grace='20 milliseconds' and not '5 milliseconds'"),
    Change(("SlidingWindows.difference",), grouped(SlidingWindows(10)), grouped(SlidingWindows(20)),
           "difference='10 milliseconds' and not '20 milliseconds'"),
    Change(("SessionWindows.gap",), grouped(SessionWindows(10)), grouped(SessionWindows(1_000)),
           "gap='10 milliseconds' and not '1 second'"),
    Change(("SessionWindows.gap_of",), grouped(SessionWindows(10)), grouped(own_gaps(10)),
           "with no at_most and not '10 milliseconds', gap='10 milliseconds' and not 'of each record', .*; write"),
    Change(("SessionWindows.gap_of, none",), grouped(own_gaps(10)), grouped(SessionWindows(10)),
           "with at_most='10 milliseconds' and not none, gap='of each record' and not '10 milliseconds', .*; write"),
    Change(("SessionWindows.gap, at most",), grouped(own_gaps(10)), grouped(own_gaps(20)),
           "with at_most='10 milliseconds' and not '20 milliseconds', .*; write at_most='10 milliseconds' again"),
    Change(("SessionWindows.within",), grouped(SessionWindows(10)), grouped(SessionWindows(10, max_length=100)),
           "with no max_length and not '100 milliseconds', .*; write no max_length again"),
    Change(("SessionWindows.within, none",), grouped(SessionWindows(10, max_length=100)), grouped(SessionWindows(10)),
           "with max_length='100 milliseconds' and not none, .*; write max_length='100 milliseconds' again"),
    Change(("SessionWindows.within, offset",), grouped(SessionWindows(10, max_length=100)),
           grouped(SessionWindows(10, max_length=100, offset=5)), "with no offset and not '5 milliseconds'"),
    Change(("SessionWindows.within, zone",), grouped(SessionWindows(10, max_length="1 month", zone="Europe/Berlin")),
           grouped(SessionWindows(10, max_length="1 month", zone="UTC")), "zone='Europe/Berlin' and not 'UTC'"),
    Change(("windowed_by.windows",), grouped(TimeWindows(10)), grouped(SlidingWindows(10)),
           "windows='TimeWindows' and not 'SlidingWindows'"),
    Change(("emit_strategy.emit",), grouped(TimeWindows(10)), grouped(TimeWindows(10), "final"),
           "emit='on-window-update' and not 'on-window-close'"),
    Change(("windowed_by.grace, shorter, of final results",), grouped(TimeWindows(10, grace=20_000), "final"),
           grouped(TimeWindows(10, grace=5_000), "final"), "grace='20 seconds' and not '5 seconds'"),
    Change(("SlidingWindows.grace, shorter, of final results",), grouped(SlidingWindows(10, grace=20), "final"),
           grouped(SlidingWindows(10, grace=5), "final"), "grace='20 milliseconds' and not '5 milliseconds'"),
    Change(("SessionWindows.grace, shorter, of final results",), grouped(SessionWindows(10, grace=20), "final"),
           grouped(SessionWindows(10, grace=5), "final"), "grace='20 milliseconds' and not '5 milliseconds'"),
    Change(("Suppressed.wait",), suppressed(Suppressed.until_time_limit(5, name="s")),
           suppressed(Suppressed.until_window_closes(name="s")), "by suppress with until='time limit' and not 'win"),
    Change(("JoinWindows.before",), streams_joined(JoinWindows(5, 5)), streams_joined(JoinWindows(6, 5)),
           "by a join of streams with before='5 milliseconds' and not '6 milliseconds'"),
    Change(("JoinWindows.after",), streams_joined(JoinWindows(5, 5)), streams_joined(JoinWindows(5, 4)),
           "after='5 milliseconds' and not '4 milliseconds'"),
    Change(("stream join.grace, left or outer",), streams_joined(JoinWindows(5, grace=1), "left"),
           streams_joined(JoinWindows(5, grace=2), "left"), "grace='1 millisecond' and not '2 milliseconds'"),
    Change(("stream join.type, between left and outer",), streams_joined(JoinWindows(5), "left"),
           streams_joined(JoinWindows(5), "outer"), "join='left' and not 'outer'"),
    Change(("stream join.type, inner", "JoinWindows.eager"), streams_joined(JoinWindows(5), "left"),
           streams_joined(JoinWindows(5, eager=True), "left"), None),
    Change(("table join.type",), tables_joined("inner"), tables_joined("left"), "join='inner' and not 'left'"),
    Change(("table join.history",), tables_joined("inner", history="complete"), tables_joined("inner"), None),
    *(Change(("table join.type, without a store",), below_a_join("inner", below), below_a_join("left", below),
             "tables_joined='inner' and not 'left'") for below in ("grouped", "kept", "held back", "foreign key")),
    Change(("foreign-key join.type",), tables_joined("inner", foreign=True), tables_joined("left", foreign=True),
           "join='inner' and not 'left'"),
    Change(("StoreSpec.window_size",), with_a_store(), with_a_store(window_size=20),
           "made with window_size='10 milliseconds' and not '20 milliseconds'"),
    Change(("StoreSpec.calendar",), with_a_store(), with_a_store(calendar=MONTHS),
           "with no calendar and not '1 month of UTC'"),
    Change(("StoreSpec.calendar, none",), with_a_store(calendar=MONTHS), with_a_store(),
           "calendar='1 month of UTC' and not none"),
    Change(("StoreSpec.retain_duplicates",), with_a_store(), with_a_store(retain_duplicates=True),
           "retain_duplicates='False' and not 'True'"),
    Change(("Joined.grace, added or removed",), stream_with_table(100, 5), stream_with_table(100), None),
    Change(("Millpond.aggregate.window",), of_aggregate(windows=TimeWindows(600_000)),
           of_aggregate(windows=TimeWindows(1_200_000)), "by the verb 'v' with size='10 minutes' and not '20 minutes'"),
    Change(("Millpond.aggregate.emit",), of_aggregate(windows=TimeWindows(10)),
           of_aggregate(windows=TimeWindows(10), final=True), "emit='on-window-update' and not 'on-window-close'"),
    Change(("Millpond.aggregate.window, of a shorter grace, final",),
           of_aggregate(windows=TimeWindows(10, grace=7_000), final=True),
           of_aggregate(windows=TimeWindows(10, grace=5_000), final=True), "grace='7 seconds' and not '5 seconds'"),
    Change(("Millpond.stream_join.within", "Millpond.stream_join.before", "Millpond.stream_join.after"),
           of_stream_join(JoinWindows.of(5 * SECOND)), of_stream_join(JoinWindows.of(6 * SECOND)),
           "before='5 seconds' and not '6 seconds', after='5 seconds' and not '6 seconds'"),
    *(Change((f"Millpond.stream_join.how, {one.value} to {other.value}", "Millpond.stream_join.how"),
             of_stream_join(JoinWindows(5), one), of_stream_join(JoinWindows(5), other), None)
      for one, other in permutations(JoinType, 2)),
    Change(("Millpond.stream_join.at_most",), of_stream_join(JoinWindows.of(5 * SECOND), bounds=BOUNDED),
           of_stream_join(JoinWindows.of(6 * SECOND), bounds=OwnBounds(6 * SECOND, [*BOUNDS])),
           "with at_most='5 seconds' and not '6 seconds', and cannot become others; write at_most='5 seconds' again"),
    Change(("Millpond.stream_join.before, a column", "Millpond.stream_join.at_most, added"),
           of_stream_join(JoinWindows.of(5 * SECOND)), of_stream_join(JoinWindows.of(5 * SECOND), bounds=BOUNDED),
           "no at_most and not '5 seconds', before='5 seconds' and not 'a column', after='5 seconds'"),
    Change(("Millpond.stream_join.after, no column", "Millpond.stream_join.at_most, removed"),
           of_stream_join(JoinWindows.of(5 * SECOND), bounds=BOUNDED), of_stream_join(JoinWindows.of(5 * SECOND)),
           "at_most='5 seconds' and not none, before='a column' and not '5 seconds', after='a column' and not"),
    Change(("Millpond.stream_join.after, no column, before a column",),
           of_stream_join(JoinWindows.of(5 * SECOND), bounds=BOUNDED),
           of_stream_join(JoinWindows.of(5 * SECOND), bounds=OwnBounds(5 * SECOND, ["before"])),
           "with after='a column' and not '5 seconds', and cannot become others"),
    Change(("Millpond.table_join.how",), of_table_join(), of_table_join(JoinType.LEFT), "how='inner' and not 'left'"),
    Change(("Millpond.aggregate.by",), of_aggregate(grouping=grouping_sets(["k", []])),
           of_aggregate(grouping=grouping_sets(["k"])),
           r"by=grouping_sets\(\[\['k'\], \[\]\]\) and not grouping_sets\(\[\['k'\]\]\)"),
    Change(("Millpond.table_join.how, by foreign key",), of_table_join(JoinType.RIGHT, foreign=KEY),
           of_table_join(JoinType.OUTER, foreign=KEY), "how='right' and not 'outer'"),
    Change(("Millpond.table_join.how, with right rows alone",), of_table_join(JoinType.LEFT, foreign=KEY),
           of_table_join(JoinType.OUTER, foreign=KEY), None),
    Change(("Millpond.asof_join.null_safe",), of_asof_join(), of_asof_join(null_safe=True),
           "null_safe=False and not True, and cannot become others; write null_safe=False again"),
    Change(("Millpond.stream_join.null_safe",), of_stream_join(JoinWindows(5), null_safe=True),
           of_stream_join(JoinWindows(5)), "null_safe=True and not False"),
    Change(("Millpond.multi_join.tables",), of_multi_join(), of_multi_join(("a", "c", "b")),
           r"with tables=\['a', 'b', 'c'\] and not \['a', 'c', 'b'\]"),
    Change(("Millpond.multi_join.how",), of_multi_join(), of_multi_join(types=(JoinType.LEFT,) * 2),
           r"with how=\{'b': 'inner', 'c': 'left'\} and not 'left'.*; write how=\{'b': 'inner', 'c': 'left'\} again"),
    Change(("Millpond.multi_join.null_safe",), of_multi_join(), of_multi_join(null_safe=True),
           "null_safe=False and not True"),
    Change(("Millpond.multi_join.order",), of_multi_join(history=10), of_multi_join(history=10, order=ORDER), None),
    Change(("Millpond.table_join.null_safe",), of_table_join(), of_table_join(null_safe=True),
           "null_safe=False and not True"),
    Change(("Millpond.table_join.left_key",), of_table_join(), of_table_join(foreign=KEY), None),
    Change(("Millpond.table_join.history, added or removed",), of_table_join(), of_table_join(history=10), None),
    Change(("Millpond.latest.order",), of_latest(), of_latest(order=ORDER), None),
    Change(("Millpond.aggregate.order",), of_aggregate({"v": last("v")}), of_aggregate({"v": last("v")}, order=ORDER),
           None),
    Change(("Millpond.top_n.n",), of_top_n(2), of_top_n(3), "by the verb 'v' with n=2 and not 3"),
    Change(("Millpond.top_n.descending",), of_top_n(), of_top_n(descending=True), "descending=False and not True"),
    Change(("Millpond.top_n.window",), of_top_n(windows=TimeWindows(600_000)),
           of_top_n(windows=TimeWindows(1_200_000)), "by the verb 'v' with size='10 minutes' and not '20 minutes'"),
    Change(("Millpond.top_n.emit",), of_top_n(windows=TimeWindows(10)),
           of_top_n(windows=TimeWindows(10), final=True), "emit='on-window-update' and not 'on-window-close'"),
    Change(("Millpond.deduplicate.order",), of_deduplicate(), of_deduplicate(order=ORDER), None),
    Change(("Millpond.deduplicate.grace, added or removed",), of_deduplicate(), of_deduplicate(waits=False), None),
    Change(("Millpond.over.last",), of_over(), of_over(Frame(rows=3)), "by the verb 'v' with last=None and not 3"),
    Change(("Millpond.over.within",), of_over(Frame(within=1_000_000)), of_over(Frame(within=2_000_000)),
           "by the verb 'v' with within='1 second' and not '2 seconds'"),
    Change(("Millpond.over.order",), of_over(), of_over(order=ORDER), None),
    Change(("Millpond.apply.order",), of_apply(), of_apply(ordered=True), None),
    Change(("Millpond.asof_join.right_order",), of_asof_join(), of_asof_join(order=ORDER), None),
    Change(("Millpond.asof_join.grace, added or removed",), of_asof_join(), of_asof_join(grace=None), None),
    Change(("Millpond.asof_join.emit",), of_asof_join(grace=None), of_corrected_join(), None),
    Change(("Millpond.asof_join.how, of corrected results",), of_corrected_join(), of_corrected_join(JoinType.LEFT),
           "how='inner' and not 'left'"),
    Change(("Millpond.asof_join.left_key",), of_corrected_join(), of_corrected_join(key="u"),
           r"left_key=\['v'\] and not \['u'\]"),
    Change(("Millpond.table_join.left_order",), of_table_join(history=10),
           of_table_join(history=10, orders=(ORDER, None)), None),
    Change(("Millpond.table_join.right_order",), of_table_join(history=10),
           of_table_join(history=10, orders=(None, ORDER)), None),
    Change(("Materialized.kind",), tables_joined("inner"), tables_joined("inner", history="complete"), None),
    Change(("Materialized.name", "StreamJoined.name", "StreamJoined.store_name"), streams_joined(JoinWindows(5)),
           streams_joined(JoinWindows(5), name="others"), None),
    Change(("Suppressed.name",), suppressed(Suppressed.until_time_limit(5, name="s")),
           suppressed(Suppressed.until_time_limit(5, name="t")), None),
]  # fmt: skip

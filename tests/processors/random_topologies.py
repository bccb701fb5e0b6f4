"""Random topologies for hypothesis: a program is a list of steps, each of which adds one operator to what is there.

Keys are letters, values are short strings, so that every stream can be joined, merged or grouped with every other.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import pyarrow as pa
from hypothesis import strategies as st

from millpond.processors import (
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    RecordProcessor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millpond.processors.options.order import Order
from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

Step = tuple[str, int, int, int]
"""Operator, first input, second input, variant; numbers beyond the inputs and variants that exist wrap around."""

DIRECTIONS: Final[tuple[Literal["backward", "forward", "nearest"], ...]] = ("backward", "forward", "nearest")
SOURCES = ("stream-0", "stream-1", "table-0", "table-1", "table-2")
SHARED = "shared"
TEXT = Materialized.with_serdes(None, "string")


def short(*parts: Any) -> str:
    return "".join(map(str, parts))[-6:]


def short_columns(*parts: Any) -> Any:
    return pa.array(list(map(short, *(part.to_pylist() for part in parts))), pa.string())


class LastSeen(RecordProcessor):
    """Forwards the value that its store has for the key together with the new one, which replaces it."""

    def __init__(self, store: str) -> None:
        self._name = store

    def open(self) -> None:
        self._last = self.context.store(self._name)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if key is not None:
            self.forward(key, short(self._last.get(key), value), timestamp)
            self._last.put(key, value)


class RandomTopology:
    """The topology that the steps so far have made; by default, its tasks take records in the order of arrival."""

    def __init__(self, order: Order = Order.ARRIVAL) -> None:
        self.builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
        self.streams: list[KStream] = [self.builder.stream("stream-0"), self.builder.stream("stream-1")]
        self.tables: list[KTable] = [
            self.builder.table("table-0"),
            self.builder.table("table-1", materialized=Materialized.versioned(history_retention=20)),
            self.builder.table("table-2", materialized=Materialized.versioned(history_retention=15), reorder_within=4),
        ]
        self.histories = {table.node for table in self.tables[1:]}
        self.builder.add_state_store(StoreSpec(SHARED, StoreKind.KEY_VALUE, STRING, STRING))

    def build(self, program: list[Step]) -> Topology:
        for number, (operator, first, second, variant) in enumerate(program):
            OPERATORS[operator](self, first, second, variant, number)
        written = Produced("string", "string")
        for number, stream in enumerate(self.streams):
            stream.to(f"stream-out-{number % 5}", written)
        for number, table in enumerate(self.tables):
            table.to(f"table-out-{number}", written)
        return self.builder.build()

    def stream(self, number: int) -> KStream:
        return self.streams[number % len(self.streams)]

    def table(self, number: int) -> KTable:
        return self.tables[number % len(self.tables)]


def _filter(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.stream(first).filter(lambda k, v: k != "abc"[variant % 3]))


def _map_values(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.stream(first).map_values(lambda v: None if v is None else short(v, variant)))


def _flat_map_values(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.stream(first).flat_map_values(lambda v: [v, short(v, "'")][: variant % 3]))


def _rekey(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.stream(first).select_key(lambda k, v: "abc"[len(v or "") % 3]))


def _split(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    parts = made.stream(first).split().branch(lambda k, v: k == "a").default_branch()
    made.streams.extend(parts.values())


def _merge(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.stream(first).merge(made.stream(second)))


def _process(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    store = SHARED if variant % 2 else StoreSpec(f"own-{number}", StoreKind.KEY_VALUE, STRING, STRING)
    name = SHARED if variant % 2 else f"own-{number}"
    made.streams.append(made.stream(first).process(lambda: LastSeen(name), stores=[store], keeps_key=True))


def _join_streams(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    windows = JoinWindows(before=5, after=variant % 7, grace=variant % 3, eager=variant % 2 == 0)
    join = (KStream.join, KStream.left_join, KStream.outer_join)[variant % 3]
    vectorized = (first + second + variant) % 2 == 0
    joiner: Callable[..., Any] = short_columns if vectorized else short
    joined = join(made.stream(first), made.stream(second), joiner, windows=windows, vectorized=vectorized)
    made.streams.append(joined)


def _join_table(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    join = (KStream.join, KStream.left_join)[variant % 2]
    joined = join(made.stream(first), made.table(second), short)
    made.streams.append(joined)


def _join_with_grace(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    versioned = [table for table in made.tables if table.node in made.histories]
    join = (KStream.join, KStream.left_join)[variant % 2]
    joined = join(made.stream(first), versioned[second % len(versioned)], short, Joined(grace=variant))
    made.streams.append(joined)


def _aggregate(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    grouped = made.stream(first).group_by_key(Grouped("string", "string"))
    store = Materialized.versioned(history_retention=15, value_serde="string") if variant % 2 else TEXT
    made.tables.append(grouped.aggregate(lambda: "", lambda k, v, total: short(total, v), store))


def _window(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    grouped = made.stream(first).group_by_key(Grouped("string", "string"))
    emit = EmitStrategy.ON_WINDOW_CLOSE if second % 3 == 0 else EmitStrategy.ON_WINDOW_UPDATE
    if variant % 4 == 0:
        counted = grouped.windowed_by(SessionWindows(4, grace=3)).emit_strategy(emit).count()
    elif variant % 4 == 1:
        counted = grouped.windowed_by(SlidingWindows(5, grace=3)).emit_strategy(emit).count()
    else:
        counted = grouped.windowed_by(TimeWindows(6, advance=variant % 6 + 1, grace=3)).emit_strategy(emit).count()
    if variant % 3 == 0 and emit is EmitStrategy.ON_WINDOW_UPDATE:
        counted = counted.suppress(Suppressed.until_window_closes())
    flat = counted.to_stream().map(
        lambda key, count: (key.key, None if count is None else f"{key.start}:{count}"),
        key_serde="string",
        value_serde="string",
    )
    made.streams.append(flat)


def _join_table_with_grace(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    table = made.table(second)
    if table.versioned:
        join = (KStream.join, KStream.left_join)[variant % 2]
        ahead = first % 3
        joined = Joined(grace=variant % 5, tolerance=variant % 7 if ahead else None, direction=DIRECTIONS[ahead])
        made.streams.append(join(made.stream(first), table, short, joined))


def _to_table(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    store = Materialized.versioned(history_retention=15) if variant % 2 else None
    made.tables.append(made.stream(first).to_table(store, reorder_within=None if variant % 3 else variant))


def _table_filter(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.tables.append(made.table(first).filter(lambda k, v: k != "abc"[variant % 3]))


def _table_map_values(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.tables.append(made.table(first).map_values(lambda v: short(v, variant), Materialized(f"mapped-{number}")))


def _join_tables(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    join = (KTable.join, KTable.left_join, KTable.outer_join)[variant % 3]
    made.tables.append(join(made.table(first), made.table(second), short, TEXT))


def _join_tables_by_columns(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    join = (KTable.join, KTable.left_join, KTable.outer_join)[variant % 3]
    made.tables.append(join(made.table(first), made.table(second), short_columns, TEXT, vectorized=True))


def _join_histories(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    left, right = made.table(first), made.table(second)
    if left.versioned and right.versioned:
        join = (KTable.join, KTable.left_join, KTable.outer_join)[variant % 3]
        made.tables.append(
            join(
                left,
                right,
                short,
                Materialized.versioned(history_retention=15, value_serde="string"),
                history="complete",
            )
        )


def _suppress(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.tables.append(made.table(first).suppress(Suppressed.until_time_limit(variant, max_records=second + 1)))


def _table_to_stream(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.table(first).to_stream())


def _table_changes(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    made.streams.append(made.table(first).to_stream(changes_only=True))


def _table_group_by(made: RandomTopology, first: int, second: int, variant: int, number: int) -> None:
    grouped = made.table(first).group_by(lambda k, v: (v[:1], v), Grouped("string", "string"))
    made.tables.append(grouped.aggregate(lambda: "", lambda k, v, t: short(t, v), lambda k, v, t: short(t, "-"), TEXT))


OPERATORS: dict[str, Callable[[RandomTopology, int, int, int, int], None]] = {
    "filter": _filter,
    "map_values": _map_values,
    "flat_map_values": _flat_map_values,
    "rekey": _rekey,
    "split": _split,
    "merge": _merge,
    "process": _process,
    "join_streams": _join_streams,
    "join_table": _join_table,
    "join_with_grace": _join_with_grace,
    "join_table_with_grace": _join_table_with_grace,
    "aggregate": _aggregate,
    "window": _window,
    "to_table": _to_table,
    "table_filter": _table_filter,
    "table_map_values": _table_map_values,
    "join_tables": _join_tables,
    "join_tables_by_columns": _join_tables_by_columns,
    "suppress": _suppress,
    "join_histories": _join_histories,
    "table_to_stream": _table_to_stream,
    "table_changes": _table_changes,
    "table_group_by": _table_group_by,
}

NO_REPARTITION = sorted(set(OPERATORS) - {"rekey", "table_group_by"})


def programs(operators: list[str], most: int = 6) -> st.SearchStrategy[list[Step]]:
    numbers = st.integers(0, 11)
    return st.lists(st.tuples(st.sampled_from(operators), numbers, numbers, numbers), max_size=most)


def histories(
    topics: tuple[str, ...] = SOURCES, latest: int = 25
) -> st.SearchStrategy[list[tuple[str, list[tuple[Any, Any, int]]]]]:
    """Return runs of records, each of one of the topics; times up to the latest jump back and forth."""
    record = st.tuples(
        st.sampled_from(["a", "b", "c", "a", None]), st.sampled_from(["x", "yy", "zzz", None]), st.integers(0, latest)
    )
    return st.lists(st.tuples(st.sampled_from(topics), st.lists(record, min_size=1, max_size=7)), max_size=8)

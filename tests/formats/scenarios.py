"""One small topology for each layout: what was piped before its golden file was written, and what must come out after.

A golden file ``golden/<scenario>-v<number>.json`` holds the rows of all stores of the topology, as hex, by the name of
the store's directory. The stores and processors are named here, so that no row depends on a running number.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.processors import (
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KTable,
    Materialized,
    Produced,
    PunctuationType,
    RecordProcessor,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.aggregations.windowed_processor import WINDOWED_AGGREGATION
from millpond.processors.dsl.wiring.grouping import group_table
from millpond.processors.streams.unpaired_rows import UNPAIRED_RECORDS
from millpond.processors.tables.foreign_key.messages import FOREIGN_KEY_LEFT_ROWS, FOREIGN_KEY_SUBSCRIPTIONS
from millpond.processors.tables.reorder import TableReorder
from millpond.processors.tables.suppress_buffer import SUPPRESS_BUFFER
from millpond.processors.tables.time_ordered_buffer import TIME_ORDERED_BUFFER, BufferSpec
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.apply import ApplySpec
from millpond.processors.verbs.encoding.foreign_keyed import with_foreign_keys
from millpond.processors.verbs.feeds.feed_groups import FeedGroups
from millpond.processors.verbs.feeds.feed_rows import InGroup
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.feeds.group_values import COUNTED_VALUES, group_values_spec
from millpond.processors.verbs.key_timers import KEYED_TIMERS, Timer
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES, INT64, STRING
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import MIGRATIONS
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.windows.windowed import Windowed

GOLDEN = Path(__file__).with_name("golden")

Rows = Mapping[bytes, bytes]
Stores = Mapping[str, Rows]
"""Rows by the name of the store's directory."""

Arrival = tuple[str, Any, Any, int]
"""Topic, key, value and timestamp."""

COMPLETION: Arrival = ("", None, None, 0)
"""Not a record: the input is complete."""


@dataclass(frozen=True)
class Scenario:
    """A topology on whose state a golden file looks.

    Attributes:
        name: of the golden file.
        build: adds the topology; what comes out goes to ``out``.
        before: what was piped before the file was written, each record a micro-batch.
        after: what is piped on top of the file.
        results: what comes out for ``after``, as key, value and timestamp.
        store: the directory of the store that the layout is about.
        layout: of that store; None where the number stands in the metadata row ``versioned``.
        versioned: the name of a kept time, or of the counts of what waits.
        counted: whether its golden file has the counts of what waits. The older ones do not: a release that opens them
            counts once.
    """

    name: str
    build: Callable[[StreamsBuilder], None]
    before: Sequence[Arrival]
    after: Sequence[Arrival]
    results: Sequence[tuple[Any, Any, int]]
    store: str
    layout: Layout | None = None
    versioned: str = ""
    counted: bool = False

    @property
    def version(self) -> int:
        """The number in which this release writes."""
        return 1 if self.layout is None else self.layout.version

    @property
    def topology(self) -> Topology:
        builder = StreamsBuilder(value_serde="string")
        self.build(builder)
        return builder.build()

    @property
    def file(self) -> Path:
        """The golden file in the version of this release."""
        return GOLDEN / f"{self.name}-v{self.version}.json"


class Filled(BackendSupplier):
    """Opens the backends of another supplier, fills those that are empty with given rows, and knows them afterwards."""

    def __init__(self, engine: str, stores: Stores) -> None:
        self._engine = supplier(engine)
        self._stores = stores
        self._opened: dict[str, Backend] = {}
        self.name = engine  # type: ignore[misc]
        self.persistent = self._engine.persistent  # type: ignore[misc]

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "Filled":
        raise NotImplementedError

    def open(self, directory: Path) -> Backend:
        backend = open_backend(self._engine, directory)
        backend.write(dict(self._stores.get(directory.name, {})))
        self._opened[directory.name] = backend
        return backend

    def rows(self) -> Stores:
        """Return all rows as they are now."""
        return {name: dict(backend.scan()) for name, backend in sorted(self._opened.items())}


def open_on(scenario: Scenario, stores: Stores, engine: str, directory: Path) -> tuple[TopologyDriver, Filled]:
    """Return a driver on stores with those rows."""
    filled = Filled(engine, stores)
    for part in scenario.topology.subtopologies:
        for spec in part.stores.values():
            # A directory that is new has no rows, so there has been one.
            store_directory(directory, "driver", f"{part.index}_0", engine, spec).mkdir(parents=True, exist_ok=True)
    return TopologyDriver(scenario.topology, backend=filled, local_dir=directory), filled


def pipe(driver: TopologyDriver, arrivals: Sequence[Arrival]) -> list[tuple[Any, Any, int]]:
    """Return what comes out for the records, each a micro-batch of its own."""
    for arrival in arrivals:
        if arrival == COMPLETION:
            driver.complete()
        else:
            driver.pipe(*arrival)
    return [tuple(record) for record in driver.read("out")]


def write(path: Path, stores: Stores) -> None:
    hexed = {name: {row.hex(): value.hex() for row, value in rows.items()} for name, rows in stores.items()}
    path.write_text(json.dumps(hexed, indent=1) + "\n")


def read(path: Path) -> Stores:
    stores = json.loads(path.read_text())
    return {
        name: {bytes.fromhex(row): bytes.fromhex(value) for row, value in rows.items()} for name, rows in stores.items()
    }


def migrated(scenario: Scenario, stores: Stores) -> Stores:
    """Return the same rows, with those of stores in an older format version as their migration leaves them."""
    found = dict(stores)
    for spec in scenario.topology.stores.values():
        change = (FormatVersion.PLAIN, spec.format_version)
        rows = found.pop(spec.name, None) if change in MIGRATIONS else None
        if rows is not None:
            found[spec.directory_name] = dict(MIGRATIONS[change](iter(sorted(rows.items()))))
    return found


def _pairs(builder: StreamsBuilder) -> None:
    builder.stream("left").outer_join(
        builder.stream("right"),
        lambda left, right: f"{left}-{right}",
        StreamJoined(name="pairs"),
        windows=JoinWindows.of(10, grace=5),
    ).to("out", Produced(value_serde="string"))


def _suppressed(builder: StreamsBuilder) -> None:
    words = builder.table("words", materialized=Materialized("words"))
    words.suppress(Suppressed.until_time_limit(10, name="limit")).to("out")


def _buffered(builder: StreamsBuilder) -> None:
    rates = builder.table("rates", materialized=Materialized.versioned("rates", history_retention=100))
    sums = builder.stream("sums").left_join(rates, lambda own, rate: f"{own}-{rate}", Joined(grace=10, name="at-rates"))
    sums.to("out", Produced(value_serde="string"))
    reorder = BufferSpec("in-order-Buffer", 10, STRING, STRING)
    builder.stream("updates").process(lambda: TableReorder(reorder), stores=[reorder.store_spec]).to("out-of-updates")


def _by_customer(builder: StreamsBuilder) -> None:
    orders = builder.table("orders", materialized=Materialized("orders"))
    customers = builder.table("customers", materialized=Materialized("customers"))
    joined = orders.left_join(
        customers,
        lambda order, customer: f"{order}/{customer}",
        Materialized("joined", value_serde="string"),
        foreign_key=lambda order: order.partition(":")[0] if ":" in order else None,
        name="by-customer",
    )
    joined.to("out")


def _in_windows(builder: StreamsBuilder) -> None:
    def taking(sign: str) -> Callable[[str, str, str], str]:
        return lambda key, value, total: total + sign + value

    clicks, buys = (builder.stream(topic).group_by_key() for topic in ("clicks", "buys"))
    windowed = clicks.cogroup(taking("c")).cogroup(buys, taking("b")).windowed_by(TimeWindows(10, grace=5))
    windowed.aggregate(str, Materialized("letters", value_serde="string")).to("out")


def _final(builder: StreamsBuilder) -> None:
    windowed = builder.stream("in", Consumed("string", "string")).group_by_key().windowed_by(TimeWindows(10, grace=5))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("visits")).to("out")


def _waiting(builder: StreamsBuilder) -> None:
    _pairs(builder)
    _buffered(builder)
    _final(builder)


class _Ticker(RecordProcessor):
    def open(self) -> None:
        self.schedule(100, PunctuationType.STREAM_TIME, lambda now: self.forward("tick", str(now), now))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        pass


def _ticking(builder: StreamsBuilder) -> None:
    marks = StoreSpec("marks", StoreKind.KEY_VALUE, STRING, INT64)
    builder.stream("in", Consumed()).process(_Ticker, stores=[marks], name="ticker").to("out")


_ORDER_KEYS = KeyCodec(pa.schema([pa.field("order", pa.string())]))
_ORDER_ROWS = RowCodec(Schemas.first(pa.schema([pa.field("event", pa.string())])))


class _Unpaid(KeyedProcessor):
    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> None:
        if row["event"] == "ordered":
            context.set_timer("1 second", "remind")
            context.set_wall_clock_timer(datetime(2100, 1, 1, tzinfo=UTC))
        else:
            context.cancel_timer("remind")

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> list[dict[str, Any]]:
        return [{timer.name: key}]


def _unpaid(builder: StreamsBuilder) -> None:
    spec = ApplySpec("unpaid", _Unpaid(), _ORDER_KEYS, _ORDER_ROWS, lateness=0)
    events = builder.stream("events", Consumed(BYTES, BYTES))
    events.process(spec.operator, stores=spec.stores, name="unpaid", keeps_key=True).to("out")


def _event(order: str, event: str, micros: int) -> Arrival:
    (key,) = _ORDER_KEYS.pack(pa.table({"order": [order]}))
    (row,) = _ORDER_ROWS.pack(pa.table({"event": [event]}))
    return "events", key, row, micros


_CALLS = GroupAggregate(
    {"first": aggregates.first("x"), "many": aggregates.count_distinct("y")},
    {"first": pa.string(), "many": pa.int64()},
)


def _grouped(builder: StreamsBuilder) -> None:
    table = builder.table("rows", Consumed(BYTES, BYTES), Materialized("rows"))
    grouping = group_table(table.handle, [InGroup(0, 1)], Grouped(BYTES, BYTES))
    kept = Materialized("groups", key_serde=BYTES, value_serde=_CALLS.state_serde)
    groups = grouping.folded(partial(FeedGroups, _CALLS, "counted"), kept, group_values_spec("counted"))
    KTable(groups).to_stream().to("out")


def _row(key: str, group: str, time: int, x: str, y: int) -> Arrival:
    rows: Any = pa.array([_CALLS.input_serde.serialize((time, x, y))])
    (value,) = with_foreign_keys(_ORDER_KEYS, pa.table({"order": [group]}), rows).to_pylist()
    return "rows", key.encode(), value, time


_ORDERS: Sequence[Arrival] = [
    ("customers", "ada", "Ada", 1),
    ("orders", "o1", "ada:tea", 2),
    ("orders", "o2", "eva:milk", 3),
    ("orders", "o3", "salt", 4),
]
_MORE_ORDERS: Sequence[Arrival] = [
    ("customers", "eva", "Eva", 5),
    ("customers", "ada", None, 6),
    ("orders", "o3", None, 7),
    ("orders", "o1", "eva:tea", 8),
]
_MORE_JOINED = [
    ("o2", "eva:milk/Eva", 5),
    ("o1", "ada:tea/None", 6),
    ("o3", None, 7),
    ("o1", "eva:tea/Eva", 8),
]

SCENARIOS = [
    Scenario(
        "unpaired-records",
        _pairs,
        [("left", "a", "one", 100), ("left", "a", "two", 100), ("right", "b", "three", 105)],
        [("left", "b", "four", 114), ("right", "c", "five", 200)],
        [("b", "four-three", 114), ("a", "one-None", 100), ("a", "two-None", 100)],
        "pairs-waiting",
        UNPAIRED_RECORDS,
    ),
    Scenario(
        "suppress-buffer",
        _suppressed,
        [
            ("words", "a", "one", 100),
            ("words", "a", "two", 101),
            ("words", "b", None, 103),
            ("words", "b", "x", 104),
            ("words", "e", "z", 105),
        ],
        [("words", "c", "late", 90), ("words", "d", "y", 114)],
        [("c", "late", 90), ("a", "two", 101), ("b", "x", 104)],
        "limit-store",
        SUPPRESS_BUFFER,
    ),
    Scenario(
        "time-ordered-buffer",
        _buffered,
        [
            ("updates", "a", "one", 30),
            ("updates", "a", None, 25),
            ("sums", None, "two", 31),
            ("sums", "a", "three", 26),
        ],
        [("rates", "a", "high", 26), ("sums", "b", "late", 19), ("sums", "b", "four", 41)],
        [("b", "late-None", 19), ("a", "three-high", 26), (None, "two-None", 31)],
        "in-order-Buffer",
        TIME_ORDERED_BUFFER,
    ),
    Scenario(
        "foreign-key-subscriptions",
        _by_customer,
        _ORDERS,
        _MORE_ORDERS,
        _MORE_JOINED,
        "by-customer-subscription-store",
        FOREIGN_KEY_SUBSCRIPTIONS,
    ),
    Scenario(
        "foreign-key-left-rows",
        _by_customer,
        _ORDERS,
        _MORE_ORDERS,
        _MORE_JOINED,
        "by-customer-rows-store-v2",
        FOREIGN_KEY_LEFT_ROWS,
    ),
    Scenario(
        "windowed-aggregation",
        _in_windows,
        [("clicks", "a", "1", 100), ("buys", "a", "2", 116)],
        [("clicks", "a", "3", 109), ("buys", "a", "4", 109), ("buys", "a", "5", 111)],
        [(Windowed("a", 100, 110), "c1c3", 109), (Windowed("a", 110, 120), "b2b5", 116)],
        "letters-v2",
        WINDOWED_AGGREGATION,
    ),
    Scenario(
        "counted-values",
        _grouped,
        [_row("1", "a", 100, "x", 7), _row("2", "a", 101, "y", 7), _row("3", "b", 102, "z", 7)],
        [_row("1", "b", 103, "x", 8)],
        [(b"!a\0", [1, [101, "y"], 1], 103), (b"!b\0", [2, [102, "z"], 2], 103)],
        "counted",
        COUNTED_VALUES,
    ),
    Scenario(
        "keyed-timers",
        _unpaid,
        [_event("o1", "ordered", 1_000_000), _event("o2", "ordered", 1_500_000)],
        [_event("o2", "paid", 2_000_000), _event("o1", "paid", 3_000_000)],
        [(_event("o1", "ordered", 0)[1], {"remind": "o1"}, 2_000_000)],
        "unpaid-timers",
        KEYED_TIMERS,
    ),
    Scenario(
        "completion",
        _final,
        [("in", "a", "x", 100), ("in", "b", "x", 101), COMPLETION, ("in", "a", "y", 102)],
        [("in", "c", "x", 115)],
        [(Windowed("a", 100, 110), 2, 102)],
        "visits-v2",
        versioned="completion-0",
    ),
    Scenario(
        "punctuation",
        _ticking,
        [("in", "a", "x", 120)],
        [("in", "a", "x", 130), ("in", "a", "x", 250)],
        [("tick", "250", 250)],
        "marks",
        versioned="punctuation-ticker-0",
    ),
    Scenario(
        "waiting",
        _waiting,
        [
            ("left", "a", "one", 100),
            ("left", "a", "two", 100),
            ("right", "b", "three", 105),
            ("updates", "a", "one", 30),
            ("updates", "a", None, 25),
            ("sums", "a", "three", 26),
            ("in", "a", "x", 100),
            ("in", "b", "x", 101),
        ],
        [("right", "c", "four", 117), ("sums", "a", "five", 36), ("in", "c", "x", 115)],
        [
            ("a", "one-None", 100),
            ("a", "two-None", 100),
            ("a", "three-None", 26),
            (Windowed("a", 100, 110), 1, 100),
            (Windowed("b", 100, 110), 1, 101),
        ],
        "pairs-waiting",
        versioned="waiting",
        counted=True,
    ),
]


def golden_files() -> Iterator[tuple[Scenario, Path]]:
    """Yield every golden file of every version, with its scenario."""
    for scenario in SCENARIOS:
        for path in sorted(GOLDEN.glob(f"{scenario.name}-v*.json")):
            yield scenario, path

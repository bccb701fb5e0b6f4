"""Once stream time is set back from the year 2100, later records count as if nothing of that year had ever come."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.processors import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    PunctuationType,
    Record,
    RecordProcessor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor
from millpond.stores import STRING
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.processors.driving import text_topology

YEAR_2100 = 4_102_444_800_000
LIMIT = 1000

Records = Sequence[tuple[str, Any, Any, int]]
Case = tuple[Callable[[], Topology], Records, Records, Sequence[Records]]
"""A topology; records up to the limit, those of the year 2100, and those of two runs after the limit."""


def built(build: Callable[[StreamsBuilder], Any]) -> Callable[[], Topology]:
    return lambda: text_topology(build)


def prices(builder: StreamsBuilder, **options: Any) -> Any:
    return builder.table("prices", materialized=Materialized.versioned(history_retention=500), **options)


def priced(builder: StreamsBuilder, grace: int | None = None) -> Any:
    return builder.stream("orders").left_join(prices(builder), "{} at {}".format, Joined(grace=grace))


def paired(builder: StreamsBuilder) -> Any:
    left, right = builder.stream("left"), builder.stream("right")
    return left.left_join(right, "{}+{}".format, windows=JoinWindows.of(10, grace=5))


def final(windows: Any) -> Callable[[], Topology]:
    def build(builder: StreamsBuilder) -> Any:
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        return grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream()

    return built(build)


def calmed(builder: StreamsBuilder) -> Any:
    return builder.table("in").suppress(Suppressed.until_time_limit(20)).to_stream()


def closed(builder: StreamsBuilder) -> Any:
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=0)).count()
    return counts.suppress(Suppressed.until_window_closes()).to_stream()


class Ticker(RecordProcessor):
    """Forwards the time of each punctuation."""

    def open(self) -> None:
        self.schedule(100, PunctuationType.STREAM_TIME, lambda now: self.forward("tick", str(now), now))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        pass


def ticking(builder: StreamsBuilder) -> Any:
    return builder.stream("in").process(
        Ticker, stores=[StoreSpec("ticks", StoreKind.KEY_VALUE, STRING, STRING)], value_serde="string"
    )


KEYS = KeyCodec(pa.schema([("key", pa.string())]))
ROWS = RowCodec(Schemas.first(pa.schema([pa.field("n", pa.int64())])))


class Echo(KeyedProcessor):
    """Tells what it sees."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[dict[str, Any]]:
        return [{"n": row["n"]}]


def rows(*records: tuple[str, int]) -> Records:
    keys = KEYS.pack(pa.table({"key": [key for key, _ in records]}))
    values = ROWS.pack(pa.table({"n": pa.array([time for _, time in records], pa.int64())}))
    times = [time for _, time in records]
    return [("input", key, value, time) for key, value, time in zip(keys, values, times, strict=True)]


def one_topic(*records: tuple[str, int]) -> Records:
    return [("in", key, f"{key} of {time}", time) for key, time in records]


EARLY = one_topic(("a", 905), ("b", 995))
POISON = one_topic(("a", YEAR_2100), ("p", YEAR_2100))
LATER = [
    one_topic(("a", 1105), ("b", 1103), ("p", 1112), ("a", 1108), ("p", 1140)),
    one_topic(("a", 1135), ("p", 1190), ("b", 1189), ("a", 1300)),
]
EARLY_PRICES = [("prices", "tea", "3.10", 500), ("prices", "milk", "0.99", 900), ("prices", "tea", "3.20", 990)]
LATE_PRICE = [("prices", "tea", "9.99", YEAR_2100)]
ORDERS = [
    [("orders", "tea", "a", 1050), ("prices", "tea", "2.90", 1100), ("orders", "tea", "b", 1120)],
    [("orders", "tea", "c", 1090), ("orders", "milk", "d", 1130), ("prices", "milk", "1.09", 1125)],
]

CASES: dict[str, Case] = {
    "a versioned table": (built(priced), EARLY_PRICES, LATE_PRICE, ORDERS),
    "a join with grace": (
        built(lambda builder: priced(builder, grace=10)),
        EARLY_PRICES,
        [("orders", "tea", "z", YEAR_2100)],
        ORDERS,
    ),
    "a table put in order": (
        built(lambda builder: prices(builder, reorder_within=20).to_stream()),
        EARLY_PRICES,
        LATE_PRICE,
        [[("prices", "tea", "2", 1100), ("prices", "tea", "1", 1090)], [("prices", "milk", "3", 1200)]],
    ),
    "a join of streams": (
        built(paired),
        [("left", "a", "1", 900), ("right", "a", "2", 901)],
        [("left", "a", "z", YEAR_2100), ("right", "b", "z", YEAR_2100)],
        [
            [("left", "a", "3", 1100), ("right", "a", "4", 1105), ("left", "b", "5", 1108)],
            [("right", "b", "6", 1112), ("left", "c", "7", 1110), ("right", "d", "8", 1200)],
        ],
    ),
    "windows": (final(TimeWindows(10, grace=5)), EARLY, POISON, LATER),
    "sliding windows": (final(SlidingWindows(10, grace=5)), EARLY, POISON, LATER),
    "sessions": (final(SessionWindows(10, grace=5)), EARLY, POISON, LATER),
    "updates for a time": (built(calmed), EARLY, POISON[1:], LATER),
    "updates until windows close": (built(closed), EARLY, POISON, LATER),
    "punctuations": (built(ticking), EARLY, POISON, LATER),
    "a rule by key": (
        lambda: apply_topology("out", Echo(), KEYS, ROWS, lateness=10),
        rows(("a", 905), ("b", 995)),
        rows(("a", YEAR_2100)),
        [rows(("a", 1105), ("b", 1103), ("a", 1140)), rows(("b", 1139), ("a", 1200))],
    ),
}


def runs(
    make: Callable[[], Topology], directory: Path, first: Records, later: Sequence[Records], reset: int | None
) -> list[list[Record]]:
    """Return what comes out of each later run for times after the limit; the first run knows no limit."""
    found = []
    for number, records in enumerate([first, *later]):
        topology = make()
        with TopologyDriver(
            topology, backend="lmdb", local_dir=directory, reset_stream_time=reset if number else None
        ) as driver:
            for topic, key, value, timestamp in records:
                driver.pipe(topic, key, value, timestamp)
            for store in topology.stores:
                driver.store(store).check()
            found.append([record for record in driver.read("out") if record.timestamp > LIMIT])
    return found[1:]


@pytest.mark.parametrize("case", CASES)
def test_after_the_reset_records_count_as_if_the_far_future_had_never_come(case: str, tmp_path: Path) -> None:
    make, early, poison, later = CASES[case]
    clean = runs(make, tmp_path / "clean", early, later, None)
    poisoned = runs(make, tmp_path / "poisoned", [*early, *poison], later, None)
    reset = runs(make, tmp_path / "reset", [*early, *poison], later, LIMIT)
    assert any(clean)
    assert reset == clean
    assert poisoned != clean


def test_what_was_complete_is_set_back_as_well(tmp_path: Path) -> None:
    make = final(TimeWindows(10, grace=0))
    with TopologyDriver(make(), backend="lmdb", local_dir=tmp_path) as driver:
        driver.pipe("in", "a", "x", YEAR_2100)
        driver.complete()
    with TopologyDriver(make(), backend="lmdb", local_dir=tmp_path, reset_stream_time=LIMIT) as driver:
        driver.pipe_all("in", [("a", "x", 1100), ("a", "x", 1200)])
        (windows,) = (name for name in driver.counters if name.endswith(":set-back"))
        assert driver.counters[windows] == 3
        assert [record.value for record in driver.read("out")] == [1]


def test_results_of_an_aggregate_do_not_keep_the_timestamp_of_the_far_future(tmp_path: Path) -> None:
    make = built(lambda builder: builder.stream("in").group_by_key().count().to_stream())
    runs(make, tmp_path, one_topic(("a", 900), ("a", YEAR_2100), ("b", 950)), [], None)
    (found,) = runs(make, tmp_path, [], [one_topic(("a", 1100), ("b", 1110))], LIMIT)
    assert found == [Record("a", 3, 1100), Record("b", 2, 1110)]


def test_a_micro_batch_that_fails_leaves_the_times_to_be_set_back_by_the_next(tmp_path: Path) -> None:
    make = built(lambda builder: priced(builder).map_values(lambda text: text if "bad" not in text else text[: -1 / 0]))
    runs(make, tmp_path, [*EARLY_PRICES, *LATE_PRICE], [], None)
    with TopologyDriver(make(), backend="lmdb", local_dir=tmp_path, reset_stream_time=LIMIT) as driver:
        with pytest.raises(Exception, match="division by zero"):
            driver.pipe("orders", "tea", "bad", 1100)
        driver.pipe("orders", "tea", "good", 1100)
        assert driver.read("out") == [Record("tea", "good at 3.20", 1100)]


def test_the_reset_is_told_and_counted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make = built(priced)
    runs(make, tmp_path, [*EARLY_PRICES, *LATE_PRICE], [], None)
    told = []
    for reset in (LIMIT, LIMIT, 995):
        with (
            caplog.at_level(logging.WARNING),
            TopologyDriver(make(), backend="lmdb", local_dir=tmp_path, reset_stream_time=reset) as driver,
        ):
            (store,) = make().stores
            told.append({name.removeprefix(store): count for name, count in driver.counters.items()})
            driver.pipe("prices", "milk", "1.05", 1001)
    assert told == [{":set-back": 1, ":removed-beyond-reset": 1}, {}, {":set-back": 1, ":removed-beyond-reset": 1}]
    assert [record.message for record in caplog.records if "set back from" in record.message] == [
        f"store {store!r} of task 0_0: observed_stream_time is set back from {before} to {after}"
        for before, after in (
            ("2100-01-01T00:00:00+00:00", "1970-01-01T00:00:01+00:00"),
            ("1970-01-01T00:00:01.001000+00:00", "1970-01-01T00:00:00.995000+00:00"),
        )
    ]

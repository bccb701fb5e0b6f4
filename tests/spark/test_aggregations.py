"""Aggregations on DataFrames give what they give in the driver: by key, window and session, of tables, held back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.processors import (
    EmitStrategy,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millpond.processors.verbs import aggregates
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import drive, random_records

pytestmark = pytest.mark.spark

RECORDS = random_records(11, 300, keys="abcdefgh")
SESSIONS = SessionWindows(10, grace=20)


def _final_windows(builder: StreamsBuilder) -> KTable:
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(20, advance=10, grace=15))
    return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()


def _sliding_windows(builder: StreamsBuilder) -> KTable:
    return builder.stream("in").group_by_key().windowed_by(SlidingWindows(10, grace=15)).count()


def _held_back_sessions(builder: StreamsBuilder) -> KTable:
    sessions = builder.stream("in").group_by_key().windowed_by(SESSIONS).reduce(lambda left, right: left + right)
    return sessions.suppress(Suppressed.until_window_closes())


def _table_by_value(builder: StreamsBuilder) -> KTable:
    return builder.table("in").group_by(lambda key, value: (value, value)).count()


def _windows_again_by_value(builder: StreamsBuilder) -> KStream:
    windowed = builder.stream("in").group_by(lambda key, value: value).windowed_by(TimeWindows(50, grace=50))
    lengths = windowed.aggregate(int, lambda key, value, total: total + len(value), Materialized(value_serde="int64"))
    return lengths.to_stream()


def _topology(build: Callable[[StreamsBuilder], KTable | KStream]) -> Topology:
    # The driver is given one record after the other, in the order of arrival.
    builder = StreamsBuilder(value_serde="string", order="arrival")
    build(builder).to("out")
    return builder.build()


def _row(key: Any, value: Any) -> tuple[Any, ...]:
    return (key.key, key.start, key.end, value) if isinstance(key, Windowed) else (key, value)


@pytest.mark.parametrize(
    "build", [_final_windows, _sliding_windows, _held_back_sessions, _table_by_value, _windows_again_by_value]
)
def test_a_dataframe_gives_what_the_driver_gives(
    spark: SparkSession, tmp_path: Path, build: Callable[[StreamsBuilder], KTable | KStream]
) -> None:
    rows = [record[1:] for record in RECORDS]
    frame = spark.createDataFrame(rows, "key string, value string, timestamp long").coalesce(1)
    streams = SparkStreams(
        _topology(build), application_id="aggregations", state_dir=str(tmp_path), partitions=1, backend="memory"
    )
    out = streams.transform({"in": frame})
    if "window_start" in out.columns:
        out = out.selectExpr("key", "unix_millis(window_start)", "unix_millis(window_end)", "value")
    else:
        out = out.select("key", "value")
    expected = [_row(record.key, record.value) for record in drive(build, RECORDS)]
    assert sorted(map(tuple, out.collect()), key=repr) == sorted(expected, key=repr)


STARTS = (0, 1_000, 2_000)


@pytest.mark.first
def test_rows_that_are_combined_before_the_shuffle_are_all_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3_000).coalesce(1).selectExpr("concat('k', id % 3) as key", "id as value", "id as timestamp")
    where: dict[str, Any] = {"application_id": "combined", "partitions": 1, "backend": "memory"}
    topology = _topology(lambda builder: builder.stream("in").group_by_key().count(Materialized(caching=True)))
    streams = SparkStreams(topology, state_dir=str(tmp_path / "streams"), **where)
    counts = streams.transform({"in": rows.selectExpr("key", "string(value) as value", "timestamp")})
    assert sorted(map(tuple, counts.select("key", "value").collect())) == [("k0", 1000), ("k1", 1000), ("k2", 1000)]
    pond = Millpond(state_dir=str(tmp_path / "pond"), **where)
    calls = {"n": aggregates.count(), "most": aggregates.max("value")}
    totals = pond.aggregate(rows, calls, by="key", time=F.expr("timestamp_millis(timestamp)"))
    found = sorted(map(tuple, totals.select("key", "n", "most").collect()))
    assert found == [("k0", 1000, 2997), ("k1", 1000, 2998), ("k2", 1000, 2999)]
    in_windows: dict[str, Any] = {"window": TimeWindows("1 second"), "emit": "final", "name": "windows"}
    windows = pond.aggregate(rows, calls, by="key", time=F.expr("timestamp_millis(timestamp)"), **in_windows)
    own = [
        (f"k{key}", [at for at in range(start, start + 1000) if at % 3 == key]) for key in range(3) for start in STARTS
    ]
    shown = sorted(map(tuple, windows.select("key", "n", "most").collect()))
    assert shown == sorted((key, len(some), some[-1]) for key, some in own)

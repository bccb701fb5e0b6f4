"""Late rows: counted under their verb, kept with how late they were, and taken by the grace that they say."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.adapters.spark.monitoring.measured import measured_in
from millpond.adapters.spark.rows.dead_letters import DEAD_LETTERS, ErrorHandling
from millpond.adapters.spark.rows.late_rows import LATE_ROWS, LateBox, read_late_rows
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.processors import (
    Consumed,
    Materialized,
    OnError,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import Place
from millpond.processors.runtime.late import LateRecords
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import PackedRows
from millpond.stores.cleaning.durable import LEFT_OUT
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.times import TimeUnit
from tests.spark.test_order import files

pytestmark = pytest.mark.spark

SCHEMA, RIGHT = "k string, ts timestamp, v int", "k string, at timestamp, w int"
BATCHES = [[("a", "00:14", 1), ("other", "20:00", 2)], [("a", "19:58", 3), ("a", "00:12", 4)]]
RIGHT_BATCHES = [[("a", "00:05", 1), ("a", "00:30", 2), ("other", "20:00", 3), ("a", "20:00", 4)], [("a", "00:20", 5)]]
GRACE = timedelta(seconds=10)
"""Of all verbs, for the last row of either side to come too late."""
LATE = timedelta(minutes=19, seconds=48)
RIGHT_LATE = timedelta(minutes=19, seconds=40)


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"v": row["v"]}


Build = Callable[[Millpond, DataFrame, DataFrame, str, timedelta], DataFrame]


def windowed(windows: Callable[[timedelta], Any], emit: Any = "updates") -> Build:
    def build(pond: Millpond, rows: DataFrame, _: DataFrame, name: str, grace: timedelta) -> DataFrame:
        calls = {"n": aggregates.count(), "v": aggregates.max("v")}
        return pond.aggregate(rows, calls, by="k", time="ts", window=windows(grace), emit=emit, name=name)

    return build


def joined(verb: str, option: str, how: Any, **options: Any) -> Build:
    def build(pond: Millpond, rows: DataFrame, right: DataFrame, name: str, grace: timedelta) -> DataFrame:
        given = {"on": "k", "left_time": "ts", "right_time": "at", "how": how, option: grace, "name": name, **options}
        made: DataFrame = getattr(pond, verb)(rows, right, **given)
        return made

    return build


FINAL: Any = "final"
VERBS: dict[str, Build] = {
    "tumbling": windowed(lambda grace: TimeWindows("5 seconds", grace=grace)),
    "final": windowed(lambda grace: TimeWindows("5 seconds", grace=grace), FINAL),
    "hopping": windowed(lambda grace: TimeWindows("10 seconds", advance="5 seconds", grace=grace)),
    "sliding": windowed(lambda grace: SlidingWindows("5 seconds", grace=grace)),
    "session": windowed(lambda grace: SessionWindows("1 second", grace=grace), FINAL),
    "streams-inner": joined("stream_join", "grace", "inner", within="5 seconds"),
    "streams-left": joined("stream_join", "grace", "left", within="5 seconds"),
    "asof-inner": joined("asof_join", "history", "inner"),
    "asof-left": joined("asof_join", "history", "left"),
    "tables": joined("table_join", "history", "inner"),
    "asof-ordered": joined("asof_join", "history", "left", right_order="w"),
    "tables-ordered": joined("table_join", "history", "outer", left_order="v", right_order="w"),
    "foreign": joined("table_join", "history", "inner", left_key="v"),
    "latest": lambda pond, rows, _, name, grace: pond.latest(rows, key="k", time="ts", history=grace, name=name),
    "latest-ordered": lambda pond, rows, _, name, grace: pond.latest(
        rows, key="k", time="ts", order="v", history=grace, name=name
    ),
    "apply": lambda pond, rows, _, name, grace: pond.apply(
        rows, PassOn(), key="k", time="ts", schema="v int", lateness=grace, name=name
    ),
}
LATE_ROW = ("a", datetime(2026, 1, 1, 0, 0, 12, tzinfo=UTC), 4)
RIGHT_ROW = ("a", datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC), 5)
SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)

Told = tuple[str, str, timedelta, timedelta]


def two(reasons: tuple[str, str], waits: timedelta) -> set[Told]:
    """Return what is told where a row of either side is late; ``waits`` beside the grace."""
    left, right = reasons
    return {("left", left, LATE, LATE - GRACE - waits), ("right", right, RIGHT_LATE, RIGHT_LATE - GRACE - waits)}


EXPIRED, DROPPED, BEYOND = "dropped-expired", "dropped-late", "beyond-history-retention"
TOLD: dict[str, set[Told]] = {
    # A window takes rows until stream time is at its end and the grace later: here ends are 15, 15, 15, 12 and 12 s.
    "tumbling": {("input", DROPPED, LATE, LATE - 3 * SECOND - GRACE + MICROSECOND)},
    "final": {("input", DROPPED, LATE, LATE - 3 * SECOND - GRACE + MICROSECOND)},
    # Of its two windows the one that began at 5 s.
    "hopping": {("input", DROPPED, LATE, LATE - 3 * SECOND - GRACE + MICROSECOND)},
    "sliding": {("input", DROPPED, LATE, LATE - GRACE)},
    "session": {("input", DROPPED, LATE, LATE - SECOND - GRACE)},
    "streams-inner": two((DROPPED, DROPPED), 5 * SECOND),
    # The right row might meet left ones that have come out alone.
    "streams-left": {
        ("left", DROPPED, LATE, LATE - GRACE - 5 * SECOND),
        ("right", DROPPED, RIGHT_LATE, RIGHT_LATE - GRACE),
    },
    "asof-inner": two((BEYOND, EXPIRED), timedelta()),
    "asof-left": two((BEYOND, EXPIRED), timedelta()),
    "tables": two((EXPIRED, EXPIRED), timedelta()),
    "asof-ordered": two((BEYOND, EXPIRED), timedelta()),
    "tables-ordered": two((EXPIRED, EXPIRED), timedelta()),
    # A left row is the first of its key, whatever its time.
    "foreign": {("right", EXPIRED, RIGHT_LATE, RIGHT_LATE - GRACE)},
    "latest": {("input", EXPIRED, LATE, LATE - GRACE)},
    "latest-ordered": {("input", EXPIRED, LATE, LATE - GRACE)},
    "apply": {("input", DROPPED, LATE, LATE - GRACE)},
}


def answers(pond: Millpond, spark: SparkSession, directory: Path, graces: Mapping[str, timedelta]) -> DataFrame:
    """Return what verbs answer, in one query."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{directory}/rows")
    right = spark.readStream.schema(RIGHT).option("maxFilesPerTrigger", 1).parquet(f"{directory}/right")
    made = {name: VERBS[name](pond, rows, right, name, grace) for name, grace in graces.items()}
    texts = [one.select(F.lit(name).alias("verb"), F.to_json(F.struct("*")).alias("row")) for name, one in made.items()]
    return reduce(DataFrame.unionAll, texts)


def run(rows: DataFrame, directory: Path, out: str) -> Counter[str]:
    """Run a query until it has had all its input; what its last micro-batch has counted, by verb and counter."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{directory}/{out}")
    query.awaitTermination()
    counted: Counter[str] = Counter()
    for one in measured_in(query.recentProgress[-1]["observedMetrics"]):
        for figure, amount in one.counted.items():
            counted[f"{one.operator.split('.')[0]} {figure.name}"] += amount
    return counted


def found(spark: SparkSession, directory: Path, verb: str, schema: str) -> list[Any]:
    rows = spark.read.schema("verb string, row string").parquet(f"{directory}/out").where(F.col("verb") == verb)
    return rows.select(F.from_json("row", schema).alias("row")).select("row.*").collect()


def counted_rows(spark: SparkSession, directory: Path) -> int:
    """Return how many rows the last updates of "tumbling" have counted."""
    updates = found(spark, directory, "tumbling", "k string, window struct<start: timestamp>, n long")
    windows: dict[Any, int] = {}
    for row in updates:
        windows[row.k, row.window] = max(row.n, windows.get((row.k, row.window), 0))
    return sum(windows.values())


QUICK = ("tumbling", "asof-left")
REST = tuple(name for name in VERBS if name not in QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verbs", "partitions"), [(QUICK, 2), pytest.param(REST, 1, marks=pytest.mark.long)], ids=["some", "others"]
)
def test_late_rows_are_counted_and_kept_once_and_the_graces_that_they_say_take_them(
    spark: SparkSession, tmp_path: Path, verbs: Sequence[str], partitions: int
) -> None:
    def pond(state: str = "state") -> Millpond:
        return Millpond(application_id="job", state_dir=f"{tmp_path}/{state}", partitions=partitions, backend="memory")

    expected = {name: TOLD[name] for name in verbs}

    files(spark, tmp_path, "rows", BATCHES[:1], SCHEMA)
    files(spark, tmp_path, "right", RIGHT_BATCHES[:1], RIGHT)
    graces = dict.fromkeys(verbs, GRACE)
    run(answers(pond(), spark, tmp_path, graces), tmp_path, "out")
    assert pond().late_rows().collect() == []
    files(spark, tmp_path, "rows", BATCHES, SCHEMA)
    files(spark, tmp_path, "right", RIGHT_BATCHES, RIGHT)
    counted = run(answers(pond(), spark, tmp_path, graces), tmp_path, "out")

    late = pond().late_rows().orderBy("name", "input").collect()
    told: dict[str, set[Told]] = {name: set() for name in verbs}
    for row in late:
        told[row.name].add((row.input, row.reason, row.late_by, row.short_by))
        assert row.clock - row.time == row.late_by
        assert row.needed == row.short_by + GRACE
        assert (row.application, row.batch_id) == ("job", 1)
    assert told == expected
    assert len(late) == sum(map(len, expected.values()))
    counts = Counter(f"{name} {reason}" for name, ones in expected.items() for _, reason, *_ in ones)
    if "hopping" in verbs:
        counts[f"hopping {DROPPED}"] += 1  # It is late for both of its windows.
    assert {name: counted[name] for name in counts} == counts
    assert {row.name for row in pond().late_rows(verbs[0]).collect()} == {verbs[0]}
    for name in verbs:
        needed = [row.needed for row in late if row.name == name]
        advice = pond().advise_grace(name, rows=100)
        for line in advice.lines:
            assert (line.late, line.share) == (over := sum(one > line.grace for one in needed), over / 100)
        assert advice.enough == max((timedelta(seconds=-(-one // SECOND)) for one in needed), default=None)

    # Keys and rows are JSON of their columns.
    columns = F.from_json("key", "k string, v int"), F.from_json("row", "ts timestamp, v int, at timestamp, w int")
    for name, side, key, row in pond().late_rows().select("name", "input", *columns).collect():
        at, value = (row.at, row.w) if side == "right" else (row.ts, row.v)
        aggregated = name in ("tumbling", "final", "hopping", "sliding", "session")
        of_foreign = (name, side) == ("foreign", "left")
        shown, value = ("a", key.v) if of_foreign else (key.k, value)
        assert (shown, None if at is None else at.astimezone(UTC), value) == (
            ("a", None, 4) if aggregated else RIGHT_ROW if side == "right" else LATE_ROW
        )

    # What was left out and what came out are all rows.
    if "tumbling" in verbs:
        assert counted_rows(spark, tmp_path) + 1 == sum(map(len, BATCHES))
    for name in {"asof-inner", "asof-left", "asof-ordered"}.intersection(verbs):
        looked_up = sorted((row.v, row.w) for row in found(spark, tmp_path, name, "v int, w int"))
        assert looked_up == [(1, 1), (2, 3), (3, 2), *([] if name == "asof-inner" else [(4, None)])]

    # A micro-batch that is repeated leaves the same rows out, once.
    for commit in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / commit).unlink()
    run(answers(pond(), spark, tmp_path, graces), tmp_path, "again")
    again = pond().late_rows().orderBy("name", "input").collect()
    assert [row[1:] for row in again] == [row[1:] for row in late]

    # The longest of the graces that the rows say takes all; a grace is of milliseconds.
    for row in late:
        whole = timedelta(milliseconds=-(-row.needed // timedelta(milliseconds=1)))
        graces[row.name] = max(graces[row.name], whole)
    counted = run(answers(pond("other"), spark, tmp_path, graces), tmp_path / "long", "out")
    assert pond("other").late_rows().collect() == []
    assert not any(counted[name] for name in counts)
    if "tumbling" in verbs:
        assert counted_rows(spark, tmp_path / "long") == sum(map(len, BATCHES))


def test_a_join_of_streams_tells_late_rows_of_either_side(spark: SparkSession, tmp_path: Path) -> None:
    files(spark, tmp_path, "rows", BATCHES, SCHEMA)
    files(spark, tmp_path, "right", RIGHT_BATCHES, RIGHT)
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=3, backend="memory")
    counted = run(answers(pond, spark, tmp_path, {"streams-inner": GRACE}), tmp_path, "out")
    assert counted[f"streams-inner {DROPPED}"] == 2
    late = pond.late_rows().collect()
    assert {(row.input, row.reason, row.late_by, row.short_by) for row in late} == TOLD["streams-inner"]
    joined_rows = found(spark, tmp_path, "streams-inner", "v int, w int")
    assert sorted((row.v, row.w) for row in joined_rows) == [(2, 3), (3, 4)]


def counts() -> Topology:
    builder = StreamsBuilder(order="arrival")
    clicks = builder.stream("clicks", Consumed("string", "int64")).group_by_key()
    counted = clicks.windowed_by(TimeWindows(10, grace=5)).count(Materialized("counts"))
    counted.to_stream().to("counts", Produced(schema="value long"))
    return builder.build()


def test_a_topology_keeps_its_late_records_of_static_dataframes_too(spark: SparkSession, tmp_path: Path) -> None:
    streams = SparkStreams(counts(), application_id="app", state_dir=str(tmp_path), partitions=1, backend="memory")
    rows = [("a", 7, 3), ("a", 8, 25), ("a", 9, 8)]
    clicks = spark.createDataFrame(rows, "key string, value long, timestamp long").coalesce(1)
    assert sorted(row.value for row in streams.transform({"clicks": clicks}).collect()) == [1, 1]
    (late,) = streams.late_rows("counts").collect()
    assert (late.input, late.reason, late.task, late.batch_id) == ("clicks", "dropped-late", "0_0", None)
    assert (late.key, late.row, late.key_bytes) == ("a", "9", None)
    milliseconds = [one // timedelta(milliseconds=1) for one in (late.late_by, late.short_by, late.needed)]
    assert milliseconds == [17, 11, 16]
    assert streams.late_rows("another sink").collect() == []


COLUMNS = {
    "text": "'ä\"b'",
    "data": "cast('abc' as binary)",
    "much": "cast(1234567890123456789.25 as decimal(30, 2))",
    "ratio": "double('-Infinity')",
    "part": "float(0.1)",
    "flag": "true",
    "day": "date'2026-02-28'",
    "at": "timestamp'0999-12-31 23:59:59.000001'",
    "local": "timestamp_ntz'2026-03-29 02:30:00'",
    "took": "interval '-3 04:05:06.789' day to second",
    "tags": "map('a', 1, 'b', null)",
    "empty": "cast(map() as map<string, int>)",
    "items": "array(named_struct('at', timestamp'2026-01-01 00:00:00', 'n', decimal(1.5)))",
    "none": "cast(null as string)",
}


def test_values_of_all_types_come_back_from_json_and_lengths_are_exact_in_all_time_zones(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(1).selectExpr(*(f"{value} as {name}" for name, value in COLUMNS.items()))
    table = rows.toArrow()
    keys, codec = KeyCodec(table.select(["text", "much"]).schema), RowCodec(Schemas.first(table.schema))
    inputs = {"clicks": PackedRows("clicks", keys, NullKeys.EQUAL, codec)}
    handling = ErrorHandling(OnError.FAIL, Storage(str(tmp_path)), "app", "verb", "run", TimeUnit.MICROSECOND)
    (part,) = counts().subtopologies
    (operator,) = (name for name, node in part.nodes.items() if node.parents and part.stores and "AGGREGATE" in name)
    box = LateBox(handling, part, "0_0", inputs, Attempt.here())
    length = timedelta(days=200) // MICROSECOND
    records = Batch([*keys.pack(table.select(["text", "much"])), b"no key"], [*codec.pack(table), None], [0, 0])
    reached, short = np.full(2, length), np.full(2, length)
    box.keep(
        LateRecords(Place(operator, "0_0", ("clicks",), operator), CounterName.DROPPED_LATE, records, reached, short, 7)
    )
    box.write()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        late = read_late_rows(spark, handling.storage, "app", None)
        read = late.select(F.from_json("row", rows.schema).alias("row")).where("row is not null").select("row.*")
        schema = rows.schema.simpleString()
        assert read.schema.simpleString() == schema
        assert [tuple(row) for row in read.collect()] == [tuple(row) for row in rows.collect()]
        whole, broken = late.orderBy(F.col("key").asc_nulls_last()).collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert whole.key == '{"text": "ä\\"b", "much": "1234567890123456789.25"}'
    assert (whole.late_by, whole.short_by) == (timedelta(days=200), timedelta(days=200))
    assert whole.needed == timedelta(days=200, microseconds=7)
    assert (broken.key, broken.row, broken.key_bytes) == (None, None, b"no key")


def test_cleaning_knows_the_directories_of_rows_that_were_left_out() -> None:
    assert {DEAD_LETTERS.directory, LATE_ROWS.directory} == LEFT_OUT

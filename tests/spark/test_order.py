"""The same rows give the same answer in however many files, Spark partitions and tasks they come."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MORE = [pytest.mark.long, pytest.mark.exhaustive]
"""Of what ``tests/metamorphic`` shows without Spark: for each verb, in random micro-batches, files and tasks."""

HOURS = 6
START = datetime(2026, 1, 1)
TOTAL = sum(500 + 100 * hour for hour in range(HOURS))
SCHEMA = "id int, k string, ts timestamp"


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"id": row["id"], "at": context.time}


def hourly_rows() -> Iterator[list[dict[str, Any]]]:
    """Yield for each of six hours 500 rows and 100 more for each hour before it, in order, of three keys in turn."""
    number = 0
    for hour in range(HOURS):
        size = 500 + 100 * hour
        rows = []
        for i in range(size):
            moment = START + timedelta(hours=hour) + timedelta(hours=1) * i / size
            rows.append({"id": number, "k": "abc"[number % 3], "ts": moment})
            number += 1
        yield rows


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file of each hour; the largest, which Spark packs first, is the last."""
    directory = tmp_path_factory.mktemp("hours")
    fields: Any = [("id", pa.int32()), ("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    schema = pa.schema(fields)
    for hour, rows in enumerate(hourly_rows()):
        pq.write_table(pa.Table.from_pylist(rows, schema), directory / f"{hour}.parquet")
    return directory


def finished(rows: DataFrame, directory: Path) -> tuple[list[Any], StreamingQuery]:
    """Return what a streaming DataFrame gives for all its input."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "out"))
    query.awaitTermination()
    return rows.sparkSession.read.schema(rows.schema).parquet(str(directory / "out")).collect(), query


def quotes(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("id").alias("quote"), "k", F.col("ts").alias("since"))


VERBS: dict[str, Callable[[Millpond, Callable[[], DataFrame]], DataFrame]] = {
    "aggregate": lambda pond, rows: pond.aggregate(
        rows(),
        {"n": aggregates.count()},
        by="k",
        time="ts",
        window=TimeWindows("10 minutes", grace="30 minutes"),
    ),
    "asof_join": lambda pond, rows: pond.asof_join(
        rows(), quotes(rows()), on="k", left_time="ts", right_time="since", history="1 hour"
    ),
    "stream_join": lambda pond, rows: pond.stream_join(
        rows(),
        quotes(rows()),
        on="k",
        left_time="ts",
        right_time="since",
        within="5 seconds",
        grace="30 minutes",
    ),
    "apply": lambda pond, rows: pond.apply(
        rows(), PassOn(), key="k", time="ts", schema="id int, at timestamp", lateness="0 seconds"
    ),
    "latest": lambda pond, rows: pond.latest(rows(), key="k", time="ts", history="1 hour"),
}


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if verb in ("aggregate", "stream_join") else MORE) for verb in VERBS]
)
def test_files_of_one_hour_each_in_one_micro_batch_lose_no_row(
    spark: SparkSession, hours: Path, tmp_path: Path, verb: str
) -> None:
    pond = Millpond(application_id="hours", state_dir=str(tmp_path / "state"), partitions=2, backend="memory")

    def rows() -> DataFrame:
        return spark.readStream.schema(SCHEMA).parquet(str(hours))

    found, query = finished(VERBS[verb](pond, rows), tmp_path)
    assert len(query.recentProgress) == 1
    assert sum(row.n for row in found) if verb == "aggregate" else len(found) == TOTAL
    late = re.findall(r"(?:late|expired|retention)=(\d+)", str(query.recentProgress[-1]["observedMetrics"]))
    assert set(late) <= {"0"}


PRICES = [("a", "00:50", 1), ("b", "00:05", 7)]
SALES = [("b", "00:10"), ("a", "00:55")]


def files(spark: SparkSession, directory: Path, name: str, rows: list[list[tuple[Any, ...]]], schema: str) -> DataFrame:
    """Return a stream of files, one in each micro-batch; a column of type timestamp is given as minutes and seconds."""
    names = [column.split()[0] for column in schema.split(", ")]
    typed = [(column.split()[0], column.split()[1]) for column in schema.split(", ")]
    for number, some in enumerate(rows):
        made = [
            {
                name: datetime.fromisoformat(f"2026-01-01 00:{value}+00:00") if type_ == "timestamp" else value
                for (name, type_), value in zip(typed, row, strict=True)
            }
            for row in some
        ]
        kinds: dict[str, Any] = {"timestamp": pa.timestamp("us", "UTC"), "int": pa.int32(), "string": pa.string()}
        table = pa.Table.from_pylist(made, pa.schema([(name, kinds[type_]) for name, type_ in typed]))
        (directory / name).mkdir(exist_ok=True)
        pq.write_table(table.select(names), directory / name / f"{number}.parquet")
        os.utime(directory / name / f"{number}.parquet", (1_000_000_000 + number,) * 2)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory / name))


@pytest.mark.first
def test_rows_of_a_micro_batch_are_taken_by_time_over_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    prices = files(spark, tmp_path, "prices", [PRICES], "k string, since timestamp, price int")
    sales = files(spark, tmp_path, "sales", [SALES], "k string, ts timestamp")
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=1, backend="memory")
    joined = pond.asof_join(sales, prices, on="k", left_time="ts", right_time="since", history="1 hour")
    found, _ = finished(joined, tmp_path)
    assert sorted((row.k, row.price) for row in found) == [("a", 1), ("b", 7)]


@pytest.mark.parametrize("partitions", [2, pytest.param(4, marks=MORE)])
def test_a_chain_loses_nothing_whatever_the_partitions(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    fields: Any = [("id", pa.int32()), ("ts", pa.timestamp("us", "UTC"))]
    schema = pa.schema(fields)
    rows = [{"id": number, "ts": START + timedelta(seconds=number)} for number in range(4_000)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "in" / "rows.parquet")
    stream = spark.readStream.schema("id int, ts timestamp").parquet(str(tmp_path / "in"))
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=partitions, backend="memory")
    newest = pond.latest(stream, key="id", time="ts", history="1 hour").select("id", F.col("change_time").alias("at"))
    counted = pond.aggregate(
        newest.withColumn("all", F.lit(1)),
        {"n": aggregates.count()},
        by="all",
        time="at",
        window=TimeWindows("1 minute", grace="5 minutes"),
    )
    found, _ = finished(counted, tmp_path)
    assert sum(row.n for row in found) == 4_000


class Joined(KeyedProcessor):
    """The values of a key so far, in the order in which they come."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        text = context.state.get("") + row["v"]
        context.state.set(text)
        yield {"text": text}


CHANGES = "k string, ts timestamp, seq int, v string, op string"


BY_ORDER: dict[str, Callable[[Millpond, DataFrame, DataFrame], DataFrame]] = {
    "latest": lambda pond, changes, _: pond.latest(changes, key="k", time="ts", history="1 hour", order="seq", op="op"),
    "asof_join": lambda pond, changes, sales: pond.asof_join(
        sales,
        changes,
        on="k",
        left_time="at",
        right_time="ts",
        history="1 hour",
        how="left",
        right_order="seq",
        right_op="op",
    ),
    "aggregate": lambda pond, changes, _: pond.aggregate(
        changes.where("op = 'u'"),
        {"texts": aggregates.collect("v"), "final": aggregates.last("v"), "start": aggregates.first("v")},
        by="k",
        time="ts",
        order="seq",
    ),
    "apply": lambda pond, changes, _: pond.apply(
        changes.where("op = 'u'"),
        Joined(),
        key="k",
        time="ts",
        schema="text string",
        lateness="1 second",
        order=F.struct("seq"),
    ),
    "table_join": lambda pond, changes, sales: pond.table_join(
        changes,
        sales,
        on="k",
        left_time="ts",
        right_time="at",
        left_order=F.col("seq"),
        left_op="op",
        history="1 hour",
    ),
}
"""Each verb that has an order, over changes of one time."""


def orders() -> Iterator[Any]:
    for verb, cut in product(BY_ORDER, ("together", "backwards")):
        metamorphic = verb in ("latest", "asof_join", "apply")
        marks = [] if (verb, cut) == ("latest", "together") else MORE if metamorphic else [pytest.mark.long]
        yield pytest.param(verb, cut, marks=marks, id=f"{verb}-{cut}")


@pytest.mark.parametrize(("verb", "cut"), list(orders()))
def test_an_order_decides_among_rows_of_one_time(spark: SparkSession, tmp_path: Path, verb: str, cut: str) -> None:
    # By their values or by arrival, other rows would win; "gone" is deleted last, "back" is deleted in between.
    rows = [
        ("x", "10:00", 1, "c", "u"),
        ("x", "10:00", 2, "b", "u"),
        ("x", "10:00", 3, "a", "u"),
        ("gone", "10:00", 1, "z", "u"),
        ("gone", "10:00", 2, "z", "d"),
        ("back", "10:00", 1, "z", "d"),
        ("back", "10:00", 2, "y", "u"),
    ]
    cuts = {"together": [rows[::-1]], "backwards": [[row] for row in rows[::-1]]}
    sales = files(
        spark,
        tmp_path,
        "sales",
        [[]] * (len(cuts[cut]) + 1) + [[(k, "10:05") for k in ("x", "gone", "back")]],
        "k string, at timestamp",
    )
    late = [*cuts[cut], [("clock", "10:06", 1, "-", "u")]]
    changes = files(spark, tmp_path, "changes", late, CHANGES)
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=2, backend="memory")
    found, _ = finished(BY_ORDER[verb](pond, changes, sales), tmp_path)
    rows_of = {k: [row for row in found if row["k"] == k] for k in ("x", "gone", "back")} if verb != "apply" else {}
    if verb == "apply":
        assert sorted(row.text for row in found) == ["c", "cb", "cba", "y", "z"]
    elif verb == "aggregate":
        last = max(rows_of["x"], key=lambda row: row.sequence)
        assert (last.texts, last.final, last.start) == (["c", "b", "a"], "a", "c")
    elif verb == "asof_join":
        assert {k: [row.v for row in some] for k, some in rows_of.items()} == {
            "x": ["a"],
            "gone": [None],
            "back": ["y"],
        }
    else:
        newest = {k: max(some, key=lambda row: row.sequence) for k, some in rows_of.items() if some}
        shown = {k: row.v for k, row in newest.items() if row.op == "upsert"}
        assert shown == {"x": "a", "back": "y"}


def test_an_order_without_a_history_is_refused_and_told_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    changes = files(spark, tmp_path, "changes", [[]], CHANGES)
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=2, backend="memory")
    sides: dict[str, Any] = {"on": "k", "left_time": "ts", "right_time": "since", "left_order": "seq", "left_op": "op"}
    right = changes.select("k", F.col("ts").alias("since"))
    with pytest.raises(ConfigurationError, match=r"left_order is given.*give history=\.\.\."):
        pond.table_join(changes, right, **sides)
    pond.table_join(changes, right, history="1 hour", **sides)

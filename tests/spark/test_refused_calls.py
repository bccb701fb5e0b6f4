"""Calls of ``Millpond`` that are refused, each followed by what the message advises, which is then built."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from tests.refusing import Refused

pytestmark = pytest.mark.spark

N = {"n": aggregates.count()}


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"a": row["a"]}


class Connected(PassOn):
    """Has something that cannot be copied: from the start, or once it is opened."""

    def __init__(self, *, early: bool) -> None:
        self.lock = Lock() if early else None

    def open(self) -> None:
        self.lock = Lock()


class Frames:
    """Streams and a static DataFrame with the same columns."""

    def __init__(self, spark: SparkSession) -> None:
        columns = ("cast(id as string) as k", "timestamp_millis(id) as at", "id as a", "interval 1 month as months")
        self.spark = spark
        self.static = spark.range(1).selectExpr(*columns, "timestamp_ntz'2026-01-01' as local")
        stream = spark.readStream.format("rate").load().withColumnRenamed("value", "id")
        self.left = stream.selectExpr(*columns, "timestamp_ntz'2026-01-01' as local")
        self.right = stream.selectExpr("cast(id as string) as k", "id as number", "timestamp_millis(id) as since")


class Calls:
    """Verbs of a new ``Millpond`` on the same rows; what is given replaces what would do."""

    def __init__(self, frames: Frames, place: Path) -> None:
        self.frames = frames
        self.pond = Millpond(application_id="refused", state_dir=str(place), partitions=1, backend="lmdb")

    def latest(self, rows: DataFrame | None = None, **given: Any) -> DataFrame:
        return self.pond.latest(
            self.frames.left.drop("local", "months") if rows is None else rows,
            **{"key": "k", "time": "at", "history": "1 hour", **given},
        )

    def aggregate(self, calls: Any = None, **given: Any) -> DataFrame:
        return self.pond.aggregate(
            self.frames.left, N if calls is None else calls, **{"by": "k", "time": "at", **given}
        )

    def windows(self, window: Any, **given: Any) -> DataFrame:
        return self.aggregate(window=window, **given)

    def apply(self, processor: Any = None, **given: Any) -> DataFrame:
        rows = self.frames.left.drop("local", "months")
        asked = {"key": "k", "time": "at", "schema": "a bigint", "lateness": 0, **given}
        return self.pond.apply(rows, PassOn() if processor is None else processor, **asked)

    def asof(self, left: DataFrame | None = None, right: DataFrame | None = None, **given: Any) -> DataFrame:
        return self.pond.asof_join(*self._sides(left, right), **self._join(given, history="1 hour"))

    def stream(self, left: DataFrame | None = None, right: DataFrame | None = None, **given: Any) -> DataFrame:
        return self.pond.stream_join(*self._sides(left, right), **self._join(given))

    def table(self, left: DataFrame | None = None, right: DataFrame | None = None, **given: Any) -> DataFrame:
        return self.pond.table_join(*self._sides(left, right), **self._join(given))

    def _sides(self, left: DataFrame | None, right: DataFrame | None) -> tuple[DataFrame, DataFrame]:
        one = self.frames.left.drop("months", "local") if left is None else left
        return one, self.frames.right if right is None else right

    def _join(self, given: dict[str, Any], **others: Any) -> dict[str, Any]:
        return {"on": "k", "left_time": "at", "right_time": "since", **others, **given}


ARGUMENTS = [
    Refused(
        "how is ",
        lambda calls: calls.asof(how="outer"),
        lambda calls: calls.asof(how="inner"),
        lambda calls: calls.asof(how="left"),
    ),
    Refused(
        "give a function of millpond.processors.verbs.aggregates",
        lambda calls: calls.aggregate({"n": "count"}),
        lambda calls: calls.aggregate({"n": aggregates.count()}),
    ),
    Refused(
        "there is nothing to aggregate",
        lambda calls: calls.aggregate({}),
        lambda calls: calls.aggregate({"n": aggregates.count()}),
    ),
    Refused(
        "give TimeWindows, SlidingWindows or SessionWindows",
        lambda calls: calls.windows("1 hour"),
        lambda calls: calls.windows(TimeWindows("1 hour", grace=0)),
        lambda calls: calls.windows(SlidingWindows("1 hour", grace=0)),
        lambda calls: calls.windows(SessionWindows("1 hour", grace=0)),
    ),
    Refused(
        "both are TimeWindows, or both SessionWindows, as in",
        lambda calls: calls.windows(TimeWindows("2 hours"), until={"2026-06-01T00:00:00Z": SessionWindows("1 hour")}),
        lambda calls: calls.windows(TimeWindows("2 hours"), until={"2026-06-01T00:00:00Z": TimeWindows("1 hour")}),
        lambda calls: calls.windows(SessionWindows("1 hour"), name="sessions"),
    ),
    Refused(
        "at which none of the windows after it begins",
        lambda calls: calls.windows(TimeWindows("2 hours"), until={"2026-06-01T01:00:00Z": TimeWindows("1 hour")}),
        lambda calls: calls.windows(TimeWindows("2 hours"), until={"2026-06-01T02:00:00+00:00": TimeWindows("1 hour")}),
    ),
    Refused(
        "emit is ",
        lambda calls: calls.windows(TimeWindows("1 hour"), emit="last"),
        lambda calls: calls.windows(TimeWindows("1 hour"), emit="updates"),
        lambda calls: calls.windows(TimeWindows("1 hour"), emit="final"),
    ),
    Refused(
        "a result that has no window is never final",
        lambda calls: calls.aggregate(emit="final"),
        lambda calls: calls.windows(TimeWindows("1 hour"), emit="final"),
        lambda calls: calls.aggregate(emit="updates"),
    ),
    Refused(
        "but nothing expires; give ttl='30 days'",
        lambda calls: calls.latest(expired="delete"),
        lambda calls: calls.latest(expired="delete", ttl="30 days"),
        lambda calls: calls.latest(),
    ),
    Refused(
        "results of windows are kept until",
        lambda calls: calls.windows(TimeWindows("1 hour"), ttl="30 days"),
        lambda calls: calls.windows(TimeWindows("1 hour")),
        lambda calls: calls.windows(TimeWindows("1 hour", grace="30 days")),
    ),
    Refused(
        "; give a length of time such as '30 days', or leave it out",
        lambda calls: calls.latest(ttl=0),
        lambda calls: calls.latest(ttl="30 days"),
        lambda calls: calls.latest(),
    ),
    Refused(
        "give the name of a column, or a list of different names",
        lambda calls: calls.latest(key=["k", "k"]),
        lambda calls: calls.latest(key="k"),
        lambda calls: calls.latest(key=["k", "a"]),
    ),
    Refused(
        "give either within=..., or before=... and after=...",
        lambda calls: calls.stream(within="10 minutes", before="5 minutes"),
        lambda calls: calls.stream(within="10 minutes"),
        lambda calls: calls.stream(before="5 minutes", after="5 minutes"),
    ),
    Refused(
        "a join of streams needs a window: within='10 minutes'",
        lambda calls: calls.stream(),
        lambda calls: calls.stream(within="10 minutes"),
        lambda calls: calls.stream(before="5 minutes", after="5 minutes"),
    ),
    Refused(
        "is kept; make history as long",
        lambda calls: calls.asof(grace="2 hours"),
        lambda calls: calls.asof(grace="2 hours", history="2 hours"),
    ),
    Refused(
        "a later micro-batch applies last; give history=",
        lambda calls: calls.table(left_order="a"),
        lambda calls: calls.table(left_order="a", history="1 hour"),
    ),
    Refused(
        "leave it out, and let rows expire before: left=pond.latest(left, ",
        lambda calls: calls.table(left_key="a", ttl="30 days"),
        lambda calls: calls.table(
            calls.pond.latest(
                calls.frames.left.select("k", "a", "at"),
                key=["a"],
                time="at",
                history="1 hour",
                ttl="30 days",
                expired="delete",
                name="left-rows",
            ),
            calls.pond.latest(
                calls.frames.right,
                key=["k"],
                time="since",
                history="1 hour",
                ttl="30 days",
                expired="delete",
                name="right-rows",
            ),
            left_key="a",
            left_time="change_time",
            right_time="change_time",
        ),
    ),
    Refused(
        "a backfill is of inputs that have an end, and complete is",
        lambda calls: calls.pond.backfill(complete=calls.frames.left),
        lambda calls: calls.pond.backfill(complete=calls.frames.spark.range(1)),
        lambda calls: calls.pond.backfill(),
    ),
    Refused(
        "; give a list of names, [",
        lambda calls: calls.aggregate(added="n"),
        lambda calls: calls.aggregate(added=["n"]),
    ),
    Refused(
        " of approx_count_distinct is not from ",
        lambda calls: aggregates.approx_count_distinct("a", 2),
        lambda calls: calls.aggregate({"n": aggregates.approx_count_distinct("a", 0.05)}),
        lambda calls: calls.aggregate({"n": aggregates.count_distinct("a")}),
    ),
    Refused(
        "give an object of a subclass of KeyedProcessor",
        lambda calls: calls.apply(PassOn),
        lambda calls: calls.apply(PassOn()),
    ),
    Refused(
        "make connections and the like in open()",
        lambda calls: calls.apply(Connected(early=True)),
        lambda calls: calls.apply(Connected(early=False)),
    ),
]
"""What arguments say."""

COLUMNS = [
    Refused(
        "; give a timestamp or a date, or make one",
        lambda calls: calls.latest(time="a"),
        lambda calls: calls.latest(time="at"),
        lambda calls: calls.latest(time=F.to_date("at")),
        lambda calls: calls.latest(time=F.timestamp_millis("a")),
        lambda calls: calls.latest(time=F.to_timestamp("k")),
    ),
    Refused(
        "the DataFrame \n has no column \n, only \n",
        lambda calls: calls.latest(key="K"),
        lambda calls: calls.latest(key="k"),
    ),
    Refused(
        "rename or drop them before",
        lambda calls: calls.latest(calls.frames.left.select("k", "at", F.col("a").alias("op"))),
        lambda calls: calls.latest(
            calls.frames.left.select("k", "at", F.col("a").alias("op")).withColumnRenamed("op", "a")
        ),
        lambda calls: calls.latest(calls.frames.left.select("k", "at", F.col("a").alias("op")).drop("op")),
    ),
    Refused(
        "whose types differ; cast the ",
        lambda calls: calls.asof(right=calls.frames.right.withColumn("k", F.col("number"))),
        lambda calls: calls.asof(right=calls.frames.right.withColumn("k", F.col("number").cast("string"))),
    ),
    Refused(
        "which is a point in time only in some time zone; to take",
        lambda calls: calls.asof(calls.frames.left.select("k", "local"), left_time="local"),
        lambda calls: calls.asof(calls.frames.left.select("k", "local"), left_time=F.col("local").cast("timestamp")),
    ),
    Refused(
        "which cannot be aggregated; ",
        lambda calls: calls.aggregate({"most": aggregates.max("months")}),
        lambda calls: calls.aggregate({"most": aggregates.max(F.col("months").cast("int"))}),
    ),
    Refused(
        "; cast the column or choose another function",
        lambda calls: calls.aggregate({"total": aggregates.sum("k")}),
        lambda calls: calls.aggregate({"total": aggregates.sum(F.col("k").cast("long"))}),
        lambda calls: calls.aggregate({"total": aggregates.max("k")}),
    ),
    Refused(
        " now, but no input has a ",
        lambda calls: calls.latest(renamed={"amount": "b"}),
        lambda calls: calls.latest(renamed={"amount": "a"}),
    ),
]
"""What columns there are."""

CALLS = [
    Refused(
        " added names ",
        lambda calls: calls.aggregate(added=["m"]),
        lambda calls: calls.aggregate(added=["n"]),
    ),
    Refused(
        "but calls has it; take it out of one of them",
        lambda calls: calls.aggregate(dropped=["n"]),
        lambda calls: calls.aggregate(),
        lambda calls: calls.aggregate({"m": aggregates.count()}, dropped=["n"]),
    ),
    Refused(
        " now, but calls has only ",
        lambda calls: calls.aggregate(renamed={"m": "o"}),
        lambda calls: calls.aggregate(renamed={"m": "n"}),
    ),
    Refused(
        "renamed what an earlier run has applied",
        lambda calls: calls.aggregate({**N, "m": aggregates.count()}, renamed={"m": "n"}),
        lambda calls: calls.aggregate({**N, "m": aggregates.count()}),
    ),
    Refused(
        "renamed gives two results the same name",
        lambda calls: calls.aggregate(renamed={"m": "n", "o": "n"}),
        lambda calls: calls.aggregate(renamed={"m": "n"}),
    ),
]
"""What is declared of the calls of an aggregate."""

VERBS = [
    Refused(
        "and each has state of its own; give one of ",
        lambda calls: (calls.latest(name="one"), calls.latest(name="one", history="2 hours")),
        lambda calls: (calls.latest(name="one"), calls.latest(name="other", history="2 hours")),
    ),
    Refused(
        "which is what its input is called; give another",
        lambda calls: calls.latest(name="input"),
        lambda calls: calls.latest(name="rows"),
    ),
    Refused(
        "has a streaming and a static DataFrame; make ",
        lambda calls: calls.asof(calls.frames.static.select("k", "at")),
        lambda calls: calls.asof(),
        lambda calls: calls.asof(
            calls.frames.static.select("k", "at"), calls.frames.static.select("k", F.col("at").alias("since"))
        ),
    ),
    Refused(
        "no verb of this Millpond is called ",
        lambda calls: (calls.latest(name="one"), calls.pond.read_store("two", "latest", "nowhere")),
        lambda calls: calls.latest(name="two"),
    ),
]
"""What a ``Millpond`` has made."""


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


@pytest.mark.parametrize("refused", [*ARGUMENTS, *COLUMNS, *CALLS, *VERBS], ids=repr)
def test_a_refused_call_of_a_verb_is_built_as_its_message_says(
    refused: Refused, frames: Frames, tmp_path: Path
) -> None:
    refused.check(lambda: Calls(frames, tmp_path), ConfigurationError)

"""Calls of ``Millpond`` and ``SparkStreams`` that are refused, each followed by what its message advises, built."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import FileOutput, FormatOutput, Millpond, OnError, SparkStreams, TableOutput
from millpond.adapters.spark.outputs.output import output_of
from millpond.adapters.spark.outputs.query import chosen
from millpond.adapters.spark.reading.state_source import StateOptions
from millpond.adapters.spark.rows.source import select_source
from millpond.errors import ConfigurationError, MillpondError, UnknownBackendError
from millpond.processors import (
    Consumed,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.durability import DurabilityPolicy
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

    def top_n(self, n: Any = 3, rows: DataFrame | None = None, **given: Any) -> DataFrame:
        kept = self.frames.left.drop("local", "months") if rows is None else rows
        return self.pond.top_n(kept, n, **{"by": "k", "order": "a", "time": "at", **given})

    def deduplicate(self, rows: DataFrame | None = None, **given: Any) -> DataFrame:
        kept = self.frames.left if rows is None else rows
        return self.pond.deduplicate(kept, **{"key": "k", "time": "at", "within": "1 hour", **given})

    def over(self, calls: Any = None, rows: DataFrame | None = None, **given: Any) -> DataFrame:
        kept = self.frames.left if rows is None else rows
        return self.pond.over(kept, N if calls is None else calls, **{"key": "k", "time": "at", **given})

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
        " is of type \n; give a DataFrame of Spark, such as spark.createDataFrame(rows), or call the verb of ",
        lambda calls: calls.latest([{"k": "a"}]),
        lambda calls: calls.latest(calls.frames.spark.createDataFrame([("a", datetime(2026, 1, 1))], ["k", "at"])),
    ),
    Refused(
        " is of type \n; give a DataFrame of Spark, such as spark.createDataFrame(rows), or call the verb of ",
        lambda calls: calls.pond.multi_join({"one": calls.frames.left, "other": None}, on="k", time="at"),
        lambda calls: calls.latest(calls.frames.spark.createDataFrame([("a", datetime(2026, 1, 1))], ["k", "at"])),
    ),
    Refused(
        "; give a list of names of columns",
        lambda calls: calls.apply(optional=[5]),
        lambda calls: calls.apply(optional=["a"]),
    ),
    Refused(
        " must be a plain file name, because a directory gets it; choose one such as ",
        lambda calls: Millpond(application_id="../x", state_dir="state"),
        lambda calls: Millpond(application_id="x", state_dir="state"),
    ),
    Refused(
        ", which is no expression of the rows: \n; give a column of \n, or an expression of these",
        lambda calls: calls.latest(time=F.col("b")),
        lambda calls: calls.latest(time=F.col("at")),
    ),
    Refused(
        " is of type \n; give a DataFrame of Spark, such as spark.createDataFrame(rows), or call the verb of ",
        lambda calls: Millpond(application_id="x", state_dir="state", complete=5),  # type: ignore[arg-type]
        lambda calls: Millpond(application_id="x", state_dir="state", complete=calls.frames.left),
    ),
    Refused(
        "policy is \n; give a DurabilityPolicy of millpond.stores.durability, or leave it out",
        lambda calls: Millpond(application_id="x", state_dir="state", policy=5),  # type: ignore[arg-type]
        lambda calls: Millpond(application_id="x", state_dir="state", policy=DurabilityPolicy()),
        lambda calls: Millpond(application_id="x", state_dir="state"),
    ),
    Refused(
        "local_dir is \n; give the path of a directory, such as ",
        lambda calls: Millpond(application_id="x", state_dir="state", local_dir=5),  # type: ignore[arg-type]
        lambda calls: Millpond(application_id="x", state_dir="state", local_dir="/var/pond"),
        lambda calls: Millpond(application_id="x", state_dir="state"),
    ),
    Refused(
        " missing in the call; write ",
        lambda calls: calls.pond.latest(calls.frames.right, key="k"),
        lambda calls: calls.pond.latest(calls.frames.right, key="k", time="since", history="1 hour"),
    ),
    Refused(
        "time is \n; give the name of a column that both sides have, such as ",
        lambda calls: calls.asof(left_time=None, right_time=None, time=F.col("at")),
        lambda calls: calls.asof(),
    ),
    Refused(
        "how is ",
        lambda calls: calls.asof(how="outer"),
        lambda calls: calls.asof(how="inner"),
        lambda calls: calls.asof(how="left"),
        lambda calls: calls.asof(how="semi"),
        lambda calls: calls.asof(how="anti"),
    ),
    Refused(
        "give null_safe=True if nulls of all columns in on are to be equal",
        lambda calls: calls.asof(null_safe="k"),
        lambda calls: calls.asof(null_safe=True),
        lambda calls: calls.stream(null_safe=True, within="1 hour"),
        lambda calls: calls.table(null_safe=True),
    ),
    Refused(
        ", a column of left; text is a length of time: give ",
        lambda calls: calls.stream(before="a"),
        lambda calls: calls.stream(before=F.col("a"), at_most="1 hour"),
    ),
    Refused(
        "but neither before nor after is a column",
        lambda calls: calls.stream(before="1 hour", at_most="1 hour"),
        lambda calls: calls.stream(before=F.col("a"), at_most="1 hour"),
        lambda calls: calls.stream(before="1 hour"),
    ),
    Refused(
        "rows are kept for the greatest; give at_most=",
        lambda calls: calls.stream(within=F.col("a")),
        lambda calls: calls.stream(within=F.col("a"), at_most="1 hour"),
    ),
    Refused(
        "where bounds are columns, give lengths of less than 9000 years",
        lambda calls: calls.stream(within=F.col("a"), at_most="4000000 days"),
        lambda calls: calls.stream(within=F.col("a"), at_most="3000000 days"),
    ),
    Refused(
        "give an interval, such as F.make_dt_interval(mins=column), or an integer of milliseconds",
        lambda calls: calls.stream(after=F.col("a") / 2, at_most="1 hour"),
        lambda calls: calls.stream(after=F.make_dt_interval(mins=F.col("a").cast("int")), at_most="1 hour"),
        lambda calls: calls.stream(after=(F.col("a") / 2).cast("long"), at_most="1 hour"),
    ),
    Refused(
        "no row lacks a match; give how='left', or leave default out",
        lambda calls: calls.asof(how="semi", default={"number": 0}),
        lambda calls: calls.asof(how="left", default={"number": 0}),
        lambda calls: calls.asof(how="semi"),
    ),
    Refused(
        "which is no column of right in the result",
        lambda calls: calls.asof(how="left", default={"numbr": 0}),
        lambda calls: calls.asof(how="left", default={"number": 0}),
    ),
    Refused(
        "; give a value of that type",
        lambda calls: calls.asof(how="left", default={"number": "none"}),
        lambda calls: calls.asof(how="left", default={"number": 0}),
    ),
    Refused(
        ", which has no time zone; give it one: ",
        lambda calls: calls.asof(how="left", default={"since": datetime(2026, 1, 1)}),
        lambda calls: calls.asof(how="left", default={"since": datetime(2026, 1, 1).astimezone()}),
    ),
    Refused(
        "of which Arrow does not evaluate all: \n; make what it compares columns of the two sides before",
        lambda calls: calls.asof(where=F.lower("k") == F.lit("a")),
        lambda calls: calls.asof(
            right=calls.frames.right.withColumn("small", F.lower("k")), where=F.col("small") == F.lit("a")
        ),
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
        "the gap of window is \n; give a length of time, or that of each row: ",
        lambda calls: calls.windows(SessionWindows(lambda key, row: 5, at_most="1 hour")),
        lambda calls: calls.windows(SessionWindows("1 hour"), name="sessions"),
        lambda calls: calls.windows(SessionWindows(F.col("a"), at_most="1 hour"), name="own"),
    ),
    Refused(
        " is of type \n; give an interval, such as F.make_dt_interval(mins=column), or an integer of ",
        lambda calls: calls.windows(SessionWindows(F.col("a") / 2, at_most="1 hour")),
        lambda calls: calls.windows(SessionWindows(F.make_dt_interval(mins=F.col("a").cast("int")), at_most="1 hour")),
    ),
    Refused(
        ", one for each row, which \n does not take; give one for all rows, such as SessionWindows(",
        lambda calls: calls.windows(
            SessionWindows(F.col("a"), at_most="1 hour"), until={"2026-06-01T00:00:00Z": SessionWindows("1 hour")}
        ),
        lambda calls: calls.windows(
            SessionWindows("30 minutes"), until={"2026-06-01T00:00:00Z": SessionWindows("1 hour")}, name="sessions"
        ),
    ),
    Refused(
        " are moments; give it: ",
        lambda calls: calls.windows(TimeWindows("1 month")),
        lambda calls: calls.windows(TimeWindows("1 month", zone="Europe/Berlin")),
    ),
    Refused(
        " are moments; give it: ",
        lambda calls: calls.windows(SessionWindows("1 hour", max_length="1 month")),
        lambda calls: calls.windows(SessionWindows("1 hour", max_length="1 month", zone="Europe/Berlin")),
    ),
    Refused(
        "(timestamp_ntz); leave out zone for the calendar that they show, or give time as a timestamp",
        lambda calls: calls.windows(TimeWindows("1 month", zone="Europe/Berlin"), time="local"),
        lambda calls: calls.windows(TimeWindows("1 month"), time="local"),
        lambda calls: calls.windows(
            TimeWindows("1 month", zone="Europe/Berlin"), time=F.col("local").cast("timestamp"), name="months"
        ),
    ),
    Refused(
        "; give a mapping from times to the windows that begin before them, such as ",
        lambda calls: calls.windows(TimeWindows("2 hours"), until=5),
        lambda calls: calls.windows(TimeWindows("2 hours"), until={"2026-06-01T00:00:00Z": TimeWindows("1 hour")}),
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
        "but each left row comes out once; give emit='updates' to have results corrected, or leave left_key out",
        lambda calls: calls.asof(left_key="a"),
        lambda calls: calls.asof(left_key="a", emit="updates"),
        lambda calls: calls.asof(),
    ),
    Refused(
        "columns that tell left rows of one key and time apart; give left_key='id', or a list of columns",
        lambda calls: calls.asof(emit="updates"),
        lambda calls: calls.asof(emit="updates", left_key="a"),
        lambda calls: calls.asof(emit="updates", left_key=["a", "k"]),
    ),
    Refused(
        "a late right row corrects what has come out; leave grace out, and give history",
        lambda calls: calls.asof(emit="updates", left_key="a", grace="1 minute"),
        lambda calls: calls.asof(emit="updates", left_key="a"),
    ),
    Refused(
        "nothing says how much newer than a left row its match may be; give tolerance='10 minutes'",
        lambda calls: calls.asof(emit="updates", left_key="a", direction="nearest"),
        lambda calls: calls.asof(emit="updates", left_key="a", direction="nearest", tolerance="10 minutes"),
    ),
    Refused(
        "only; make history as long",
        lambda calls: calls.asof(emit="updates", left_key="a", direction="forward", tolerance="2 hours"),
        lambda calls: calls.asof(
            emit="updates", left_key="a", direction="forward", tolerance="2 hours", history="2 hours"
        ),
    ),
    Refused(
        "with emit='updates' it is part of its key; give a column of left",
        lambda calls: calls.asof(emit="updates", left_key="a", left_time=F.col("at") + F.expr("interval 1 hour")),
        lambda calls: calls.asof(emit="updates", left_key="a", left_time=F.col("at")),
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
        "a backfill takes inputs that have an end, and complete is",
        lambda calls: calls.pond.backfill(complete=calls.frames.left),
        lambda calls: calls.pond.backfill(complete=calls.frames.spark.range(1)),
        lambda calls: calls.pond.backfill(),
    ),
    Refused(
        "; give a list of names, such as ",
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
        " cannot be evaluated for each row (\n); give a column, or an expression of columns of one row",
        lambda calls: calls.aggregate({"n": aggregates.sum(F.sum("a"))}),
        lambda calls: calls.aggregate({"n": aggregates.sum("a")}),
        lambda calls: calls.aggregate({"n": aggregates.sum(F.col("a") + 1)}),
    ),
    Refused(
        " of collect is no number of values; give 1 or more, or leave it out",
        lambda calls: aggregates.collect("a", limit=0),
        lambda calls: calls.aggregate({"n": aggregates.collect("a", limit=1)}),
        lambda calls: calls.aggregate({"n": aggregates.collect("a")}),
    ),
    Refused(
        " is not from 0 to 1; write 0.9 for 90 %",
        lambda calls: aggregates.percentile("a", 90),
        lambda calls: calls.aggregate({"n": aggregates.percentile("a", 0.9)}),
    ),
    *(
        Refused(
            " is \n, which is no column; give the name of one, or an expression such as F.col('a')",
            wrong,
            lambda calls: calls.top_n(time="at"),
            lambda calls: calls.aggregate({"n": aggregates.corr("a", F.col("a"))}, time=F.col("at")),
        )
        for wrong in (
            lambda calls: calls.top_n(time=None),
            lambda calls: calls.latest(time=3),
            lambda calls: calls.apply(time=None),
            lambda calls: calls.aggregate(time=None),
            lambda calls: calls.aggregate({"n": aggregates.last("a")}, order=3),
            lambda calls: calls.latest(order=3),
            lambda calls: calls.latest(order=[]),
            lambda calls: calls.latest(order=["a", 3]),
            lambda calls: calls.latest(op=3),
            lambda calls: calls.table(left_op=[]),
            lambda calls: calls.asof(right_order=3),
            lambda calls: calls.aggregate({"n": aggregates.count(1)}),
            lambda calls: calls.aggregate({"n": aggregates.map_agg("k", 1)}),
            lambda calls: calls.asof(left_time=None),
            lambda calls: calls.stream(right_time=None, within="1 hour"),
            lambda calls: calls.table(left_time=None),
        )
    ),
    Refused(
        " takes two columns, and was given \n and \n; give both, such as ",
        lambda calls: calls.aggregate({"n": aggregates.corr("a", None)}),
        lambda calls: calls.aggregate({"n": aggregates.corr("a", "a")}),
    ),
    Refused(
        " n is \n; give a number from 1 to \n, such as n=3",
        lambda calls: calls.top_n(0),
        lambda calls: calls.top_n(3),
    ),
    Refused(
        " order is \n; give a column such as order='score', an expression, or a list of them",
        lambda calls: calls.top_n(order=[]),
        lambda calls: calls.top_n(order="a"),
        lambda calls: calls.top_n(order=F.length("k")),
        lambda calls: calls.top_n(order=["a", F.length("k")]),
    ),
    Refused(
        " descending is \n; give True or False",
        lambda calls: calls.top_n(order=["a", "at"], descending=[True, False, True]),
        lambda calls: calls.top_n(order=["a", "at"], descending=True),
        lambda calls: calls.top_n(order=["a", "at"], descending=[True, False]),
        lambda calls: calls.top_n(order=F.struct("a", "at"), descending=[True, False]),
    ),
    Refused(
        " says in which direction to sort, which an expression cannot; give the column or expression alone, ",
        lambda calls: calls.latest(order=F.desc("a")),
        lambda calls: calls.latest(order=F.expr("a")),
        lambda calls: calls.latest(order="a"),
    ),
    Refused(
        " says in which direction to sort, which an expression cannot; give the column or expression alone, ",
        lambda calls: calls.top_n(order=["at", F.col("a").desc()]),
        lambda calls: calls.top_n(order=["at", F.expr("a")], descending=[False, True]),
    ),
    Refused(
        " says in which direction to sort, which an expression cannot; give the column or expression alone, ",
        lambda calls: calls.aggregate({"all": aggregates.collect(F.desc("a"))}),
        lambda calls: calls.aggregate({"all": aggregates.collect(F.expr("a"))}),
    ),
    Refused(
        "processor is the class \n; give an object: ",
        lambda calls: calls.apply(PassOn),
        lambda calls: calls.apply(PassOn()),
    ),
    Refused(
        "give an object of a subclass of KeyedProcessor",
        lambda calls: calls.apply(len),
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
        lambda calls: calls.latest(key="q"),
        lambda calls: calls.latest(key="k"),
    ),
    Refused(
        ", which is no column of the rows, only \n; give one of these, or an expression",
        lambda calls: calls.top_n(order="b"),
        lambda calls: calls.top_n(order="a"),
        lambda calls: calls.top_n(order=F.col("a") + F.col("a")),
    ),
    Refused(
        ", which is no expression of the rows: \n; give a column of \n, or an expression of these",
        lambda calls: calls.top_n(order=F.col("b")),
        lambda calls: calls.top_n(order=F.col("a")),
        lambda calls: calls.top_n(order=-F.col("a")),
    ),
    Refused(
        " and maps and variants have no order; give a column that has, or a value of this one",
        lambda calls: calls.top_n(order=F.create_map("k", "a")),
        lambda calls: calls.top_n(order=F.create_map("k", "a")["b"]),
        lambda calls: calls.top_n(order="a"),
    ),
    Refused(
        "are replaced and deleted; to take each of its upserts as a row that stays",
        lambda calls: calls.top_n(rows=calls.latest(), time="change_time"),
        lambda calls: calls.top_n(rows=calls.latest().where("op = 'upsert'").drop("op"), time="change_time"),
        lambda calls: calls.top_n(),
    ),
    Refused(
        "but these are a change feed",
        lambda calls: calls.deduplicate(rows=calls.latest(), time="change_time"),
        lambda calls: calls.deduplicate(rows=calls.latest().where("op = 'upsert'").drop("op"), time="change_time"),
        lambda calls: calls.deduplicate(),
    ),
    Refused(
        "but these are a change feed",
        lambda calls: calls.over(rows=calls.latest(), time="change_time"),
        lambda calls: calls.over(rows=calls.latest().where("op = 'upsert'").drop("op"), time="change_time"),
        lambda calls: calls.over(),
    ),
    Refused(
        "there is nothing to show of the rows before each",
        lambda calls: calls.over({}),
        lambda calls: calls.over({"n": aggregates.count()}),
    ),
    Refused(
        "; give one of them, and another verb the other, behind this one",
        lambda calls: calls.over(last=3, within="1 hour"),
        lambda calls: calls.over(last=3),
        lambda calls: calls.over(within="1 hour"),
    ),
    Refused(
        "; give how many rows count, each itself included",
        lambda calls: calls.over(last=0),
        lambda calls: calls.over(last=10),
    ),
    Refused(
        "is no number of rows before each one; give 1 to ",
        lambda calls: calls.over({"n": aggregates.lag("a", 0)}),
        lambda calls: calls.over({"n": aggregates.lag("a", 1)}),
        lambda calls: calls.asof(direction="forward", exact=False, grace="5 minutes", tolerance="5 minutes"),
    ),
    Refused(
        "lag takes a row before each row, and an aggregate has none",
        lambda calls: calls.aggregate({"n": aggregates.lag("a")}),
        lambda calls: calls.over({"n": aggregates.lag("a")}),
        lambda calls: calls.aggregate({"n": aggregates.last("a")}),
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
        "; give a condition as DataFrame.where takes it, such as ",
        lambda calls: calls.aggregate({"n": aggregates.sum("a", where="status = 'paid'")}),
        lambda calls: calls.aggregate({"n": aggregates.sum("a", where="k = 'paid'")}),
        lambda calls: calls.aggregate({"n": aggregates.first("a", where=F.col("k") == "paid")}),
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
        ", whose results are of no windows; leave until out",
        lambda calls: calls.pond.aggregate(
            calls.latest(), N, by="a", time="change_time", until={"2026-06-01T00:00:00Z": TimeWindows("1 hour")}
        ),
        lambda calls: calls.pond.aggregate(calls.latest(), N, by="a", time="change_time"),
    ),
    Refused(
        ", which has no order; give a column that has one",
        lambda calls: calls.latest(order=F.create_map("k", "a")),
        lambda calls: calls.latest(order=F.create_map("k", "a")["b"]),
        lambda calls: calls.latest(order="a"),
    ),
    Refused(
        ", an expression, and takes names of columns; make it a column, such as ",
        lambda calls: calls.aggregate(by=F.upper("k")),
        lambda calls: calls.pond.aggregate(
            calls.frames.left.withColumn("made", F.upper("k")), N, by="made", time="at", name="made"
        ),
        lambda calls: calls.aggregate(by=[F.col("k")]),
        lambda calls: calls.aggregate(by="K"),
    ),
    Refused(
        " added names ",
        lambda calls: calls.aggregate(added=["m"]),
        lambda calls: calls.aggregate(added=["n"]),
    ),
    Refused(
        "begin with the rows that have not come out yet; give a list of their names",
        lambda calls: calls.over(added={"n": "2026-12-01T00:00:00Z"}),
        lambda calls: calls.over(added=["n"]),
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
"""What is declared of the calls of an aggregate or an over."""

VERBS = [
    Refused(
        "and each has state of its own; give one of ",
        lambda calls: (calls.latest(name="one"), calls.latest(name="one", history="2 hours")),
        lambda calls: (calls.latest(name="one"), calls.latest(name="other", history="2 hours")),
    ),
    Refused(
        "which is also the name of its input; give another",
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


UNGIVEN = object()


def job(*unnamed: Any, **given: Any) -> Millpond:
    """Return a Millpond that is made so; what is ``UNGIVEN`` is left out."""
    named: dict[str, Any] = {} if unnamed else {"application_id": "app", "state_dir": "state"}
    kept = {name: value for name, value in {**named, **given}.items() if value is not UNGIVEN}
    return Millpond(*unnamed, **kept)


class Streams:
    """Queries of topologies on words, as they are built."""

    def __init__(self, frames: Frames, place: Path) -> None:
        self.frames = frames
        self.place = place
        self.reading = {"checkpoint": "checkpoint", "state_dir": "state", "store": "counts"}
        self.stream = frames.left.selectExpr("k as key", "a as value", "at as timestamp")
        self.static = frames.static.selectExpr("k as key", "a as value", "at as timestamp")

    def streams(self, topology: Topology | None = None, **options: Any) -> SparkStreams:
        given: dict[str, Any] = {"application_id": "refused", "state_dir": str(self.place), "partitions": 1, **options}
        return SparkStreams(topology or self.counts(), **given)

    def counts(self, consumed: Consumed | None = None, produced: Produced | None = None) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream("words", consumed or Consumed("string", "int64"))
        words.group_by_key().count().to("counts", produced)
        return builder.build()

    def stateless(self, produced: Produced | None = None) -> Topology:
        builder = StreamsBuilder()
        builder.stream("words", Consumed("string", "int64")).to("words-again", produced)
        return builder.build()

    def merged(self) -> Topology:
        builder = StreamsBuilder()
        read = Consumed("string", "int64")
        builder.stream("words", read).merge(builder.stream("more", read)).group_by_key().count().to("counts")
        return builder.build()

    def regrouped(self, upgrade_from: str | None = None) -> Topology:
        """Return words counted by their numbers, whose changes travel as a release reads them."""
        builder = StreamsBuilder(upgrade_from=upgrade_from)
        words = builder.table("words", Consumed("string", "int64"))
        words.group_by(lambda word, number: (word, number)).count().to_stream().to("counts")
        return builder.build()

    def read(self, rows: DataFrame | None = None, **consumed: Any) -> DataFrame:
        """Return a count of rows that are read in some way."""
        topology = self.counts(Consumed(**{"key_serde": "string", "value_serde": "int64", **consumed}))
        return self.streams(topology).transform({"words": self.stream if rows is None else rows})

    def counted(self, **options: Any) -> DataFrame:
        return self.streams(**options).transform({"words": self.stream})

    def nested(self, number: str) -> DataFrame:
        """Return words whose value is a struct with a number."""
        return self.stream.selectExpr("key", f"named_struct('n', {number}) as value", "timestamp")

    def output(self, given: Any, columns: str = "key") -> None:
        """Have an output for a sink with a column checked."""
        output_of("counts", given).check("counts", pa.schema([(columns, pa.string())]), self.frames.spark)


HEADERS = "array(struct('a' as key, cast('b' as binary) as value)) as headers"

OPTIONS = [
    *(
        Refused(", which is no bool; give True or False", wrong, lambda calls: calls.streams(checksums=True))
        for wrong in (
            lambda calls: calls.streams(checksums="yes"),
            lambda calls: job(checksums=1),
            lambda calls: job(share_operators="no"),
        )
    ),
    Refused(
        ", but this is of type \n; give one of \n, or a supplier",
        lambda calls: calls.streams(backend=5),
        lambda calls: calls.streams(backend="lmdb"),
        lambda calls: calls.streams(backend=MemorySupplier()),
    ),
    Refused(
        " missing in the call; write ",
        lambda calls: job(state_dir=UNGIVEN),
        lambda calls: job(),
    ),
    Refused(
        ": each argument is given by its name; write ",
        lambda calls: job("app", "state"),
        lambda calls: job(),
    ),
    Refused(
        "; give bytes, or text such as '512MiB', or leave it out",
        lambda calls: calls.streams(memory_budget=0),
        lambda calls: calls.streams(memory_budget=1 << 29),
        lambda calls: calls.streams(memory_budget="512MiB"),
        lambda calls: calls.streams(),
    ),
    Refused(
        "; give a datetime, or text such as '2026-06-01T12:00:00Z'",
        lambda calls: calls.streams(reset_stream_time="noon"),
        lambda calls: calls.streams(reset_stream_time=datetime(2026, 6, 1, tzinfo=UTC)),
        lambda calls: calls.streams(reset_stream_time="2026-06-01T12:00:00Z"),
    ),
    Refused(
        "it must not be negative. None allows any distance",
        lambda calls: calls.streams(max_ahead="-1 day"),
        lambda calls: calls.streams(max_ahead="1 day"),
        lambda calls: calls.streams(max_ahead=None),
    ),
    Refused(
        " or more, or lower that setting",
        lambda calls: calls.counted(policy=DurabilityPolicy(retained_commits=150)),
        lambda calls: calls.counted(policy=DurabilityPolicy(retained_commits=200)),
    ),
    Refused(
        "; with upgrade_from, give 'in_place' or 'roll_over', or leave both out",
        lambda calls: calls.streams(upgrade_from="0.1.0"),
        lambda calls: calls.streams(upgrade_from="0.1.0", upgrade_mode="in_place"),
        lambda calls: calls.streams(upgrade_from="0.1.0", upgrade_mode="roll_over"),
        lambda calls: calls.streams(),
    ),
    Refused(
        "; give a release of Millpond such as '0.1.0'",
        lambda calls: calls.streams(upgrade_from="zero", upgrade_mode="in_place"),
        lambda calls: calls.streams(upgrade_from="0.1.0", upgrade_mode="in_place"),
    ),
    Refused(
        ", but the first release of Kafka Streams was 0.10.0; leave it out here",
        lambda calls: calls.regrouped(upgrade_from="0.1.0"),
        lambda calls: calls.streams(calls.regrouped()).transform({"words": calls.stream}),
        lambda calls: calls.streams(calls.regrouped(), upgrade_from="0.1.0", upgrade_mode="in_place").transform(
            {"words": calls.stream}
        ),
    ),
]
"""Options of ``SparkStreams``."""

INPUTS = [
    Refused(
        "there are no inputs; give a DataFrame for each source topic: transform({'topic': df})",
        lambda calls: calls.streams().transform({}),
        lambda calls: calls.streams().transform({"words": calls.stream}),
    ),
    Refused(
        "; transform needs one for each of ",
        lambda calls: calls.streams(calls.merged()).transform({"words": calls.stream}),
        lambda calls: calls.streams(calls.merged()).transform({"words": calls.stream, "more": calls.stream}),
    ),
    Refused(
        "some inputs are streaming DataFrames and some are static; make all of them",
        lambda calls: calls.streams(calls.merged()).transform({"words": calls.stream, "more": calls.static}),
        lambda calls: calls.streams(calls.merged()).transform({"words": calls.stream, "more": calls.stream}),
        lambda calls: calls.streams(calls.merged()).transform({"words": calls.static, "more": calls.static}),
    ),
    Refused(
        "and a query runs on streaming ones; for static ones call transform",
        lambda calls: calls.streams().start(
            {"words": calls.static}, sinks={"counts": print}, checkpoint_location=str(calls.place / "checkpoint")
        ),
        lambda calls: calls.streams().transform({"words": calls.static}, sink="counts"),
    ),
    Refused(
        "so static DataFrames; give streaming ones to transform",
        lambda calls: calls.streams().backfill({"words": calls.stream}),
        lambda calls: calls.streams().transform({"words": calls.stream}),
    ),
    Refused(
        "could begin with; call transform with the static DataFrames",
        lambda calls: calls.streams(calls.stateless()).backfill({"words": calls.static}),
        lambda calls: calls.streams(calls.stateless()).transform({"words": calls.static}),
    ),
    Refused(
        "and time only passes for a stream; leave ticks out, or make all of them",
        lambda calls: calls.streams().transform({"words": calls.stream}, ticks=calls.static),
        lambda calls: calls.streams().transform({"words": calls.stream}),
        lambda calls: calls.streams().transform(
            {"words": calls.stream}, ticks=calls.frames.spark.readStream.format("rate").load()
        ),
    ),
    Refused(
        "ticks has no task to wake: ",
        lambda calls: calls.streams(calls.stateless()).transform({"words": calls.stream}, ticks=calls.stream),
        lambda calls: calls.streams(calls.stateless()).transform({"words": calls.stream}),
        lambda calls: calls.streams(calls.counts()).transform({"words": calls.stream}, ticks=calls.stream),
    ),
    Refused(
        "the DataFrame for \n has no column \n for the ",
        lambda calls: calls.read(key="word"),
        lambda calls: calls.read(key="key"),
    ),
    Refused(
        "; give a timestamp, or a long of milliseconds since 1970",
        lambda calls: calls.read(timestamp="key"),
        lambda calls: calls.read(timestamp="timestamp"),
        lambda calls: calls.read(timestamp="value"),
    ),
    Refused(
        ", which cannot be a key; turn it into a string or a number first",
        lambda calls: calls.read(calls.stream.withColumn("key", F.array("key"))),
        lambda calls: calls.read(calls.stream.withColumn("key", F.array("key").cast("string"))),
    ),
    Refused(
        "but there is no serde for keys; give one: Consumed(key_serde=...)",
        lambda calls: select_source(calls.stream, "words", Consumed(), OnError.FAIL, keyed=True),
        lambda calls: select_source(calls.stream, "words", Consumed(key_serde="string"), OnError.FAIL, keyed=True),
    ),
    Refused(
        "; give an array<struct<key:string,value:binary>>",
        lambda calls: calls.read(headers="key"),
        lambda calls: calls.read(calls.stream.selectExpr("*", HEADERS), headers="headers"),
    ),
    Refused(
        " serde cannot take; cast the column or name another serde in Consumed",
        lambda calls: calls.read(key_serde="int64"),
        lambda calls: calls.read(calls.stream.withColumn("key", F.col("key").cast("long")), key_serde="int64"),
        lambda calls: calls.read(key_serde="string"),
    ),
    Refused(
        "; cast the column, or name another serde in Consumed",
        lambda calls: calls.read(calls.nested("value"), value_serde="struct<n:string>"),
        lambda calls: calls.read(calls.nested("cast(value as string)"), value_serde="struct<n:string>"),
        lambda calls: calls.read(calls.nested("value"), value_serde="struct<n:bigint>"),
    ),
    Refused(
        "; give a string column with operations such as ",
        lambda calls: calls.read(calls.stream.withColumn("deleted", F.lit(True)), op="deleted"),
        lambda calls: calls.read(
            calls.stream.withColumn("deleted", F.lit(True)).withColumn(
                "op", F.when(F.col("deleted"), "delete").otherwise("upsert")
            ),
            op="op",
        ),
    ),
]
"""What a topology reads."""

OUTPUTS = [
    Refused(
        "; give a FileOutput, FormatOutput, TableOutput or MergeOutput, a function",
        lambda calls: calls.output("/out"),
        lambda calls: calls.output(FileOutput("/out")),
        lambda calls: calls.output(FormatOutput("console")),
        lambda calls: calls.output(TableOutput("counts")),
        lambda calls: calls.output(lambda rows, batch: None),
    ),
    Refused(
        "; other formats take FormatOutput",
        lambda calls: calls.output(FileOutput("/out", "kafka")),
        lambda calls: calls.output(FileOutput("/out", "json")),
        lambda calls: calls.output(FormatOutput("kafka")),
    ),
    Refused(
        "which is also the name of the directories of a FileOutput; give the column another name",
        lambda calls: calls.output(FileOutput("/out"), "batch_id"),
        lambda calls: calls.output(FileOutput("/out"), "batch"),
    ),
    Refused(
        " only as a query's own sink; give a function (DataFrame, batch_id)",
        lambda calls: calls.output(FormatOutput("memory")),
        lambda calls: calls.output(lambda rows, batch: rows.collect()),
    ),
    Refused(
        " go; give an output for each, or None if it is not to be written",
        lambda calls: chosen({"one": print}, ["one", "other"]),
        lambda calls: chosen({"one": print, "other": print}, ["one", "other"]),
        lambda calls: chosen({"one": print, "other": None}, ["one", "other"]),
    ),
    Refused(
        " is to be written; give an output for one of them",
        lambda calls: chosen({"one": None, "other": None}, ["one", "other"]),
        lambda calls: chosen({"one": print, "other": None}, ["one", "other"]),
    ),
    Refused(
        "which stands between the names of sinks that are written together",
        lambda calls: chosen({"one~two": print, "other": print}, ["one~two", "other"]),
        lambda calls: chosen({"one-two": print, "other": print}, ["one-two", "other"]),
    ),
    Refused(
        ": optional columns need a schema; give Produced(schema='key string, ...')",
        lambda calls: calls.streams(calls.counts(produced=Produced(optional=["value"]))).transform(
            {"words": calls.stream}
        ),
        lambda calls: calls.streams(
            calls.counts(produced=Produced(schema="key string, value long", optional=["value"]))
        ).transform({"words": calls.stream}),
    ),
]
"""Where rows of a topology go."""

READING = [
    Refused(
        "format \n has no option \n; its options are ",
        lambda calls: StateOptions.of({**calls.reading, "batches": "1"}),
        lambda calls: StateOptions.of({**calls.reading, "batch": "1"}),
    ),
    Refused(
        "format \n needs the option ",
        lambda calls: StateOptions.of({"checkpoint": "c", "store": "counts"}),
        lambda calls: StateOptions.of({"checkpoint": "c", "store": "counts", "state_dir": "s"}),
    ),
    Refused(
        "; give the number of a micro-batch, such as 0",
        lambda calls: StateOptions.of({**calls.reading, "batch": "last"}),
        lambda calls: StateOptions.of({**calls.reading, "batch": "0"}),
    ),
]
"""The options of Spark's format for state."""


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


@pytest.mark.parametrize("refused", [*ARGUMENTS, *COLUMNS, *CALLS, *VERBS], ids=repr)
def test_a_refused_call_of_a_verb_is_built_as_its_message_says(
    refused: Refused, frames: Frames, tmp_path: Path
) -> None:
    refused.check(lambda: Calls(frames, tmp_path), ConfigurationError)


@pytest.mark.parametrize("refused", [*OPTIONS, *INPUTS, *OUTPUTS, *READING], ids=repr)
def test_a_refused_call_of_spark_streams_is_built_as_its_message_says(
    refused: Refused, frames: Frames, tmp_path: Path
) -> None:
    refused.check(lambda: Streams(frames, tmp_path), MillpondError)


def test_top_n_tells_how_a_direction_is_given(frames: Frames, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"F\.expr\('a'\), and the direction as descending=True or False"):
        Calls(frames, tmp_path).top_n(order=["at", F.desc("a")])


def test_a_backend_that_there_is_not_is_refused_when_a_job_is_made() -> None:
    with pytest.raises(UnknownBackendError, match=r"there is no backend 'rocks', only lmdb, .*did you mean 'rocksdb'"):
        job(backend="rocks")
    job(backend="rocksdb")

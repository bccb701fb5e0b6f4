"""Spark's own means for the same work: JVM operators, the Python state API, and the least that Python costs.

Rule of this module: a peer is written as somebody would write it who wants the most of Spark. It reads and keeps the
columns that it needs and no other, and gives the columns that Millpond gives.
"""

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.bench.spark.shapes import (
    BOUNDED,
    COUNTED,
    DEVICE,
    JOINED,
    KEYED,
    QUOTED,
    RATE,
    SIGNED,
    WIDE,
    Inputs,
    Scale,
    columns_of,
)
from millpond.bench.spark.stateful import CountRows, JoinAsOf, JoinOrders, JoinQuotes, JoinTables, Nothing, SignRows

NO_DELAY = "0 seconds"
"""The delay that rows may have: none."""


def jvm_count(inputs: Inputs, scale: Scale) -> DataFrame:
    """Count by Spark's aggregate."""
    return inputs["events"].groupBy("key").agg(F.count("*").alias("value"))


def jvm_window(inputs: Inputs, scale: Scale) -> DataFrame:
    """Count by Spark's windowed aggregate; in append mode, a window comes out when the watermark has passed it."""
    return _jvm_windows(inputs["events"], scale, _count())


def jvm_session(inputs: Inputs, scale: Scale) -> DataFrame:
    """Count by Spark's session windows."""
    return _jvm_sessions(inputs["events"], scale, _count())


def jvm_window_aggregates(inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute six of Spark's aggregates by window."""
    return _jvm_windows(inputs["sales"], scale, *_of_sales())


def jvm_skewed_key(inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute five of Spark's aggregates by window."""
    return _jvm_windows(inputs["sales"], scale, *_of_sales()[:-1])


def jvm_session_aggregates(inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute six of Spark's aggregates by session."""
    return _jvm_sessions(inputs["sales"], scale, *_of_sales())


def jvm_roll_up(aggregates: int, inputs: Inputs, scale: Scale) -> DataFrame:
    """Chain so many of Spark's windowed aggregates, each of which adds up the windows of the one before."""
    first, *others = scale.roll_up[-aggregates:]
    window = F.window("time", f"{first} milliseconds").alias("window")
    rows = _timed(inputs["events"], "time").groupBy("key", window).agg(_count())
    for size in others:
        window = F.window("window", f"{size} milliseconds").alias("window")
        rows = rows.groupBy("key", window).agg(F.sum("value").alias("value"))
    return rows.select("key", *_bounds(), "value")


def jvm_stream_join(how: str, state_format: int, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by Spark's join of streams, which forgets rows that the watermarks have passed.

    Args:
        how: ``inner``, or ``left`` for the rows of the left side that find nobody as well.
        state_format: the number of the form of its state.
        inputs: the events and the rates.
        scale: how much there is.
    """
    inputs["events"].sparkSession.conf.set("spark.sql.streaming.join.stateFormatVersion", state_format)
    left = _timed(inputs["events"], "left_time").select("key", "amount", "left_time")
    right = _timed(inputs["rates"], "right_time").select(F.col("key").alias("right_key"), "rate", "right_time")
    reach = F.expr(f"interval {scale.reach} milliseconds")
    close = F.col("right_time").between(F.col("left_time") - reach, F.col("left_time") + reach)
    joined = left.join(right, (F.col("key") == F.col("right_key")) & close, how)
    return joined.select("key", _millis(F.greatest("left_time", "right_time"), "timestamp"), "amount", "rate")


def stateful_count(inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a count by ``transformWithState``."""
    return inputs["events"].groupBy("key").transformWithState(CountRows(), COUNTED, "Update", "None")


def stateful_temporal_join(inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a join as of a time by ``transformWithState``."""
    return _stateful_asof_join(inputs, RATE, JOINED)


def static_asof_join(right: str, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by SQL's ``ASOF JOIN``, which Spark has since 4.3: each micro-batch reads all of the right side."""
    session = inputs["events"].sparkSession
    session.conf.set("spark.sql.join.asofJoin.enabled", "true")
    joined = "{events} AS events LEFT ASOF JOIN {rates} AS rates MATCH_CONDITION (events.at >= rates.at) USING (key)"
    query = f"SELECT key, events.at AS timestamp, amount, rate FROM {joined}"
    return session.sql(query, None, events=inputs["events"], rates=inputs[right])


def stateful_wide_join(inputs: Inputs, scale: Scale) -> DataFrame:
    """Join wide rows as of a time by ``transformWithState``."""
    return _stateful_asof_join(inputs, DEVICE, WIDE)


def pandas_hot_keys(inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a join as of a time by ``pandas.merge_asof`` in ``transformWithStateInPandas``."""
    rows = _union(inputs).groupBy("key")
    return rows.transformWithStateInPandas(JoinQuotes(scale.reach), QUOTED, "Append", "None")


def stateful_table_join(inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a join of tables by ``transformWithState``."""
    return _stateful_tables(inputs, JOINED)


def stateful_multi_join(inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a join of three tables by ``transformWithState``."""
    return _stateful_tables(inputs, BOUNDED)


def stateful_feed_aggregate(inputs: Inputs, scale: Scale) -> DataFrame:
    """Sum what changes take and add, found by ``transformWithState``, with Spark's aggregate."""
    signed = inputs["accounts"].groupBy("key").transformWithState(SignRows(), SIGNED, "Update", "None")
    totals = signed.groupBy(F.col("segment").alias("key")).agg(
        F.sum("sign").alias("value"), F.sum("amount").alias("total"), F.max("at").alias("timestamp")
    )
    return totals.where("value > 0")


def stateful_foreign_key(inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by foreign key by ``transformWithState``: all rows go to their customer, because orders keep theirs."""
    rows = _union(
        {
            "orders": inputs["orders"],
            "customers": inputs["customers"].select(F.col("key").alias("customer"), "at", "rate"),
        }
    )
    return rows.groupBy("customer").transformWithState(JoinOrders(), JOINED, "Append", "None")


def pass_through(inputs: Inputs, scale: Scale) -> DataFrame:
    """Send every row to a Python worker, which does nothing, and back: the least that a Python operator costs."""
    rows = _union(inputs)
    return rows.mapInArrow(_unchanged, rows.schema)


def exchange_pass_through(inputs: Inputs, scale: Scale) -> DataFrame:
    """Send events to a Python worker and back, as above, with the columns of the exchange."""
    rows = inputs["events"].select("key", F.col("at").alias("timestamp"), F.col("amount").alias("value"))
    return rows.mapInArrow(_unchanged, KEYED)


def empty_operator(inputs: Inputs, scale: Scale) -> DataFrame:
    """Send every row to ``transformWithState``, which does nothing: the least that state in Python costs.

    There is one group for each shuffle partition. With one for each key, Spark would call once per key.
    """
    rows = _union(inputs)
    groups = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    grouped = rows.withColumn("group", F.pmod(F.hash("key"), F.lit(groups))).groupBy("group")
    return grouped.transformWithStateInPandas(Nothing(), rows.schema, "Append", "None")


def _stateful_asof_join(inputs: Inputs, right: str, joined: str) -> DataFrame:
    versions = right.removeprefix("key string, ")
    return (
        _union(inputs)
        .groupBy("key")
        .transformWithState(JoinAsOf(versions, columns_of(joined)), joined, "Append", "None")
    )


def _stateful_tables(inputs: Inputs, joined: str) -> DataFrame:
    columns = joined.removeprefix("key string, timestamp long, ")
    return _union(inputs).groupBy("key").transformWithState(JoinTables(columns), joined, "Append", "None")


def _of_sales() -> list[Column]:
    """Return six aggregates of four types of columns; Spark's ``last`` goes by arrival, so the latest is by time."""
    return [
        F.count("*").alias("sales"),
        F.sum("price").alias("total"),
        F.avg("weight").alias("mean"),
        F.min("amount").alias("least"),
        F.max("price").alias("most"),
        F.max_by("status", "time").alias("latest"),
    ]


def _count() -> Column:
    return F.count("*").alias("value")


def _jvm_windows(rows: DataFrame, scale: Scale, *calls: Column) -> DataFrame:
    window = F.window("time", f"{scale.window} milliseconds").alias("window")
    found = _timed(rows, "time").groupBy("key", window).agg(*calls)
    return found.select("key", *_bounds(), *found.columns[2:])


def _jvm_sessions(rows: DataFrame, scale: Scale, *calls: Column) -> DataFrame:
    """Aggregate by Spark's sessions, which end a gap after their last row."""
    window = F.session_window("time", f"{scale.gap} milliseconds").alias("window")
    found = _timed(rows, "time").groupBy("key", window).agg(*calls)
    return found.select("key", *_bounds(scale.gap), *found.columns[2:])


def _bounds(earlier: int = 0) -> tuple[Column, Column]:
    """Start and end of a window, the end so many milliseconds earlier."""
    return _millis("window.start", "window_start"), (F.unix_millis("window.end") - earlier).alias("window_end")


def _timed(rows: DataFrame, name: str) -> DataFrame:
    return rows.withColumn(name, F.timestamp_millis("at")).withWatermark(name, NO_DELAY)


def _millis(column: str | Column, name: str) -> Column:
    return F.unix_millis(column).alias(name)


def _union(inputs: Inputs) -> DataFrame:
    """Return all rows of streams, with nulls in the columns that only another topic has."""
    streams = [rows for rows in inputs.values() if rows.isStreaming]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), streams)


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches

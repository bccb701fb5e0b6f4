"""The same work by verbs on DataFrames, whose values stay packed."""

from typing import Final, TypedDict

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.bench.spark.shapes import HISTORY, Inputs, Scale
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates

_CALLS: Final = {"value": aggregates.count()}


def count(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Events per key."""
    return pond.aggregate(inputs["events"], _CALLS, by="key", time=_time()).select("key", "value")


def temporal_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Each event with its key's rate as of the event's time."""
    joined = pond.asof_join(*_both(inputs), on="key", **_times(), history=HISTORY, how="left")
    return joined.select("key", F.col("at").alias("timestamp"), "amount", "rate")


def table_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Two versioned tables."""
    return _changes(pond.table_join(*_both(inputs), on="key", **_times(), history=HISTORY))


def stream_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """The pairs of rows of two streams that are close in time."""
    return _latest_of_both(pond.stream_join(*_both(inputs), on="key", **_times(), within=scale.reach))


def stream_join_left(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """The same, and the events that find nobody."""
    return _latest_of_both(pond.stream_join(*_both(inputs), on="key", **_times(), within=scale.reach, how="left"))


def window(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Events per key and tumbling window."""
    windows = TimeWindows(scale.window)
    counted = pond.aggregate(inputs["events"], _CALLS, by="key", time=_time(), window=windows, emit="final")
    return counted.select("key", _millis("window.start", "window_start"), _millis("window.end", "window_end"), "value")


def session(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Events per key and session; the verb's sessions end a gap after their last row."""
    windows = SessionWindows(scale.gap)
    counted = pond.aggregate(inputs["events"], _CALLS, by="key", time=_time(), window=windows, emit="final")
    end = (F.unix_millis("window.end") - scale.gap).alias("window_end")
    return counted.select("key", _millis("window.start", "window_start"), end, "value")


def foreign_key(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Each order with its customer's rate."""
    customers = _since(inputs["customers"]).withColumnRenamed("key", "customer")
    return _changes(pond.table_join(inputs["orders"], customers, on="customer", left_key="key", **_times()))


class _Times(TypedDict):
    left_time: Column
    right_time: Column


def _times() -> _Times:
    """How the verbs name the times of the two sides."""
    return {"left_time": _time(), "right_time": _time("since")}


def _both(inputs: Inputs) -> tuple[DataFrame, DataFrame]:
    """Events and rates, as the sides of a join."""
    return inputs["events"], _since(inputs["rates"])


def _time(column: str = "at") -> Column:
    return F.timestamp_millis(column)


def _millis(column: str, name: str) -> Column:
    return F.unix_millis(column).alias(name)


def _since(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("at", "since")


def _changes(joined: DataFrame) -> DataFrame:
    return joined.select("key", _millis("change_time", "timestamp"), "amount", "rate")


def _latest_of_both(joined: DataFrame) -> DataFrame:
    return joined.select("key", F.greatest("at", "since").alias("timestamp"), "amount", "rate")

"""The same work by verbs on DataFrames, whose values stay packed."""

from collections.abc import Mapping
from typing import Final, TypedDict
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.adapters.tables import ParquetTable
from millpond.bench.spark.shapes import HISTORY, QUOTED, WIDE, Inputs, Scale, columns_of
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall

_CALLS: Final = {"value": aggregates.count()}
_OF_SALES: Final = {
    "sales": aggregates.count(),
    "total": aggregates.sum("price"),
    "mean": aggregates.avg("weight"),
    "least": aggregates.min("amount"),
    "most": aggregates.max("price"),
    "latest": aggregates.last("status"),
}
"""Six functions on columns of four types."""

_WITHOUT_ORDER: Final = {name: call for name, call in _OF_SALES.items() if name != "latest"}
"""The five of them that do not go by the order of rows."""


def count(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count events per key."""
    return pond.aggregate(inputs["events"], _CALLS, by="key", time=_time()).select("key", "value")


def temporal_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join each event with its key's rate as of the event's time."""
    joined = pond.asof_join(*_both(inputs), on="key", **_times(), history=HISTORY, how="left")
    return joined.select("key", F.col("at").alias("timestamp"), "amount", "rate")


def table_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join two versioned tables."""
    return _changes(pond.table_join(*_both(inputs), on="key", **_times(), history=HISTORY))


def stream_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Return the pairs of rows of two streams that are close in time."""
    return _latest_of_both(pond.stream_join(*_both(inputs), on="key", **_times(), within=scale.reach))


def stream_join_left(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join the two streams, and keep the events that find nobody."""
    return _latest_of_both(pond.stream_join(*_both(inputs), on="key", **_times(), within=scale.reach, how="left"))


def window(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count events per key and tumbling window."""
    return _in_windows(pond, inputs["events"], _CALLS, scale)


def session(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count events per key and session."""
    return _in_sessions(pond, inputs["events"], _CALLS, scale)


def window_aggregates(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute six aggregates of sales per key and tumbling window."""
    return _in_windows(pond, inputs["sales"], _OF_SALES, scale)


def session_aggregates(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute six aggregates of sales per key and session."""
    return _in_sessions(pond, inputs["sales"], _OF_SALES, scale)


def skewed_key(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute five aggregates of sales per key and tumbling window, which are combined before they travel."""
    return _in_windows(pond, inputs["sales"], _WITHOUT_ORDER, scale)


def skewed_key_one_by_one(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Compute the same and a sixth aggregate, which goes by the order of rows, so that all rows travel."""
    return _in_windows(pond, inputs["sales"], _OF_SALES, scale).drop("latest")


def wide_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join each reading, of 20 columns, with what was known of its device at its time."""
    sides = inputs["readings"], _since(inputs["devices"])
    joined = pond.asof_join(*sides, on="key", **_times(), history=HISTORY, how="left")
    return joined.withColumnRenamed("at", "timestamp").select(columns_of(WIDE))


def hot_keys(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join each trade with its share's quote as of the trade's time."""
    sides = inputs["trades"], _since(inputs["quotes"])
    joined = pond.asof_join(*sides, on="key", **_times(), history=scale.reach, how="left")
    return joined.withColumnRenamed("at", "timestamp").select(columns_of(QUOTED))


def roll_up(verbs: int, pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count events per key and window by so many verbs, each of which adds up the windows of the one before."""
    rows, calls, time = inputs["events"], _CALLS, _time()
    for size in scale.roll_up[-verbs:]:
        name, windows = f"windows-of-{size}", TimeWindows(size)
        rows = pond.aggregate(rows, calls, by="key", time=time, window=windows, emit="final", name=name)
        calls, time = {"value": aggregates.sum("value")}, F.col("window.start")
    return rows.select("key", *_bounds(), "value")


def foreign_key(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join each order with its customer's rate."""
    customers = _since(inputs["customers"]).withColumnRenamed("key", "customer")
    return _changes(pond.table_join(inputs["orders"], customers, on="customer", left_key="key", **_times()))


def multi_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join three tables by one key, at once."""
    return _bounded(pond.multi_join(_three(inputs), on="key", time="at"))


def two_table_joins(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join three tables: the first two, and then the changes of that with the third."""
    joined = pond.table_join(*_both(inputs), on="key", **_times(), name="first two")
    both = joined.drop("at", "since"), _since(inputs["limits"])
    return _bounded(pond.table_join(*both, on="key", left_time="change_time", right_time=_time("since")))


def lookup_join(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join each event with its key's rate as of the event's time, from a table in files."""
    table = ParquetTable(unquote(urlparse(inputs["tiers"].inputFiles()[0]).path).rpartition("/")[0])
    joined = pond.lookup_join(
        inputs["events"], table, on="key", left_time=_time(), right_time="since", columns=["rate"], how="left"
    )
    return joined.select("key", F.col("at").alias("timestamp"), "amount", "rate")


def feed_aggregate(pond: Millpond, inputs: Inputs, scale: Scale) -> DataFrame:
    """Sum accounts and amounts per segment: what a change replaces or deletes is taken out of its group."""
    calls = {"value": aggregates.count(), "total": aggregates.sum("amount")}
    found = pond.aggregate(inputs["accounts"], calls, by="segment", key="key", op="op", order="at", time=_time())
    return found.select(F.col("segment").alias("key"), *calls, _millis("change_time", "timestamp"))


class _Times(TypedDict):
    left_time: Column
    right_time: Column


def _times() -> _Times:
    """Return the arguments that name the times of the two sides for verbs."""
    return {"left_time": _time(), "right_time": _time("since")}


def _both(inputs: Inputs) -> tuple[DataFrame, DataFrame]:
    """Return events and rates, as the sides of a join."""
    return inputs["events"], _since(inputs["rates"])


def _three(inputs: Inputs) -> dict[str, DataFrame]:
    return {name: inputs[name].withColumn("at", _time()) for name in ("events", "rates", "limits")}


def _bounded(joined: DataFrame) -> DataFrame:
    return joined.select("key", _millis("change_time", "timestamp"), "amount", "rate", "bound")


def _time(column: str = "at") -> Column:
    return F.timestamp_millis(column)


def _millis(column: str, name: str) -> Column:
    return F.unix_millis(column).alias(name)


def _since(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("at", "since")


def _in_windows(pond: Millpond, rows: DataFrame, calls: Mapping[str, AggregateCall], scale: Scale) -> DataFrame:
    windows = TimeWindows(scale.window)
    found = pond.aggregate(rows, calls, by="key", time=_time(), window=windows, emit="final")
    return found.select("key", *_bounds(), *calls)


def _in_sessions(pond: Millpond, rows: DataFrame, calls: Mapping[str, AggregateCall], scale: Scale) -> DataFrame:
    """Return the verb's sessions end a gap after their last row."""
    windows = SessionWindows(scale.gap)
    found = pond.aggregate(rows, calls, by="key", time=_time(), window=windows, emit="final")
    return found.select("key", *_bounds(scale.gap), *calls)


def _bounds(earlier: int = 0) -> tuple[Column, Column]:
    """Start and end of a window, the end so many milliseconds earlier."""
    return _millis("window.start", "window_start"), (F.unix_millis("window.end") - earlier).alias("window_end")


def _changes(joined: DataFrame) -> DataFrame:
    return joined.select("key", _millis("change_time", "timestamp"), "amount", "rate")


def _latest_of_both(joined: DataFrame) -> DataFrame:
    return joined.select("key", F.greatest("at", "since").alias("timestamp"), "amount", "rate")

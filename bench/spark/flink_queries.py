"""The workloads in Flink SQL.

Rule of this module: a query is written as somebody would write it who wants the most of Flink, and gives the columns
that Millpond gives; the times of windows are Flink's timestamps. A topic is a stream of rows: where its rows are
updates of a table, the query keeps the latest of each key.
"""

from millpond.bench.flink.queries import FlinkQuery, Table, interval
from millpond.bench.spark.shapes import EVENT, ORDER, RATE, Scale


def count(scale: Scale) -> FlinkQuery:
    """Count events per key, without event time, of which this has no use."""
    sql = "SELECT `key`, COUNT(*) AS `value` FROM events GROUP BY `key`"
    return FlinkQuery(sql, (Table.of("events", EVENT),), is_table=True)


def temporal_join(scale: Scale) -> FlinkQuery:
    """Join each event with its key's rate as of the event's time."""
    rates = _timed("rates", RATE, "PRIMARY KEY (`key`) NOT ENFORCED")
    sql = (
        "SELECT e.`key`, e.`at` AS `timestamp`, e.amount, r.rate FROM events AS e "
        "LEFT JOIN rates FOR SYSTEM_TIME AS OF e.`time` AS r ON e.`key` = r.`key`"
    )
    return FlinkQuery(sql, (_timed("events", EVENT), rates))


def table_join(scale: Scale) -> FlinkQuery:
    """Join two tables, each of which keeps the latest row of a key by its time."""
    sql = (
        "SELECT e.`key`, GREATEST(e.`at`, r.`at`) AS `timestamp`, e.amount, r.rate "
        f"FROM {_latest('events')} AS e JOIN {_latest('rates')} AS r ON e.`key` = r.`key`"
    )
    return FlinkQuery(sql, (_timed("events", EVENT), _timed("rates", RATE)), is_table=True)


def stream_join(scale: Scale) -> FlinkQuery:
    """Find the pairs of rows of two streams that are close in time."""
    return _interval_join(scale, "JOIN")


def stream_join_left(scale: Scale) -> FlinkQuery:
    """Find the same, and the events that find nobody."""
    return _interval_join(scale, "LEFT JOIN")


def window(scale: Scale) -> FlinkQuery:
    """Count events per key and tumbling window, once the window is closed."""
    return _counted_in(f"TUMBLE(TABLE events, DESCRIPTOR(`time`), {interval(scale.window)})")


def session(scale: Scale) -> FlinkQuery:
    """Count events per key and closed session; Flink's end a gap after their last row."""
    windows = f"SESSION(TABLE events PARTITION BY `key`, DESCRIPTOR(`time`), {interval(scale.gap)})"
    return _counted_in(windows, f" - {interval(scale.gap)}")


def foreign_key(scale: Scale) -> FlinkQuery:
    """Join each order with its customer's rate."""
    sql = (
        "SELECT o.`key`, GREATEST(o.`at`, c.`at`) AS `timestamp`, o.amount, c.rate "
        f"FROM {_latest('orders')} AS o JOIN {_latest('customers')} AS c ON o.customer = c.`key`"
    )
    return FlinkQuery(sql, (_timed("orders", ORDER), _timed("customers", RATE)), is_table=True)


def _timed(topic: str, schema: str, *parts: str) -> Table:
    """Return the table of a topic with the event time of its rows, whose watermark no row is behind."""
    time = "`time` AS TO_TIMESTAMP_LTZ(`at`, 3)", "WATERMARK FOR `time` AS `time`"
    return Table.of(topic, schema, *time, *parts)


def _latest(topic: str) -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY `time` DESC) AS place FROM {topic}"
    return f"(SELECT * FROM ({numbered}) WHERE place = 1)"


def _interval_join(scale: Scale, join: str) -> FlinkQuery:
    reach = interval(scale.reach)
    sql = (
        "SELECT e.`key`, COALESCE(GREATEST(e.`at`, r.`at`), e.`at`) AS `timestamp`, e.amount, r.rate "
        f"FROM events AS e {join} rates AS r ON e.`key` = r.`key` "
        f"AND r.`time` BETWEEN e.`time` - {reach} AND e.`time` + {reach}"
    )
    return FlinkQuery(sql, (_timed("events", EVENT), _timed("rates", RATE)))


def _counted_in(windows: str, earlier: str = "") -> FlinkQuery:
    sql = (
        f"SELECT `key`, window_start, window_end{earlier} AS window_end, COUNT(*) AS `value` FROM TABLE({windows}) "
        "GROUP BY `key`, window_start, window_end"
    )
    return FlinkQuery(sql, (_timed("events", EVENT),))

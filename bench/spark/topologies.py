"""The topologies that Millpond runs for each workload, in the words of Kafka Streams."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.bench.spark.shapes import CARRIED, COUNTED, COUNTED_IN_WINDOW, HISTORY, JOINED, KEYED, Scale
from millpond.processors import (
    Consumed,
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Order,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

pc: Any = _compute


def count(scale: Scale, *, headers: bool = False, order: Order = Order.TIME) -> Topology:
    """Count events per key; as in Spark's update mode, one row per key and micro-batch comes out."""
    builder = StreamsBuilder(order=order)
    counts = _events(builder, headers=headers).group_by_key().count(Materialized("counts").with_caching())
    counts.to("out", Produced(schema=_carrying(COUNTED, headers)))
    return builder.build()


def temporal_join(scale: Scale, *, order: Order = Order.TIME) -> Topology:
    """Join each event with its key's rate as of the event's time."""
    builder = StreamsBuilder(order=order)
    joined = _events(builder).left_join(_versioned_rates(builder), _joined_columns, vectorized=True)
    joined.to("out", Produced(schema=JOINED))
    return builder.build()


def table_join(scale: Scale) -> Topology:
    """Join two versioned tables; a row for each change of either comes out as soon as both have the key."""
    builder = StreamsBuilder()
    amounts = builder.table(
        "events",
        Consumed("string", "int64", timestamp="at", value="amount"),
        Materialized.versioned("amounts", history_retention=HISTORY),
    )
    joined = amounts.join(_versioned_rates(builder), _joined_columns, vectorized=True)
    joined.to("out", Produced(schema=JOINED))
    return builder.build()


def stream_join(scale: Scale) -> Topology:
    """Return the pairs of rows of two streams that are close in time."""
    builder = StreamsBuilder()
    windows = JoinWindows.of(scale.reach)
    joined = _events(builder).join(_rates(builder), _joined_columns, windows=windows, vectorized=True)
    joined.to("out", Produced(schema=JOINED))
    return builder.build()


def stream_join_left(scale: Scale) -> Topology:
    """Join the two streams, and keep events that find no rate, once their time is over."""
    builder = StreamsBuilder()
    windows = JoinWindows.of(scale.reach)
    joined = _events(builder).left_join(_rates(builder), _joined_columns, windows=windows, vectorized=True)
    joined.to("out", Produced(schema=JOINED))
    return builder.build()


def window(scale: Scale, *, order: Order = Order.TIME) -> Topology:
    """Count events per key and tumbling window, once the window is closed."""
    builder = StreamsBuilder(order=order)
    windowed = _events(builder).group_by_key().windowed_by(TimeWindows(scale.window))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out", Produced(schema=COUNTED_IN_WINDOW))
    return builder.build()


def session(scale: Scale) -> Topology:
    """Count events per key and session, once the session is over."""
    builder = StreamsBuilder()
    windowed = _events(builder).group_by_key().windowed_by(SessionWindows(scale.gap))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out", Produced(schema=COUNTED_IN_WINDOW))
    return builder.build()


def foreign_key(scale: Scale) -> Topology:
    """Join each order with its customer's rate; a row comes out for each change of either."""
    builder = StreamsBuilder()
    orders = builder.table(
        "orders", Consumed("string", "struct<customer:string,amount:long>", timestamp="at"), Materialized("orders")
    )
    customers = builder.table(
        "customers", Consumed("string", "float64", timestamp="at", value="rate"), Materialized("customers")
    )
    joined = orders.join(customers, _joined_orders, foreign_key=_customers_of, vectorized=True)
    joined.to("out", Produced(schema=JOINED))
    return builder.build()


def exchange(scale: Scale, *, headers: bool = False) -> Topology:
    """Send every event to the task of its key, which keeps nothing."""
    builder = StreamsBuilder()
    _events(builder, headers=headers).repartition().to("out", Produced(schema=_carrying(KEYED, headers)))
    return builder.build()


def _events(builder: StreamsBuilder, *, headers: bool = False) -> KStream:
    column = "headers" if headers else None
    return builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount", headers=column))


def _carrying(schema: str, headers: bool) -> str:
    """Return the columns of a sink, and the headers if there are any."""
    return f"{schema}, {CARRIED}" if headers else schema


def _rates(builder: StreamsBuilder) -> KStream:
    return builder.stream("rates", Consumed("string", "float64", timestamp="at", value="rate"))


def _versioned_rates(builder: StreamsBuilder) -> KTable:
    return builder.table(
        "rates",
        Consumed("string", "float64", timestamp="at", value="rate"),
        Materialized.versioned("rates", history_retention=HISTORY),
    )


def _joined_columns(amounts: Any, rates: Any) -> Any:
    return pa.StructArray.from_arrays([amounts, rates], ["amount", "rate"])


def _customers_of(orders: Any) -> Any:
    return pc.struct_field(orders, "customer")


def _joined_orders(orders: Any, rates: Any) -> Any:
    return _joined_columns(pc.struct_field(orders, "amount"), rates)

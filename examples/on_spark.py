"""The as-of join of ``as_of_join.py`` on Spark, here over static DataFrames; streaming ones are used in the same way.

It needs Java 17 or later and ``pip install 'millpond[spark]'``. It prints::

    apple 4500 4.5
    apple 6000 6.0
"""

import tempfile
from datetime import timedelta

from pyspark.sql import SparkSession

from millpond.adapters.spark import SparkStreams, configure
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder


def main() -> None:
    builder = StreamsBuilder()
    prices = builder.table(
        "prices",
        Consumed("string", "float64"),
        Materialized.versioned("prices", history_retention=timedelta(hours=1)),
    )
    orders = builder.stream("orders", Consumed("string", "int64"))
    orders.join(prices, lambda pieces, price: pieces * price).to(
        "amounts", Produced(schema="key string, value double, timestamp long", value_serde="float64")
    )

    spark = (
        configure(SparkSession.builder.master("local[1]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 1)
        .getOrCreate()
    )
    prices_df = spark.createDataFrame(
        [("apple", 1.0, 1_000), ("apple", 1.5, 3_000), ("apple", 2.0, 5_000)],
        "key string, value double, timestamp long",
    )
    orders_df = spark.createDataFrame(
        [("apple", 3, 4_500), ("apple", 3, 6_000)], "key string, value long, timestamp long"
    )
    with tempfile.TemporaryDirectory() as state_dir:
        streams = SparkStreams(builder.build(), application_id="shop", state_dir=state_dir, backend="lmdb")
        amounts = streams.transform({"prices": prices_df, "orders": orders_df})
        for row in amounts.orderBy("timestamp").collect():
            print(row.key, row.timestamp, row.value)
    spark.stop()


if __name__ == "__main__":
    main()

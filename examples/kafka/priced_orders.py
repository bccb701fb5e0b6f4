"""With a verb on DataFrames: each order with the price that was valid when it was made, although both may arrive late.

Its headers come along. A price's tombstone ends the price: orders after it have none. README.md says how to run it.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, configure

ORDER = (
    "CAST(key AS STRING) AS id",
    "from_json(CAST(value AS STRING), 'product STRING, pieces INT') AS made",
    "timestamp AS at",
    "headers",
)
PRICE = (
    "CAST(key AS STRING) AS product",
    "from_json(CAST(value AS STRING), 'price DECIMAL(10, 2)').price AS price",
    "timestamp AS since",
    "IF(value IS NULL, 'delete', 'upsert') AS op",
)
RESULT = "to_json(struct(product, pieces, price, price * pieces AS amount, unix_millis(at) AS ordered)) AS value"


def read(spark: SparkSession, broker: str, topic: str) -> DataFrame:
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    return kafka.option("startingOffsets", "earliest").option("includeHeaders", True).load()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", help="such as localhost:9092")
    parser.add_argument("directory", help="for the state and the checkpoint")
    for topic in ("orders", "prices", "priced"):
        parser.add_argument(f"--{topic}", default=topic, help="the topic's name")
    given = parser.parse_args()

    spark = configure(SparkSession.builder).getOrCreate()
    orders = read(spark, given.broker, given.orders).selectExpr(*ORDER).select("id", "made.*", "at", "headers")
    prices = read(spark, given.broker, given.prices).selectExpr(*PRICE)
    pond = Millpond(application_id="priced-orders", state_dir=f"{given.directory}/state")
    priced = pond.asof_join(
        orders, prices, on="product", left_time="at", right_time="since", right_op="op", history="1 day", how="left"
    )
    sink = priced.selectExpr("id AS key", RESULT, "headers").writeStream.format("kafka")
    sink = sink.option("kafka.bootstrap.servers", given.broker).option("topic", given.priced)
    sink = sink.option("checkpointLocation", f"{given.directory}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination()  # without the trigger, the job goes on


if __name__ == "__main__":
    main()

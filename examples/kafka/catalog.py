"""A catalog with the vocabulary of Kafka Streams: the goods on sale, their prices, and the pieces ordered.

The tombstone of a price takes the product out of the catalog, with a tombstone. Large orders go to another topic, from
the same query. README.md says how to run it.
"""

import argparse
import json

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import FormatOutput, SparkStreams, configure
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology

RECORD = "key string, value string, headers array<struct<key string, value binary>>"
NUMBER = "named_struct('key', 'sequence', 'value', CAST(CAST(sequence AS STRING) AS BINARY))"


def topology() -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="json")
    source = Consumed("string", "json", headers="headers")
    orders, prices = builder.stream("orders", source), builder.table("prices", source, Materialized("prices"))
    large = orders.filter(lambda _, order: order["pieces"] >= 10)
    large.map_values(json.dumps).to("large-orders", Produced(schema=RECORD))
    by_product = orders.group_by(lambda _, order: order["product"])
    ordered = by_product.aggregate(int, lambda _, order, pieces: pieces + order["pieces"], Materialized("ordered"))
    catalog = prices.left_join(ordered, lambda price, pieces: json.dumps({**price, "ordered": pieces or 0}))
    catalog.to_stream().to("catalog", Produced(schema=f"{RECORD}, sequence bigint"))
    return builder.build()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", help="such as localhost:9092")
    parser.add_argument("directory", help="for the state and the checkpoint")
    for topic in ("orders", "prices", "catalog", "large-orders"):
        parser.add_argument(f"--{topic}", default=topic, help="the topic's name")
    given = parser.parse_args()
    broker = {"kafka.bootstrap.servers": given.broker}

    def write_numbered(rows: DataFrame, batch_id: int) -> None:
        """Write each change with its number in a header: a repeated micro-batch has the same numbers again."""
        numbered = rows.selectExpr("key", "value", f"array_append(coalesce(headers, array()), {NUMBER}) AS headers")
        numbered.write.format("kafka").options(**broker, topic=given.catalog).save()

    spark = configure(SparkSession.builder).getOrCreate()
    kafka = spark.readStream.format("kafka").options(**broker, startingOffsets="earliest", includeHeaders=True)
    inputs = {topic: kafka.option("subscribe", getattr(given, topic)).load() for topic in ("orders", "prices")}
    large = FormatOutput("kafka", {**broker, "topic": given.large_orders})
    SparkStreams(topology(), application_id="catalog", state_dir=f"{given.directory}/state").start(
        inputs,
        sinks={"catalog": write_numbered, "large-orders": large},
        checkpoint_location=f"{given.directory}/checkpoint",
        trigger={"availableNow": True},  # without the trigger, the job goes on
    ).awaitTermination()


if __name__ == "__main__":
    main()

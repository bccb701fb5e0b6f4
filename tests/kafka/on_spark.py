"""Topics as DataFrames, and DataFrames into topics."""

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import configure
from tests.kafka.jars import connector_jars

SINK: Final = "key string, value string"
"""The columns that Spark writes into a topic."""


def session() -> SparkSession:
    """Return a session that has the connector."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        configure(SparkSession.builder.master("local[2, 4]"))
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def read_topic(spark: SparkSession, broker: str, topic: str, **options: object) -> DataFrame:
    """Return a topic from its beginning."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.option("startingOffsets", "earliest").option("subscribe", topic).load()


def write_topic(rows: DataFrame, broker: str, topic: str, checkpoint: Path) -> None:
    """Write what there is now, and wait for the end."""
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

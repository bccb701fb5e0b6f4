"""Spark takes the same text for lengths of time."""

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from millpond.stores.encoding.times import to_micros

pytestmark = pytest.mark.spark

TEXTS = (
    "5 minutes",
    "1 hour 30 minutes",
    "INTERVAL 5 MINUTES",
    "1 week -2 days",
    "- 5 minutes",
    "1.5 seconds",
    "-.000001 seconds",
    "5. seconds",
    "1 day 2 day",
    "250 millisecond 1 microseconds",
)


def test_text_is_as_long_as_spark_says(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(text,) for text in TEXTS], "text string")
    # Spark adds the parts of an interval to a time, where a day without a time zone is 24 hours.
    lengths = rows.selectExpr(
        "timestamp_ntz'2000-01-01' + cast(text as interval) - timestamp_ntz'2000-01-01' as length"
    )
    assert [row.length for row in lengths.collect()] == [timedelta(microseconds=to_micros(text)) for text in TEXTS]

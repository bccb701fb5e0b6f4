"""The README's example, as it is printed there, on Spark."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()

pytestmark = pytest.mark.spark


def test_the_readmes_example_gives_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    example, on_spark = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(example, "README.md", "exec"), names)
    names["prices_df"] = stream(spark, tmp_path / "prices", [(1_000, 1.0), (5_000, 2.0), (3_000, 1.5)], "double")
    names["orders_df"] = stream(spark, tmp_path / "orders", [(6_000, 3), (4_000, 3), (4_500, 3)], "long")
    here = re.sub(r'"(state|checkpoint|amounts)"', rf'"{tmp_path}/\1"', on_spark)
    exec(compile(here, "README.md", "exec"), names)
    names["query"].processAllAvailable()
    names["query"].stop()
    rows = spark.read.parquet(str(tmp_path / "amounts")).selectExpr("key", "value", "unix_millis(timestamp)").collect()
    assert sorted(map(tuple, rows)) == [("apple", 4.5, 4_000), ("apple", 4.5, 4_500), ("apple", 6.0, 6_000)]


def stream(spark: SparkSession, directory: Path, records: list[tuple[int, Any]], value: str) -> DataFrame:
    """Records with the key ``apple`` in this order, as a file stream."""
    rows = [("apple", value, timestamp) for timestamp, value in records]
    schema = f"key string, value {value}, timestamp long"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(directory))
    return spark.readStream.schema(schema).parquet(str(directory))

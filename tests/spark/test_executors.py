"""An executor is lost: the query goes on, and what it had is restored once."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.apart import run_apart
from tests.spark.executor_job import BATCHES, KEYS, KILLED_AFTER

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOB = Path(__file__).with_name("executor_job.py")


def test_a_lost_executor_costs_restores_in_two_micro_batches_at_most(spark: SparkSession, tmp_path: Path) -> None:
    assert run_apart(tmp_path / "log", str(JOB), str(tmp_path)) == 0, (tmp_path / "log").read_text()[-5000:]
    found = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    restored = [batch for batch, full in found if full and batch >= KILLED_AFTER]
    assert restored, "the killed executor had no task"
    assert len(restored) <= 2
    assert max(restored) <= KILLED_AFTER + 3
    rows = spark.read.schema("key long, value long").parquet(str(tmp_path / "out"))
    newest = rows.groupBy("key").agg(F.max("value").alias("value"), F.count("*").alias("updates"))
    counted = newest.groupBy("value", "updates").count().collect()
    often = KEYS // 50
    assert sorted(map(tuple, counted)) == [(1, 1, KEYS - often), (BATCHES, BATCHES, often)]

"""``millpond bench latency`` on Spark: rows come by the clock, and each has its latency."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.bench.latency.fixed_rate import FixedRate
from millpond.bench.latency.run import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_rows_come_at_the_rate_and_each_has_its_latency(spark: SparkSession, tmp_path: Path) -> None:
    how: Any = {"keys": 20, "backend": "memory", "contenders": ["verbs"], "directory": tmp_path}
    contest = FixedRate("temporal-join", 100, 2, warm_up=1, **how)
    found = run(contest, lambda: spark)
    assert (found.failed, found.behind) == ({}, {})
    kept = found.kept["verbs"]
    assert kept.rows == 200
    assert 0 < kept.waits["p50"] <= kept.waits["p99"] <= kept.waits["max"]
    assert kept.lag.half > 0
    assert sum(batch.count for batch in kept.batches) > 0

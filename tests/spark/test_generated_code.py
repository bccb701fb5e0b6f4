"""The code that Spark generates: once for a query, and not for each micro-batch."""

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates

pytestmark = pytest.mark.spark


@pytest.mark.first
def test_no_micro_batch_has_code_compiled_that_those_before_it_have_not(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema("key string, at timestamp").json(str(tmp_path / "in"))
    pond = Millpond(application_id="counts", state_dir=f"{tmp_path}/state", partitions=2, backend="lmdb")
    calls = {"rows": aggregates.count()}
    counts = pond.aggregate(rows, calls, by="key", time="at", window=TimeWindows("1 hour"))
    metrics = cast(Any, spark)._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled = []
    for number in range(4):
        (tmp_path / "in" / f"{number}.json").write_text('{"key": "a", "at": "2024-01-01 10:00:00"}')
        written = counts.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint")
        written.trigger(availableNow=True).start().awaitTermination()
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert compiled[0] > 0
    assert compiled[1:] == [compiled[1]] * 3

"""Functions of a user's own on Spark: they reach the workers, go on after restarts, and fail with what is wrong."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import SparkSession

from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond
from millpond.errors import StateConflictError
from millpond.processors import SessionWindows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import UserAggregate

pytestmark = pytest.mark.spark

FACTOR = 10
DDL = "shop string, at timestamp, v int, w double"


def weighed(**changed: Any) -> UserAggregate:
    """Return a sum of products; the factor is a name of this module, which workers do not import."""
    factor = FACTOR
    given: dict[str, Any] = {
        "name": "weighed",
        "zero": lambda: [0, 0.0],
        "update": lambda state, v, w: [state[0] + 1, state[1] + factor * v * w],
        "merge": lambda state, other: [state[0] + other[0], state[1] + other[1]],
        "finish": lambda state: {"n": state[0], "sum": state[1]},
        "type": pa.struct([("n", pa.int32()), ("sum", pa.float64())]),
    }
    return UserAggregate(**{**given, **changed})


class Job:
    """A stream that is started again for each file."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.checkpoint, self.state = str(directory / "checkpoint"), str(directory / "state")

    def arrive(self, *rows: tuple[str | None, int, int | None, float]) -> None:
        frame = self._spark.createDataFrame(rows, "shop string, second int, v int, w double")
        frame = frame.selectExpr("shop", "timestamp_seconds(1700000000 + second) at", "v", "w")
        frame.coalesce(1).write.mode("append").parquet(str(self._directory / "in"))

    def run(self, calls: dict[str, Any], **said: Any) -> list[Any]:
        rows = self._spark.readStream.schema(DDL).parquet(str(self._directory / "in"))
        pond = Millpond(application_id="own", state_dir=self.state, partitions=2, backend="lmdb")
        made = pond.aggregate(rows, calls, by="shop", time="at", name="own", **said)
        output = made.writeStream.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        out = str(self._directory / "out")
        output.start(out).awaitTermination()
        found = self._spark.read.schema(made.schema).parquet(out)
        return found.orderBy("sequence").collect()


def test_a_function_goes_on_with_its_state_until_it_has_another_version(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.arrive(("a", 1, 1, 0.5), ("a", 2, None, 1.0), ("b", 3, 2, 1.0), (None, 4, 3, 1.0))
    calls = {"own": weighed()("v", "w", where="w > 0"), "n": aggregates.count()}
    job.run(calls)
    job.arrive(("a", 5, 4, 1.5), ("a", 6, 100, 0.0))
    finer = weighed(finish=lambda state: {"n": -state[0], "sum": state[1] / state[0]})
    newest = {row.shop: row.asDict() for row in job.run({**calls, "own": finer("v", "w", where="w > 0")})}
    assert (newest["a"]["n"], tuple(newest["a"]["own"])) == (4, (-2, 32.5))
    (view,) = [StateInspector.at(job.checkpoint, job.state).store("aggregate")]
    kept = {row["key"]["shop"]: row["value"] for batch in view.rows() for row in batch.to_pylist()}
    assert {shop: value["own"] for shop, value in kept.items()} == {
        "a": "[2, 65.0]",
        "b": "[1, 20.0]",
        None: "[1, 30.0]",
    }
    with pytest.raises(
        StateConflictError, match=r"(?s)'own' was weighed\('v', 'w', where=.* version=1\) and is .*own_2"
    ):
        job.run({**calls, "own": weighed(version=2)("v", "w", where="w > 0")})


def test_sessions_merge_and_a_failing_function_is_told_with_verb_result_and_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    window = SessionWindows("10 seconds", grace="1 minute")
    for second in (0, 16, 8):
        job.arrive(("a", second, second, 1.0))
        (*_, last) = job.run({"own": weighed()("v", "w")}, window=window)
    assert (last.own.n, last.own.sum, last.op) == (3, 240.0, "upsert")
    job.arrive(("b", 30, 7, 1.0))
    picky = weighed(update=lambda state, v, w: [state[0], 1 / (v - 7)])
    with pytest.raises((StreamingQueryException, PythonException)) as failed:
        job.run({"own": picky("v", "w")}, window=window)
    for text in ("aggregate 'own': 'own', weighed(v, w): update of 'weighed' raised ZeroDivisionError", "shop='b'"):
        assert text in str(failed.value)

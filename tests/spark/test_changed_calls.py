"""The calls of ``Millpond.aggregate`` change at restarts: what a refusal says to write is what goes on."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Evolution, Millpond, register_state_source
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.verbs.aggregates import avg, count, last, sum
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.history import History

pytestmark = pytest.mark.spark

DDL = "shop string, at timestamp, v int"


class Job:
    """A job whose query is started again with other calls."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.state, self.checkpoint = str(directory / "state"), str(directory / "checkpoint")
        self.name = "totals"
        self.pond: Millpond | None = None

    def built(
        self, calls: dict[str, Any], partitions: int | None = 2, *, declared: bool = True, **said: Any
    ) -> DataFrame:
        renamed = {"totals": self.name} if self.name != "totals" else {}
        evolution = Evolution(self.checkpoint, renamed=renamed) if declared and (said or renamed) else None
        self.pond = Millpond(
            application_id="app", state_dir=self.state, partitions=partitions, backend="lmdb", evolution=evolution
        )
        return self.pond.aggregate(self.stream, calls, by="shop", time="at", name=self.name, **said)

    @property
    def stream(self) -> DataFrame:
        return self._spark.readStream.schema(DDL).parquet(str(self._directory / "in"))

    @property
    def history(self) -> DataFrame:
        """All rows so far."""
        return self._spark.read.schema(DDL).parquet(str(self._directory / "in"))

    def arrive(self, *rows: tuple[str, int, int]) -> None:
        frame = self._spark.createDataFrame(rows, "shop string, second int, v int")
        frame = frame.selectExpr("shop", "timestamp_seconds(1700000000 + second) at", "v")
        frame.coalesce(1).write.mode("append").parquet(str(self._directory / "in"))

    def run(self, calls: dict[str, Any], *rows: tuple[str, int, int], **said: Any) -> dict[str, Any]:
        """Run one micro-batch with these rows; return the store after it."""
        if rows:
            self.arrive(*rows)
        output = self.built(calls, **said).writeStream.format("noop")
        output.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start().awaitTermination()
        assert self.pond is not None
        shown = self.pond.read_store(self.name, "aggregate", self.checkpoint).drop("change_time")
        return {row.shop: dict(zip(calls, row[1:], strict=True)) for row in shown.collect()}

    def looked_at(self) -> dict[str, Any]:
        """Return the same by the source, and without Spark."""
        places = {"checkpoint": self.checkpoint, "state_dir": self.state}
        register_state_source(self._spark)
        frame = self._spark.read.format("millpond").options(**places, store="aggregate").load()
        found = {row.key.shop: row.value.asDict() for row in frame.collect()}
        view = StateInspector.at(self.checkpoint, self.state).store("aggregate")
        assert found == {row["key"]["shop"]: row["value"] for batch in view.rows() for row in batch.to_pylist()}
        return found


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def test_calls_are_added_removed_renamed_and_reordered_with_other_partitions(job: Job) -> None:
    calls: dict[str, Any] = {"n": count(), "s": sum(F.col("v") * 2)}
    found = job.run(calls, ("a", 1, 1), ("a", 2, 2), ("b", 3, 5))
    assert found == job.looked_at() == {"a": {"n": 2, "s": 6}, "b": {"n": 1, "s": 10}}
    with pytest.raises(StateConflictError, match=r"\nwrite added=\['newest'\]: what is added begins empty \["):
        job.built({**calls, "newest": last("v")})
    with pytest.raises(StateConflictError, match=r"if 's' is called 'total' now: write renamed=\{'s': 'total'\}; or"):
        job.built({"n": count(), "total": sum(F.expr("v * 2"))})
    with pytest.raises(ConfigurationError, match="the verb 'totals': dropped names 'n', but calls has it"):
        job.built(calls, dropped=["n"])
    calls = {"total": sum(F.expr("v * 2")), "newest": last("v"), "big": last("v", where="v > 4")}
    said: dict[str, Any] = {"added": ["newest", "big"], "renamed": {"s": "total"}, "dropped": ["n"]}
    found = job.run(calls, ("a", 4, 4), ("c", 5, 7), partitions=3, **said)
    assert found == job.looked_at() == {
        "a": {"total": 14, "newest": 4, "big": None},
        "b": {"total": 10, "newest": None, "big": None},
        "c": {"total": 14, "newest": 7, "big": 7},
    }  # fmt: skip
    told = r"'big' was last\('v', ignore_nulls=False, where='v > 4'\) and is last\(.*, where='v > 5'\), which cannot"
    with pytest.raises(StateConflictError, match=told):
        job.built({**calls, "big": last("v", where="v > 5")}, partitions=None, **said)
    calls = {"newest": last("v"), "n": count(), "total": sum(F.expr("v * 2"))}
    found = job.run(calls, ("b", 6, 1), partitions=None, added=["n", "newest"], renamed={"s": "total"}, dropped=["big"])
    assert found == job.looked_at() == {
        "a": {"newest": 4, "n": 0, "total": 14},
        "b": {"newest": 1, "n": 1, "total": 12},
        "c": {"newest": 7, "n": 0, "total": 14},
    }  # fmt: skip
    zoned = {"late": "2023-11-14T22:13:27Z", "none": None}
    late = {**calls, "late": count(), "none": count()}
    with pytest.raises(ConfigurationError, match=r"'totals': added\['late'\] datetime.*has no time zone; write"):
        job.built(late, added={**zoned, "late": datetime(2023, 11, 14)})
    with pytest.raises(ConfigurationError, match="added is 'late'; give a list of names, such as \\['late'\\]"):
        job.built(late, added="late")
    found = job.run(late, ("b", 6, 1), ("b", 7, 1), partitions=None, added=zoned)
    assert found == job.looked_at()
    assert [found["b"][name] for name in ("n", "late", "none")] == [3, 1, 2]
    assert job.run(late, ("b", 6, 1), partitions=3)["b"]["late"] == 1
    history = History.of(Storage.from_uri(job.state), "app.totals", "totals")
    assert [record.generation for record in history.records] == [0, 1], "only other partitions are carried over"
    job.name = "sums"
    found = job.run(calls, ("c", 7, 1), partitions=None, dropped=["late", "none"])
    assert found == job.looked_at() == {
        "a": {"newest": 4, "n": 0, "total": 14},
        "b": {"newest": 1, "n": 4, "total": 18},
        "c": {"newest": 1, "n": 1, "total": 16},
    }  # fmt: skip


@pytest.mark.long
def test_a_result_gets_the_rows_so_far_once_the_checkpoint_is_declared(job: Job) -> None:
    job.run({"n": count()}, ("a", 1, 1), ("a", 2, 2), ("b", 3, 5))
    calls: dict[str, Any] = {"n": count(), "mean": avg("v"), "newest": last(F.col("v") * 2), "later": count()}
    rows, texts = job.history, job.history.withColumn("v", F.col("v").cast("string"))
    said: dict[str, Any] = {"added": {"mean": rows, "newest": rows, "later": None}}
    told = r"added\['mean'\] is a DataFrame .*; write Millpond\(..., evolution=Evolution\(checkpoint\)\), with the"
    with pytest.raises(StateConflictError, match=told):
        job.built(calls, declared=False, **said)
    with pytest.raises(
        ConfigurationError, match=r"has the arguments mean: string, .* have mean: int32, newest: int32; cast"
    ):
        job.built(calls, added={**said["added"], **dict.fromkeys(("mean", "newest"), texts)})
    with pytest.raises(ConfigurationError, match="is a streaming DataFrame; give a static one, with the rows so far"):
        job.built(calls, added={"mean": job.stream, "newest": None, "later": None})
    with pytest.raises(
        ConfigurationError, match="'mean', 'newest' different DataFrames; give all of them the same one"
    ):
        job.built(calls, added={"mean": job.history, "newest": job.history, "later": None})
    told = r"the verb has a ttl: .*; write added=\['mean', 'newest'\] and let them begin empty"
    with pytest.raises(ConfigurationError, match=told):
        job.built(calls, ttl="1 day", **said)
    job.built(calls, ttl="1 day", declared=False, added=["mean", "newest", "later"])
    found = job.run(calls, ("a", 4, 6), partitions=3, **said)
    assert found == job.looked_at() == {
        "a": {"n": 3, "mean": 3.0, "newest": 12, "later": 1},
        "b": {"n": 1, "mean": 5.0, "newest": 10, "later": 0},
    }  # fmt: skip
    assert job.run(calls, ("b", 5, 7), partitions=3, **said)["b"] == {"n": 2, "mean": 6.0, "newest": 14, "later": 1}


@pytest.mark.long
def test_as_long_as_there_are_no_rows_calls_may_become_any_others(job: Job) -> None:
    most = F.lit(2**63 - 1)
    with pytest.raises(StreamingQueryException, match="does not fit int64"):
        job.run({"n": count(), "s": sum(most)}, ("a", 1, 1), ("a", 2, 2))
    assert job.run({"s": sum(most.cast("decimal(38, 0)"))}) == {"a": {"s": 2**64 - 2}}
    with pytest.raises(StateConflictError, match=r"\nwrite added=\['n'\]: "):
        job.built({"n": count(), "s": sum(most.cast("decimal(38, 0)"))})
    assert job.looked_at() == {"a": {"s": 2**64 - 2}}


def test_another_function_or_column_of_the_same_name_is_refused_and_the_advice_works(job: Job) -> None:
    job.run({"n": count(), "s": sum("v")}, ("a", 1, 1))
    for file in Path(job.state, "app.totals").glob("*-calls-*"):
        file.unlink()  # as of an earlier build
    with pytest.raises(StateConflictError, match="start it with the calls that it had, and change them once a micro"):
        job.built({"n": count(), "s": avg("v")})
    job.run({"n": count(), "s": sum("v")}, ("a", 2, 2))
    told = (
        r"'s' was sum\('v'\) and is avg\('v'\), which .*\n"
        r"write \{'n': count\(\), 's_2': avg\('v'\)\}, added=\['s_2'\], dropped=\['s'\]: "
    )
    with pytest.raises(StateConflictError, match=told):
        job.built({"n": count(), "s": avg("v")})
    with pytest.raises(StateConflictError, match=r"'s' was sum\('v'\) and is sum\(F.expr\('\(v \* 2\)'\)\), which"):
        job.built({"n": count(), "s": sum(F.col("v") * 2)})
    found = job.run({"n": count(), "s_2": avg("v")}, ("a", 3, 6), added=["s_2"], dropped=["s"])
    assert found == {"a": {"n": 3, "s_2": 6.0}}

"""State of verbs that is edited, undone and erased while the query is stopped, and what the query then goes on with."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs.aggregates import count, sum
from tests.edit.test_erasing import bytes_found

pytestmark = pytest.mark.spark

PERSON = "ann of the mill pond"


class Job:
    """Three verbs in one query, two of them in one operator."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        self.pond: Any = None

    def rows(self) -> DataFrame:
        self.pond = Millpond(
            application_id="shop", state_dir=f"{self.place}/state", local_dir=f"{self.place}/local", partitions=2,
            backend="rocksdb",
        )  # fmt: skip
        read = self.spark.readStream.schema("k string, at timestamp, v int").parquet(f"{self.place}/in")
        newest = self.pond.latest(read, key="k", time="at", history="1 hour", name="newest")
        sums = self.pond.aggregate(newest.drop("op"), {"n": count(), "s": sum("v")}, by="k", time="at", name="sums")
        windows = self.pond.aggregate(
            read, {"n": count()}, by="k", time="at", window=TimeWindows("1 minute", grace="1 hour"), name="windows"
        )
        results: DataFrame = sums.select("k", "n").union(windows.select("k", "n"))
        return results

    def run(self, *rows: tuple[str, int, int]) -> None:
        frame = self.spark.createDataFrame(rows, "k string, second int, v int")
        frame = frame.selectExpr("k", "timestamp_seconds(1700000000 + second) at", "v")
        frame.coalesce(1).write.mode("append").parquet(f"{self.place}/in")
        output = self.rows().writeStream.format("noop").option("checkpointLocation", f"{self.place}/checkpoint")
        output.trigger(availableNow=True).start().awaitTermination()

    def shown(self, verb: str) -> dict[str, Any]:
        store = self.inspector.store("latest" if verb == "newest" else "aggregate", sink=verb)
        found = [row for batch in store.rows() for row in batch.to_pylist()]
        return {row["key"]["k"]: row["value"] for row in found}

    @property
    def inspector(self) -> StateInspector:
        return StateInspector.at(f"{self.place}/checkpoint", f"{self.place}/state")

    def editor(self) -> StateEditor:
        return StateEditor.at(f"{self.place}/checkpoint", f"{self.place}/state", by="ann")


@pytest.mark.slow
def test_verbs_go_on_with_what_was_edited_undone_and_erased(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.run((PERSON, 1, 10), ("bob", 2, 20))
    assert job.shown("sums") == {PERSON: {"n": 1, "s": 10}, "bob": {"n": 1, "s": 20}}
    with job.editor() as edits:
        at = datetime.fromtimestamp(1700000003, UTC)
        edits.put(
            "latest", [{"key": ["bob"], "value": {"at": at, "v": 50}, "valid_from": at}], ahead=True, sink="newest"
        )
        edits.delete("aggregate", {"k": "bob"}, sink="sums")
        edits.delete("aggregate", ["bob"], sink="windows", window_start=1699999980000)
        edits.put("aggregate", [{"key": ["bob"], "value": {"n": 7, "s": 7}, "timestamp": at}], sink="sums")
        assert {report.application_id for report in edits.commit()} == {"shop.newest", "shop.sums", "shop.windows"}
    assert job.shown("newest")["bob"]["v"] == 50
    assert job.shown("sums")["bob"] == {"n": 7, "s": 7}
    assert set(job.shown("windows")) == {PERSON}
    job.run(("bob", 4, 1), (PERSON, 5, 5))
    assert job.shown("newest")["bob"]["v"] == 1
    assert job.shown("sums") == {PERSON: {"n": 2, "s": 15}, "bob": {"n": 8, "s": 8}}
    assert job.shown("windows") == {PERSON: {"n": 2}, "bob": {"n": 1}}

    before = {verb: job.shown(verb) for verb in ("newest", "sums", "windows")}
    with job.editor() as edits:
        edits.delete("aggregate", ["bob"], sink="windows")
        edits.commit()
    job.editor().undo()
    assert before == {verb: job.shown(verb) for verb in before}

    places = tmp_path / "state", tmp_path / "checkpoint", tmp_path / "local"
    assert bytes_found(*places)
    report = erase(job.inspector, [[PERSON]], by="ann", local_dirs=[tmp_path / "local"])
    assert report.traces == ()
    assert bytes_found(*places) == []
    left = {verb: {key: row for key, row in rows.items() if key != PERSON} for verb, rows in before.items()}
    assert left == {verb: job.shown(verb) for verb in before}
    job.run(("carol", 6, 6))
    assert bytes_found(*places) == []
    assert {**left["windows"], "carol": {"n": 1}} == job.shown("windows")
    assert job.shown("newest")["bob"]["v"] == 1

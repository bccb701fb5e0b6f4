"""A clone with another application id runs beside its original, and a restored query takes its sinks with it."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.backup.backups import Backups
from millpond.adapters.backup.query_copy import QueryPlace, copy_query
from millpond.adapters.inspect import StateInspector
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.adapters.spark import Evolution, FileOutput, Millpond, SparkStreams, watch
from millpond.errors import ConfigurationError
from tests.spark.orders import expected_totals, random_events, rated_orders, read_files, totals, write_files
from tests.spark.test_shared_operators import LAST, Job, at, drawn, windows

pytestmark = [pytest.mark.spark, pytest.mark.long]

AVAILABLE = {"availableNow": True}


class Clone(Job):
    """A chain of verbs with state of its own, on the files of another one."""

    def __init__(self, original: Job, place: QueryPlace, application_id: str) -> None:
        super().__init__(original.spark, original.directory, original.chain)
        self.place, self.application_id = place, application_id
        self.checkpoint = place.checkpoint

    def pond(self, **options: Any) -> Millpond:
        given = {**self.options, **options}
        return Millpond(application_id=self.application_id, state_dir=self.place.state_dir, **given)


def started(job: Job, found: list[str]) -> StreamingQuery:
    """Return the query of a job, which adds what comes out of all that has been brought."""
    writer = job.rows(job.pond()).writeStream.foreachBatch(lambda rows, _: found.extend(map(str, rows.collect())))
    return writer.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start()


def contents(place: QueryPlace, batch: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return what all stores have after a micro-batch, by the name of the verb and the store."""
    views = StateInspector.at(place.checkpoint, place.state_dir).stores(batch)
    return {
        f"{view.sink} {view.name}": sorted((row for rows in view.rows() for row in rows.to_pylist()), key=str)
        for view in views
    }


def test_a_clone_with_another_application_id_runs_beside_its_original(spark: SparkSession, tmp_path: Path) -> None:
    original = Job(spark, tmp_path, windows)
    batches = drawn(Random(7))
    original.bring(*batches[0], 2)
    original.run()
    place = QueryPlace(original.checkpoint, f"{tmp_path}/state")
    into = QueryPlace.below(f"{tmp_path}/clone")
    with pytest.raises(ConfigurationError, match="is 'job', and that of the copy cannot be 'job'; give another"):
        copy_query(place, into, same=False, application_id="job")
    copy_query(place, into, same=False, application_id="other")
    assert contents(into) == contents(place) != {}
    clone = Clone(original, into, "other")
    found: dict[str, list[str]] = {"job": [], "other": []}
    listener = watch(spark, keep=f"{tmp_path}/progress")
    try:
        for orders, rates in batches[1:]:
            original.bring(orders, rates, 3)
            both = [started(original, found["job"]), started(clone, found["other"])]
            for query in both:
                query.awaitTermination()
            assert sorted(found["job"]) == sorted(found["other"])
        assert found["job"]
    finally:
        spark.streams.removeListener(listener)
    assert contents(into) == contents(place)
    applications = [{path.name for path in Path(one.state_dir).iterdir()} for one in (place, into)]
    assert applications[0] == {name.replace("other", "job") for name in applications[1]}
    assert applications[0].isdisjoint(applications[1])
    for one, application in ((place, "job."), (into, "other.")):
        seen = QueryMonitor(one.checkpoint, one.state_dir, f"{tmp_path}/progress").look()
        assert {operator.application.partition(".")[0] + "." for operator in seen.operators} == {application}
        assert {store.application.partition(".")[0] + "." for store in seen.stores} == {application}
        assert not seen.findings
    # A clone of the clone goes on with another number of partitions.
    again = QueryPlace.below(f"{tmp_path}/again")
    copy_query(into, again, same=False, application_id="third")
    assert contents(again) == contents(into)
    third = Clone(original, again, "third")
    third.options["partitions"] = 3
    original.bring([("a", at(2 * LAST), 9)], [("a", at(2 * LAST), 9.0)], 1)
    rows = third.run(evolution=Evolution(again.checkpoint))
    assert sorted(map(str, rows)) == sorted(map(str, clone.run())) == sorted(map(str, original.run())) != []


def test_a_query_of_several_sinks_is_restored_with_them_and_cloned_for_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A restored one replaces what it writes again; a clone would replace another query's files, and is refused."""
    events = random_events(3, 400)
    write_files(tmp_path / "in", events, 4)
    inputs = read_files(spark, tmp_path / "in")

    def run(place: QueryPlace, application_id: str, out: str = "out") -> list[tuple[Any, ...]]:
        summed: list[tuple[Any, ...]] = []
        streams = SparkStreams(
            rated_orders(), application_id=application_id, state_dir=place.state_dir, backend="memory"
        )
        sinks: Any = {
            "totals": lambda rows, _: summed.extend(map(tuple, rows.collect())),
            "rated": FileOutput(f"{tmp_path}/{out}"),
        }
        query = streams.start(inputs, sinks=sinks, checkpoint_location=place.checkpoint, trigger=AVAILABLE)
        query.awaitTermination()
        return summed

    original = QueryPlace.below(f"{tmp_path}/original")
    everything = run(original, "both")
    assert totals(everything) == expected_totals(events)
    backups = Backups.at(f"{tmp_path}/backups")
    backups.make(original, 0)
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    restored = QueryPlace.below(f"{tmp_path}/restored")
    backups.restore(restored)
    again = run(restored, "both")
    assert 0 < len(again) < len(everything)
    assert sorted(again) == sorted(everything[-len(again) :])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    clone = QueryPlace.below(f"{tmp_path}/clone")
    copy_query(original, clone, 0, same=False, application_id="other")
    with pytest.raises(Exception, match=r"has micro-batches of another query or sink"):
        run(clone, "other")
    assert sorted(run(clone, "other", "elsewhere")) == sorted(again)
    assert {path.name for path in (tmp_path / "elsewhere").glob("batch_id=*")} == {"batch_id=1"}

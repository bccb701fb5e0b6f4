"""Backups of a query that runs under load, whose process is killed at any moment, are the query at their commit."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.backup.backups import Backups
from millpond.adapters.backup.query_copy import QueryPlace, copy_query
from millpond.adapters.spark import Millpond
from millpond.processors.verbs import aggregates
from tests.spark.test_clones import contents

pytestmark = [pytest.mark.spark, pytest.mark.long]

KILLED, WHOLE, KEPT = 6, 3, 3
ROWS = 200


class Input:
    """A directory in which files appear, without a pause, until it is told to stop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = 0
        directory.mkdir()

    def bring(self) -> None:
        numbers = range(self.files * ROWS, (self.files + 1) * ROWS)
        keys = [f"key {number * 7919 % 300}" for number in numbers]
        times = pa.array([number * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
        hidden = self.directory / f".{self.files:05d}.parquet"
        pq.write_table(pa.table({"k": keys, "t": times, "v": list(numbers)}), hidden)
        os.utime(hidden, (1_000_000_000 + self.files,) * 2)
        hidden.rename(hidden.with_name(hidden.name[1:]))
        self.files += 1

    @contextmanager
    def arriving(self) -> Iterator[None]:
        done = Event()

        def bring() -> None:
            while not done.wait(0.1):
                self.bring()

        thread = Thread(target=bring)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def made(spark: SparkSession, inputs: Path, place: QueryPlace, application_id: str) -> DataFrame:
    """Return totals by key, and the latest total of each, in one operator."""
    pond = Millpond(application_id=application_id, state_dir=place.state_dir, partitions=2, backend="memory")
    rows = spark.readStream.schema("k string, t timestamp, v long")
    calls = {"n": aggregates.count(), "total": aggregates.sum("v")}
    sums = pond.aggregate(rows.parquet(str(inputs)), calls, by="k", time="t", name="sums")
    return pond.latest(sums, key="k", time="change_time", history="1 day", name="newest")


def catch_up(rows: DataFrame, place: QueryPlace) -> None:
    """Run a query over all that there is."""
    writer = rows.writeStream.format("noop").option("checkpointLocation", place.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def test_backups_under_load_whose_process_is_killed_are_the_query_at_their_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    drawn, inputs = random.Random(11), Input(tmp_path / "in")
    original, directory = QueryPlace.below(f"{tmp_path}/query"), f"{tmp_path}/backups"
    inputs.bring()
    writer = made(spark, inputs.directory, original, "job").writeStream.format("noop")
    query = writer.option("checkpointLocation", original.checkpoint).start()
    query.processAllAvailable()
    command = [sys.executable, "-m", "millpond", "state", "backup", original.checkpoint, directory]
    command += ["--state-dir", original.state_dir, "--keep", str(KEPT)]
    batches: set[int] = set()
    try:
        with inputs.arriving():
            assert subprocess.run(command, check=False).returncode == 0
            killed = 0
            for number in range(KILLED + WHOLE):
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                    before = set(os.listdir(directory))
                    while process.poll() is None and set(os.listdir(directory)) <= before:
                        time.sleep(0.002)
                    if number < KILLED:  # some of them within the copying, or the deleting of older ones
                        time.sleep(drawn.random() * 0.3)
                        process.kill()
                    said = process.communicate()[0]
                assert process.returncode in (0, -SIGKILL), said
                killed += process.returncode == -SIGKILL
                known = Backups.at(directory).all()
                assert known
                assert Backups.at(directory).damaged() == {}
                batches |= {one.copy.batch for one in known}
                newest = known[-1].copy
                assert contents(newest.place) == contents(original, newest.batch)
            clone = QueryPlace.below(f"{tmp_path}/clone")
            copied = copy_query(original, clone, same=False, application_id="clone")
            assert contents(clone) == contents(original, copied.batch)
        assert killed >= KILLED // 2
        assert len(batches) > 1, "it has gone on meanwhile"
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    kept = Backups.at(directory).all()
    assert len(kept) == KEPT == len(os.listdir(directory))
    oldest = QueryPlace.below(f"{tmp_path}/restored")
    Backups.at(directory).restore(oldest, kept[0].name)
    catch_up(made(spark, inputs.directory, oldest, "job"), oldest)
    catch_up(made(spark, inputs.directory, clone, "clone"), clone)
    assert present(oldest) == present(original) == present(clone)
    (totals,) = [rows for name, rows in contents(original).items() if name.startswith("sums ")]
    assert sum(row["value"]["n"] for row in totals) == inputs.files * ROWS


def present(place: QueryPlace) -> dict[str, list[object]]:
    """Return what stores have for each key now: which versions were before depends on what came in one micro-batch."""
    found = contents(place)
    return {name: [row for row in rows if row.get("valid_to") is None] for name, rows in found.items()}

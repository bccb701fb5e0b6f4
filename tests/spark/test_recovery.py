"""Deaths of anything at any time: the rows that come out are those of an undisturbed run, each once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from millpond.adapters.lmdb import LmdbBackend, LmdbSupplier
from millpond.adapters.spark import SparkStreams
from millpond.stores.backend.contract import Changes
from tests.spark.apart import kill_group, started
from tests.spark.orders import (
    expected_totals,
    random_events,
    rated_orders,
    read_files,
    totals,
    write_files,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RunStream = Callable[..., list[tuple[Any, ...]]]
JOB = Path(__file__).with_name("killable_job.py")


class MortalSupplier(LmdbSupplier):
    """LMDB whose process dies, or fails, right after some of its writes.

    Then the delta is written and the local copy has moved on, but Spark has committed nothing.
    """

    deaths: Path
    kill: bool

    def open(self, directory: Path) -> LmdbBackend:
        backend = super().open(directory)
        write = backend.write
        deaths, kill = self.deaths, self.kill

        def mortal(changes: Changes) -> None:
            write(changes)
            writes = len(list(deaths.iterdir()))
            (deaths / f"{writes}-{os.getpid()}-{time.monotonic_ns()}").touch()
            if writes in (1, 4, 5) and kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if writes in (1, 4, 5):
                raise RuntimeError("a task fails after its delta was written")

        backend.write = mortal  # type: ignore[method-assign]
        return backend


@pytest.mark.first
@pytest.mark.parametrize(
    "kill", [pytest.param(True, id="killed"), pytest.param(False, id="failed", marks=pytest.mark.long)]
)
def test_a_worker_that_ends_between_its_delta_and_the_commit_changes_nothing(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream, kill: bool
) -> None:
    events = random_events(5, 600)
    write_files(tmp_path / "in", events, 3)
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    supplier = MortalSupplier()
    object.__setattr__(supplier, "deaths", deaths)
    object.__setattr__(supplier, "kill", kill)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    streams = SparkStreams(rated_orders(), application_id="mortal", state_dir=str(tmp_path / "state"), backend=supplier)
    rows = run_stream(streams.transform(read_files(spark, tmp_path / "in"), sink="totals"))
    assert totals(rows) == expected_totals(events)
    assert len(list(deaths.iterdir())) > 8


class Job:
    """The job as a process of its own, on a directory."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.process = process

    def files(self, pattern: str) -> set[Path]:
        return set(self.directory.glob(pattern))

    def kill_when(self, pattern: str, more: int) -> bool:
        """Kill driver and JVM (``kill -9``) once ``more`` new files match; return False if the job ended before."""
        before = len(self.files(pattern))
        while self.process.poll() is None:
            if len(self.files(pattern)) >= before + more:
                kill_group(self.process)
                return True
            time.sleep(0.002)
        return False

    def finish(self) -> None:
        assert self.process.wait(timeout=240) == 0, (self.directory / "log").read_text()[-5000:]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    with ExitStack() as stack:
        yield lambda backend: Job(
            tmp_path, stack.enter_context(started(tmp_path / "log", str(JOB), str(tmp_path), backend))
        )


@pytest.mark.long
def test_a_job_that_is_killed_again_and_again_gives_what_an_undisturbed_one_gives(
    spark: SparkSession, tmp_path: Path, start: Callable[[str], Job]
) -> None:
    events = random_events(6, 800)
    write_files(tmp_path / "in", events, 5)
    deltas, commits = "state/**/*.parquet", "checkpoint/commits/[0-9]*"
    assert start("rocksdb").kill_when(deltas, 1)
    assert start("rocksdb").kill_when(deltas, 7)
    assert start("lmdb").kill_when(commits, 1)
    start("lmdb").finish()
    schema = "key string, orders long, amount long, timestamp timestamp"
    rows = spark.read.schema(schema).parquet(str(tmp_path / "out"))
    assert totals(tuple(row) for row in rows.collect()) == expected_totals(events)

"""The demo on Spark: killed at any moment and started again, or moved to another backend, its outputs stay the same.

Every run is a process of its own, started as a user would; its exit code says whether all rows equal the truth.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

BATCHES = 4
SINKS = {
    "flights_weather": ["sched_dep_ms", "carrier", "flight", "origin", "dest"],
    "carrier_counts": ["count", "carrier"],
}
PATIENCE = 300
"""Seconds for one run."""
ATTEMPTS = 3
"""A kill may come just too late for its moment; then the next run is killed."""


@dataclass(frozen=True)
class Demo:
    """A directory that runs of the demo share, and the Python that runs them."""

    out: Path
    python: str = sys.executable

    def start(self, backend: str, batches: int = BATCHES) -> subprocess.Popen[str]:
        options = ["--backend", backend, "--out", str(self.out), "--batch-rows", "3000", "--max-batches", str(batches)]
        script = "from millpond.cli import main; main()"
        return subprocess.Popen(
            [self.python, "-c", script, "demo", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, backend: str, batches: int = BATCHES) -> str:
        """Run to the end; everything must be right. Returns what it said."""
        process = self.start(backend, batches)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        return said

    def rows(self) -> dict[str, list[dict[str, object]]]:
        """Return all rows of every output, as a reader sees them that knows nothing of Spark's logs."""
        found = {}
        for sink, order in SINKS.items():
            table = pa.concat_tables(map(pyarrow.parquet.read_table, (self.out / sink).glob("*.parquet")))
            found[sink] = table.sort_by([(column, "ascending") for column in order]).to_pylist()
        return found

    @property
    def prepared(self) -> bool:
        return any((self.out / "checkpoint" / ".input-unfinished").glob("waiting/*/*.parquet"))

    @property
    def deltas(self) -> int:
        """The micro-batches of which a task of the join has written its changes."""
        files = (self.out / "state").glob("flights_weather/0_*/*/*.parquet")
        return max((int(path.name.split("-")[0]) for path in files), default=0)

    @property
    def sunk(self) -> int:
        """The micro-batches whose output files the sink has committed."""
        return len([p for p in (self.out / "flights_weather" / "_spark_metadata").glob("*") if p.name.isdigit()])

    @property
    def committed(self) -> int:
        """The micro-batches that Spark has committed."""
        return len([p for p in (self.out / "checkpoint/flights_weather/commits").glob("*") if p.name.isdigit()])


MOMENTS: dict[str, Callable[[Demo], bool]] = {
    "while the input was prepared": lambda demo: demo.prepared,
    "after the first delta was written and before Spark committed": lambda demo: demo.deltas > demo.committed == 0,
    "after a later delta was written and before Spark committed": lambda demo: demo.deltas > demo.committed >= 1,
    "after the sink committed and before Spark did": lambda demo: demo.sunk > demo.committed,
    "after Spark committed": lambda demo: demo.committed >= 2,
}


def kill_at(demo: Demo, backend: str, moment: Callable[[Demo], bool]) -> bool:
    """Run the demo and kill -9 driver and JVM at ``moment``; whether it still was that moment when they were dead."""
    process = demo.start(backend)
    try:
        while process.poll() is None and not moment(demo):
            time.sleep(0.001)
    finally:
        kill_session(process.pid)
        process.communicate()
    return moment(demo)


def kill_session(leader: int) -> None:
    """Kill a process and what it started at once, but for the Python workers, which are left to end by themselves."""
    for pid in session(leader):
        if b"pyspark.daemon" not in command(pid):
            os.kill(pid, signal.SIGKILL)


def session(leader: int) -> Iterator[int]:
    """Yield the processes of the session that ``leader`` leads."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            belongs = os.getsid(int(path.name)) == leader
        except ProcessLookupError:
            continue
        if belongs:
            yield int(path.name)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    """The outputs of a run that nobody disturbs."""
    demo = Demo(tmp_path_factory.mktemp("undisturbed"))
    said = demo.run("memory")
    assert "yes  12,000 of 12,000 flights" in said
    assert "12,000 of 336,776 flights have arrived. Run it again to continue." in said
    assert "WARN" not in said
    return demo.rows()


def test_killed_at_every_moment_one_after_the_other_it_writes_what_an_undisturbed_run_writes(
    undisturbed: dict[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    demo = Demo(tmp_path)
    for name, moment in MOMENTS.items():
        assert any(kill_at(demo, "rocksdb", moment) for _ in range(ATTEMPTS)), f"no run was killed {name}"
    demo.run("rocksdb")
    check_outputs(demo.rows(), undisturbed)


def check_outputs(found: dict[str, list[dict[str, object]]], undisturbed: dict[str, list[dict[str, object]]]) -> None:
    """Check that flights are the same, row by row, and counts end the same, none of them twice and none another.

    Where a kill comes between Spark's list of files and its offsets, Spark takes two files into one micro-batch
    afterwards, and a count is told once for both.
    """
    assert found["flights_weather"] == undisturbed["flights_weather"]
    counts, expected = found["carrier_counts"], undisturbed["carrier_counts"]
    assert [row for row in counts if row not in expected] == []
    assert [row for row in counts if counts.count(row) > 1] == []
    assert {row["carrier"]: row for row in counts} == {row["carrier"]: row for row in expected}


def test_a_job_survives_the_kill_of_a_python_worker_and_its_outputs_stay_the_same(
    undisturbed: dict[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    demo = Demo(tmp_path)
    process = demo.start("lmdb")
    while process.poll() is None and demo.committed < 1:
        time.sleep(0.01)
    daemons = {pid for pid in session(process.pid) if b"pyspark.daemon" in command(pid)}
    workers = {pid for pid in daemons if parent(pid) in daemons}
    assert workers
    os.kill(max(workers), signal.SIGKILL)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert demo.rows() == undisturbed


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_job_moves_from_backend_to_backend_and_its_outputs_stay_the_same(
    undisturbed: dict[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    demo = Demo(tmp_path)
    for backend, batches in (("memory", 1), ("lmdb", 1), ("rocksdb", 2)):
        demo.run(backend, batches)
    assert demo.rows() == undisturbed

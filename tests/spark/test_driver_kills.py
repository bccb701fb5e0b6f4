"""Deaths at every step while state is carried over: the job goes on as one that nobody killed.

Files of words arrive all the time: before each start, and while it is under way.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.spark.apart import run_apart
from tests.spark.mortal_driver import Nursery, Order, Victim
from tests.spark.mortal_jobs import JOBS, WORDS, File, Row

pytestmark = pytest.mark.spark

KILLED = -signal.SIGKILL


@dataclass
class Life:
    """A job's life: its starts, and the files of words that arrive meanwhile.

    Attributes:
        directory: of the job.
        name: the job's.
        backend: that of its local copies.
        files: all that has arrived or waits to.
        old: how many of them were processed before the change.
    """

    directory: Path
    name: str
    backend: str
    files: list[File] = field(default_factory=list)
    old: int = 0

    def __post_init__(self) -> None:
        for name in ("in", "waiting", "deaths"):
            (self.directory / name).mkdir(parents=True)

    def arrive(self, place: str = "in") -> None:
        """Write one more file of words, each of which is there once."""
        number = len(self.files)
        words = [word for at, word in enumerate(WORDS) if (at + number) % 3]
        path = self.directory / f".{number}.parquet"
        rows = [{"key": word, "value": f"v{number}", "timestamp": number + 1} for word in words]
        pq.write_table(pa.Table.from_pylist(rows), path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        os.replace(path, self.directory / place / path.name[1:])
        self.files.append((number, words))

    def order(self, phase: int, victim: Victim = Victim.NOBODY, among: str = "*") -> Order:
        """Return a start, before which a file arrives, and during which another one does."""
        for path in (self.directory / "waiting").iterdir():
            os.replace(path, self.directory / "in" / path.name)
        self.arrive()
        if victim is not Victim.NOBODY:
            self.arrive("waiting")
        return Order(self.name, phase, str(self.directory), self.backend, victim, among)

    @property
    def deaths(self) -> list[str]:
        """The labels of all steps at which somebody has died."""
        return sorted(path.name for path in (self.directory / "deaths").iterdir() if ":" in path.name)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()[-5000:]

    def rows(self) -> list[Row]:
        """Return what the committed files of the sink hold."""
        return [row for path in committed(self.directory / "out") for row in read(path)]

    def check(self) -> None:
        JOBS[self.name].check(self.rows(), self.files[: self.old], self.files[self.old :])


def committed(out: Path) -> list[Path]:
    """Return the files that the log of Spark's file sink has committed."""
    logs = {path.name: path for path in (out / "_spark_metadata").iterdir() if path.name[0] != "."}
    compacted = max((int(name.partition(".")[0]) for name in logs if name.endswith(".compact")), default=-1)
    taken = [path for name, path in logs.items() if int(name.partition(".")[0]) > compacted or ".compact" in name]
    lines = [line for path in taken for line in path.read_text().splitlines()[1:]]
    return sorted({Path(json.loads(line)["path"].removeprefix("file://")) for line in lines})


def read(path: Path) -> list[Row]:
    return [(row["key"], row["value"]) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def nursery(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(spark, tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()


Start: TypeAlias = Callable[[Order], int]


def begin(life: Life, start: Start) -> None:
    """Start the job as it was before the change."""
    assert start(life.order(0)) == 0, life.log
    life.old = len(life.files) if (life.directory / "out").exists() else 0


def go_on(life: Life, start: Start, victim: Victim, among: str) -> None:
    """Start the job in each of its other phases, again and again until nobody dies; then compare."""
    last = len(JOBS[life.name].phases) - 1
    for phase in range(1, last + 1):
        while (code := start(life.order(phase, victim, among))) != 0:
            assert code == KILLED or victim is Victim.WORKER, life.log
    assert start(life.order(last)) == 0, life.log
    life.check()


def who(label: str) -> str:
    """Return which process died at a step: the driver, or a worker with a unit of what is carried over, or a task."""
    return label.partition(" ")[0]


RECORD = "driver in phase 1: finish a file, 2"
"""When the record that makes an evolution count is written, and has not got its name yet."""

CARRYING = "[!b]*"
"""Where state is carried over or copies are warmed, and not in a micro-batch."""

EVERYWHERE = [
    ("evolution", "lmdb", "*, 1"),
    ("evolution", "memory", RECORD),
    ("another checkpoint", "rocksdb", "[!b]*, [12]"),
    ("verbs", "lmdb", CARRYING),
]
"""Jobs, their backends, and where somebody dies. State is carried over in durable files, whatever the backend is."""

ELSEWHERE = [
    ("evolution", "rocksdb", "*the backend, 1"),
    ("evolution with seeds", "lmdb", CARRYING),
    ("seeds of a new job", "rocksdb", CARRYING),
    ("plain to versioned", "lmdb", CARRYING),
    ("timestamped to versioned", "rocksdb", "driver*"),
    ("offline upgrade", "rocksdb", "batch *the backend, 1"),
    ("upgrade in place", "lmdb", "batch*write to the backend, 1"),
    ("upgrade in place", "rocksdb", "batch*write to the backend, 1"),
    ("roll over", "lmdb", CARRYING),
]
"""More of them, which nobody has the time to kill with every change."""


def _series() -> Iterator[Any]:
    for jobs, marks in ((EVERYWHERE, []), (ELSEWHERE, [pytest.mark.exhaustive])):
        for name, backend, among in jobs:
            yield pytest.param(name, backend, among, marks=marks, id=f"{name} on {backend}")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend", "among"), list(_series()))
def test_a_driver_that_dies_at_one_step_after_the_other_goes_on_as_if_it_had_never_died(
    tmp_path: Path, nursery: Nursery, name: str, backend: str, among: str
) -> None:
    life = Life(tmp_path / "job", name, backend)
    begin(life, nursery.start)
    go_on(life, nursery.start, Victim.DRIVER, among)
    assert life.deaths


IN_A_BATCH = "batch in phase 1: write to the backend, 1"
"""When the first micro-batch after the change has its durable file, and is to write to a local copy."""

QUICK = ("evolution", RECORD)
ONCE = [QUICK, ("evolution", IN_A_BATCH), ("another checkpoint", IN_A_BATCH), ("verbs", RECORD)]


@pytest.mark.parametrize(
    ("name", "moment"),
    [pytest.param(*one, marks=[pytest.mark.first] if one == QUICK else [], id=", ".join(one)) for one in ONCE],
)
def test_a_driver_that_dies_once_needs_one_more_start(tmp_path: Path, nursery: Nursery, name: str, moment: str) -> None:
    life = Life(tmp_path / "job", name, "lmdb")
    begin(life, nursery.start)
    assert nursery.start(life.order(1, Victim.DRIVER, moment)) == KILLED, life.log
    assert nursery.start(life.order(1)) == 0, life.log
    life.check()
    assert life.deaths == [moment]


@pytest.mark.long
@pytest.mark.slow
def test_workers_that_die_while_state_is_carried_over_are_replaced(tmp_path: Path, nursery: Nursery) -> None:
    life = Life(tmp_path / "job", "evolution with seeds", "lmdb")
    begin(life, nursery.start)
    go_on(life, nursery.start, Victim.WORKER, CARRYING)
    assert len(life.deaths) >= 3
    assert {who(label) for label in life.deaths} == {"unit"}


@pytest.mark.long
@pytest.mark.slow
def test_an_application_that_is_killed_as_a_whole_goes_on(tmp_path: Path) -> None:
    numbers = count()
    life = Life(tmp_path / "job", "another checkpoint", "rocksdb")

    def start(order: Order) -> int:
        given = [order.job, str(order.phase), order.directory, order.backend, order.victim, order.among]
        return run_apart(life.directory / "log", "-m", "tests.spark.mortal_driver", str(next(numbers)), *given)

    begin(life, start)
    for moment in (RECORD, IN_A_BATCH):
        assert start(life.order(1, Victim.GROUP, moment)) == KILLED, life.log
        assert moment in life.deaths
    assert start(life.order(1)) == 0, life.log
    life.check()

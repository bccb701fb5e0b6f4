"""Whoever dies at whichever moment of a commit, on Spark: the rows that come out are those of an undisturbed run.

The table in ``docs/durability.md`` is what this test has seen. ``MILLPOND_WRITE_MATRIX=1`` writes it anew.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.processors import TopologyDriver
from tests.spark.mortal_job import MOMENTS, VICTIMS, spending
from tests.spark.orders import KEYS, Event, random_events, write_files

PAGE = Path(__file__).parents[2] / "docs" / "durability.md"
BEGIN, END = "<!-- fault matrix: made by tests/spark/test_fault_matrix.py -->\n", "<!-- end of the fault matrix -->\n"
JOB = Path(__file__).with_name("mortal_job.py")
SECONDS = 600
"""For a job that nobody kills; under load Spark alone takes a minute to start."""

SAME = "same output"

Matrix = dict[tuple[str, str], str]
"""By moment and victim: what came of it."""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """What the test of this module has seen."""
    return {(moment, victim): "did not die" for moment in MOMENTS for victim in VICTIMS}


@pytest.mark.spark
@pytest.mark.long
def test_whoever_dies_at_any_moment_of_a_commit_the_output_is_the_same(
    spark: SparkSession, tmp_path: Path, matrix: Matrix
) -> None:
    events = random_events(7, 400)
    write_files(tmp_path / "in", events, 8)
    due = tmp_path / "due"
    due.mkdir()
    for number, (moment, victim) in enumerate(matrix):
        (due / f"{number:02d}.{moment}.{victim}").touch()
    while (left := len(list(due.iterdir()))) and run(tmp_path) != 0:
        assert len(list(due.iterdir())) < left, (tmp_path / "log").read_text()[-5000:]
    assert run(tmp_path) == 0
    rows = spark.read.schema("key string, what string, amount long, timestamp long").parquet(str(tmp_path / "out"))
    assert sorted(map(tuple, rows.collect())) == undisturbed(events)
    for moment, victim in matrix:
        if not list(due.glob(f"*.{moment}.{victim}")):
            matrix[moment, victim] = SAME
    assert set(matrix.values()) == {SAME}, list(due.iterdir())


def undisturbed(events: list[Event]) -> list[tuple[Any, ...]]:
    """What the in-process driver puts out."""
    with TopologyDriver(spending()) as driver:
        for topic, row in events:
            driver.pipe(topic, row[KEYS[topic]], row, row["at"])
        return sorted((key, value["what"], value["amount"], at) for key, value, at in driver.read("spending"))


def run(directory: Path) -> int:
    """Run the job to its end, or to that of its driver."""
    with (directory / "log").open("ab") as log:
        job = subprocess.Popen(
            [sys.executable, str(JOB), str(directory)], stdout=log, stderr=log, start_new_session=True
        )
        try:
            return job.wait(timeout=SECONDS)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


@pytest.mark.long
def test_the_page_shows_what_happened(matrix: Matrix) -> None:
    if os.environ.get("MILLPOND_WRITE_MATRIX"):
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(matrix) + END + rest.partition(END)[2])
    assert shown() == table(matrix)


def test_the_page_has_a_row_for_each_moment_and_a_column_for_each_victim() -> None:
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in shown().splitlines()]
    assert rows[0][1:] == [f"the {victim}" for victim in VICTIMS]
    assert [row[0] for row in rows[2:]] == list(MOMENTS)


def shown() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def table(matrix: Matrix) -> str:
    lines = ["| dies | " + " | ".join(f"the {victim}" for victim in VICTIMS) + " |", "|---" * (1 + len(VICTIMS)) + "|"]
    lines += [f"| {moment} | " + " | ".join(matrix[moment, victim] for victim in VICTIMS) + " |" for moment in MOMENTS]
    return "\n".join(lines) + "\n"

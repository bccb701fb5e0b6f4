"""The cost of headers, ticks and metrics is measured beside a run without them, and each measurement is timed once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from millpond.bench.processors import overhead
from millpond.bench.processors.cases import CASES
from millpond.metrics import Metrics, StoreMetric
from millpond.processors import Batch, TopologyDriver


def test_records_with_headers_are_measured_beside_the_same_without() -> None:
    rows = overhead.headers("memory", 60, 7, rounds=2, directory=None)
    assert {row["case"] for row in rows} == set(overhead.WITH_HEADERS)
    for row in rows:
        assert row["times_longer"] == pytest.approx(row["without_per_second"] / row["with_per_second"])


def test_the_records_that_are_measured_do_carry_headers() -> None:
    case = CASES["stream-table join"]
    batch = Batch(["a"], [{"carrier": "UA", "flight": 1, "distance": 1.0, "delayed": False, "tail": "N1"}], [1])
    with TopologyDriver(case.build()) as driver:
        driver.pipe_batch("table", case.sent(batch))
        driver.pipe_batch("in", overhead._with_headers(batch))
        assert [record.headers for record in driver.read("out")] == [overhead.HEADERS]


def test_measuring_is_a_part_of_a_micro_batch() -> None:
    small, large = overhead.measuring("memory", 7, (10, 2_000), batches=3, directory=None)
    assert (small["records"], large["records"]) == (10, 2_000)
    for row in (small, large):
        assert 0 < row["measuring_us"] < row["batch_us"]
        assert row["share"] == pytest.approx(row["measuring_us"] / row["batch_us"])


def test_what_measures_within_what_measures_is_timed_once_and_in_the_end_nothing_is() -> None:
    metrics = Metrics()
    with overhead.time_in_measuring() as spent:
        metrics.add(StoreMetric.FILE_ROWS, 3)
        with metrics.timed(StoreMetric.COMMIT_DURATION):
            pass
    assert spent.calls == 1 + 3  # to add, to make the block, to enter and to leave it, where it adds
    assert set(metrics.figures) == {"file.rows", "commit.duration"}
    metrics.add(StoreMetric.FILE_ROWS, 1)
    assert spent.calls == 4
    assert metrics.figures["file.rows"] == 4


@pytest.mark.long
@pytest.mark.spark
def test_the_command_compares_every_variant_and_writes_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from millpond.bench.spark.overhead import ALONE, COUNTS, EXCHANGES, PLAIN, print_results

    written = tmp_path / "figures.json"
    arguments = ["bench", "overhead", "--rows", "60", "--keys", "10", "--records", "40"]
    arguments += ["--batches", "1", "--repeat", "1", "--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    measured = [(row["query"], row["rows"], row["variant"]) for row in figures["on_spark"]]
    assert measured == [
        *(("count", 60, variant) for variant in COUNTS),
        *(("exchange", 60, variant) for variant in EXCHANGES),
    ]
    assert [row["records"] for row in figures["measuring_in_process"]] == [60]
    for row in figures["on_spark"]:
        assert row["batch_s"] > 0
        assert row["times_longer"] == 1.0 or row["variant"] != PLAIN
    console = Console(record=True, width=140, file=open(os.devnull, "w"))  # noqa: SIM115
    print_results(console, figures)
    shown = console.export_text()
    assert f"count on Spark, 60 rows: {ALONE}" in shown
    assert "headers, stream-table join, a record" in shown
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

"""The benchmark of upgrades goes through every phase that a backend has, and holds each against the one before."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.durability.upgrade import UPGRADES, Batch, Job, Phase, storage_in
from millpond.cli import app
from millpond.errors import ConfigurationError
from millpond.stores.durability.parquet.reading import read_all_tables

ROLL_OVER = ["warming", "warm", "rolled over"]
IN_PLACE = ["preparing", "prepared", "after"]


@pytest.mark.long
def test_every_phase_is_measured_where_copies_are_on_the_disk(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--keys", "2000", "--rows", "50", "--batches", "2", "--json", str(written)]
    options += ["--backend", "memory", "--backend", "lmdb", "--upgrade", "timestamped", "--directory", str(tmp_path)]
    result = CliRunner().invoke(app, ["bench", "upgrade", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(written.read_text())["phases"]
    phases = [(row["backend"], row["phase"]) for row in figures]
    assert phases == [
        ("memory", "before"),
        ("memory", "offline"),
        *(("lmdb", phase) for phase in ["before", "offline", *ROLL_OVER, *IN_PLACE]),
    ]
    disk = {phase: row["most_disk_bytes"] for (_, phase), row in zip(phases, figures, strict=True)}
    assert disk["prepared"] > disk["before"]
    assert disk["warm"] > disk["before"]
    assert all(row["batches"] == 2 for row in figures if row["phase"] in ("before", "warm", "prepared", "after"))
    assert [path.name for path in tmp_path.iterdir()] == [written.name]


@pytest.mark.parametrize("runner", [[], ["--spark"]], ids=["in process", "on Spark"])
def test_an_upgrade_that_there_is_not_is_refused_before_anything_runs(runner: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", "upgrade", *runner, "--upgrade", "versoned"])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith("there is no upgrade 'versoned'; the upgrades are ")


def test_a_pause_is_a_share_of_the_median_before_and_snapshots_are_apart() -> None:
    def batch(wall: float, processor: float, disk: int, snapshot: bool = False) -> Batch:
        return Batch({"wall": wall, "processor": processor}, disk, snapshot)

    before = Phase("before", None, [batch(wall, wall / 2, 0) for wall in (1.0, 2.0, 3.0)])
    long = batch(40.0, 20.0, 3, snapshot=True)
    preparing = Phase("preparing", batch(9.0, 9.0, 7), [batch(2.0, 2.0, 5), long, batch(4.0, 3.0, 4)])
    figures = preparing.figures(100, before)
    assert figures["wall"] == pytest.approx(
        {"p50_s": 3.0, "p90_s": 3.8, "max_s": 4.0, "pause_p50": 1.5, "pause_max": 2.0}
    )
    assert figures["processor"]["pause_max"] == 3.0
    assert (figures["snapshots"], figures["snapshot_max_s"]) == (1, 40.0)
    assert (figures["first_s"]["wall"], figures["most_disk_bytes"], figures["disk_bytes"]) == (9.0, 7, 4)
    assert figures["rows_per_s"] == pytest.approx(100 / 3)


def test_the_same_seed_updates_the_same_rows_and_another_one_others(tmp_path: Path) -> None:
    def written(name: str, seed: int) -> list[Any]:
        job = Job("memory", 1_000, 20, tmp_path / name, seed)
        job.restart(UPGRADES["timestamped"][0])
        job.fill()
        job.batch()
        job.stop()
        assert job.manifest is not None
        (delta,) = job.manifest.deltas[-1:]
        tables = read_all_tables(storage_in(tmp_path / name), job.manifest, delta)
        return [(store, table.to_pydict()) for store, table in tables]

    assert written("one", 3) == written("same", 3) != written("other", 4)

"""The benchmark of carrying state measures every step, and finds that all rows have arrived."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond.bench.durability.evolution import Durable
from millpond.bench.measure import cost
from millpond.cli import app
from millpond.errors import ConfigurationError


def test_every_step_is_measured_and_all_rows_arrive(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--keys", "500", "--partitions", "2,3,1", "--repeat", "1", "--json", str(written)]
    result = CliRunner().invoke(app, ["bench", "evolution", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(written.read_text())
    assert [row["step"] for row in figures["steps"]] == ["copy of 2", "2 -> 3", "copy of 3", "3 -> 1"]
    assert all(row["processor_s"] > 0 for row in figures["steps"])
    assert all(row["wall_s"] > 0 and row["written_bytes"] > 500 * 100 for row in figures["steps"])
    assert "3 -> 1" in result.output


@pytest.mark.parametrize("way", ["", "4", "4,", "4,x", "4,0", "-4,2", "4.5,2", "4,9999999999"])
def test_what_is_no_way_between_numbers_of_partitions_is_refused(way: str) -> None:
    refused = CliRunner().invoke(app, ["bench", "evolution", "--partitions", way]).exception
    assert isinstance(refused, ConfigurationError)
    assert f"partitions are {way!r}, but must be numbers of them" in str(refused)


def test_what_a_step_leaves_behind_is_deleted_and_what_it_wrote_is_not(tmp_path: Path) -> None:
    durable = Durable(tmp_path, 300, 2)
    durable.copy()
    durable.carry(3)
    assert sum(1 for _ in tmp_path.rglob("*.parquet")) == 2 * 2 + 2 * 2 + 3
    durable.tidy_up()
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert left == {task.path(file) for task in durable.tasks.values() for file in task.files}
    assert len(left) == 3


def test_memory_is_counted_from_where_a_call_begins() -> None:
    kept = bytearray(64 << 20)
    assert cost(lambda: None).peak_bytes < 32 << 20
    assert cost(lambda: bytearray(b"x" * len(kept))).peak_bytes > 64 << 20

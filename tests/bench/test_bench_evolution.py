"""The benchmark of carrying state measures every step, and finds that all rows have arrived."""

import json
from pathlib import Path

from typer.testing import CliRunner

from millpond.cli import app


def test_every_step_is_measured_and_all_rows_arrive(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--keys", "500", "--partitions", "2,3,1", "--json", str(written)]
    result = CliRunner().invoke(app, ["bench", "evolution", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(written.read_text())
    assert [row["step"] for row in figures["steps"]] == ["copy of 2", "2 -> 3", "copy of 3", "3 -> 1"]
    assert all(row["processor_s"] > 0 for row in figures["steps"])
    assert "3 -> 1" in result.output

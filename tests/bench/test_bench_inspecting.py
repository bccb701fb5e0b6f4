"""The benchmark of looks at state takes each look, and stops where one does not find what is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from millpond.bench.spark import inspecting
from millpond.errors import MillpondError


def test_a_command_that_ends_otherwise_than_it_should_ends_the_benchmark() -> None:
    with pytest.raises(MillpondError, match=r"millpond state ended with 2: .*nowhere"):
        inspecting._command(0, "get", "nowhere", "counts", "a", "--state-dir", "nowhere")


def test_the_first_look_does_not_count() -> None:
    taken: list[int] = []
    assert len(inspecting._times(taken.append, 3)) == 3
    assert taken == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.spark
def test_every_look_is_measured_and_finds_what_is_there(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    arguments = ["bench", "looking", "--keys", "200", "--range", "20", "--partitions", "2", "--repeat", "1"]
    arguments += ["--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    looks = [(row["by"], row["look"]) for row in figures["looks"]]
    assert [look for by, look in looks if by == "millpond state"] == [
        "--version",
        "get, found",
        "get, missing",
        "scan of 20 keys",
        "describe",
    ]
    assert sum(by == "Spark" for by, _ in looks) == 5
    assert all(0 < row["median_s"] <= row["longest_s"] for row in figures["looks"])
    assert figures["session_s"] > 0
    assert "To start a session of Spark took" in " ".join(done.stdout.split())
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

"""The command that holds advice against jobs, in small: it runs both, and writes what came of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.spark
def test_the_command_advises_and_runs_each_job_on_each_backend(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from millpond.bench.spark.advised import PROFILES

    written = tmp_path / "figures.json"
    arguments = ["bench", "advice", "--keys", "500", "--rows", "60", "--batches", "1", "--repeat", "1"]
    arguments += ["--seconds", "1", "--backend", "lmdb", "--backend", "memory"]
    arguments += ["--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = json.loads(written.read_text())["profiles"]
    assert [row["profile"] for row in rows] == list(PROFILES)
    assert all(min(one["batch_s"], one["worker_s"], one["operation_us"]) > 0 for row in rows for one in row["each"])
    assert done.stderr == "", "what Spark's processes say is not for the terminal"
    assert done.returncode == (1 if any(row["against"] for row in rows) else 0), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

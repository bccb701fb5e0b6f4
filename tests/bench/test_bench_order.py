"""The cost of the order of time: the command runs all queries in all variants."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.spark
def test_the_command_compares_both_orders_and_writes_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from millpond.bench.spark.order import QUERIES

    written = tmp_path / "figures.json"
    arguments = ["bench", "order", "--rows", "60", "--keys", "10", "--batches", "1", "--repeat", "1"]
    arguments += ["--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(written.read_text())["on_spark"]
    assert [(row["query"], row["variant"]) for row in rows] == [
        (name, variant) for name in QUERIES for variant in QUERIES[name].variants
    ]
    assert all(row["batch_s"] > 0 for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

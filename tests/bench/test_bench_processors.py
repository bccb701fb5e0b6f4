"""The benchmark of the processors measures every topology on every backend."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond.bench.processor_cases import CASES, Case
from millpond.bench.processors import Workload, run
from millpond.cli import app
from millpond.processors import TopologyDriver


def test_every_case_is_measured_on_every_backend_and_profiled() -> None:
    report = run(["memory", "lmdb"], records=60, keys=7, batch_rows=20, rounds=1)
    expected = {(case.name, backend) for case in CASES for backend in ("memory", "lmdb")}
    assert {(row["case"], row["backend"]) for row in report["results"]} == expected
    assert all(row["per_second"] > 0 and row["dicts_per_second"] > 0 for row in report["results"])
    assert {(row["case"], row["backend"]) for row in report["profiles"]} == expected
    assert all(row["functions"] for row in report["profiles"])


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.name.startswith("stream-stream left join")], ids=lambda case: case.name
)
def test_the_peer_on_dicts_gives_the_same(case: Case) -> None:
    workload = Workload(300, 20, 50, step=1_000_000)  # so that windows end, and sessions
    table, batches = workload.table(case.versions), workload.batches()
    with TopologyDriver(case.build()) as driver:
        for batch in table if case.versions else ():
            driver.pipe_batch("table", case.sent(batch))
        driver.read("out")
        for batch in batches:
            driver.pipe_batch("in", case.sent(batch))
        came = [(record.value, record.timestamp) for record in driver.read("out")]
    assert came == [(value, time) for _, value, time in case.peer(table)(batches)]


def test_the_command_prints_a_table_and_writes_the_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--backend", "memory", "--records", "40", "--keys", "5", "--no-profile", "--json", str(figures)]
    result = CliRunner().invoke(app, ["bench", "processors", *options])
    assert result.exit_code == 0, result.output
    assert "stream-table join, versioned" in result.output
    written = json.loads(figures.read_text())
    assert written["benchmark"] == "processors"
    assert len(written["results"]) == len(CASES)

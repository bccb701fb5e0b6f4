"""Runs in processes of their own: what becomes of one that does not end."""

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from millpond.bench.runs.process import run_in_a_process
from millpond.cli import app

SLEEPING = """
import json, os, subprocess, sys, time
from pathlib import Path

job = json.loads(sys.stdin.read())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
Path(job["result"]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(1000)
"""


class Job(NamedTuple):
    """What a worker of these tests is told."""

    result: str

    def text(self) -> str:
        return json.dumps(self._asdict())


def runs_on(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_that_does_not_end_in_time_is_killed_with_its_children_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeping_worker.py").write_text(SLEEPING)
    monkeypatch.syspath_prepend(str(tmp_path))
    came = run_in_a_process("sleeping_worker", Job(str(tmp_path / "pids")), 4)
    assert came == {"failure": "its process did not end within 4 s"}
    processes = list(map(int, (tmp_path / "pids").read_text().split()))
    assert os.getpid() not in processes
    while any(map(runs_on, processes)):  # the system takes its time to end what was killed
        time.sleep(0.01)


def test_a_run_that_is_interrupted_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeping_worker.py").write_text(SLEEPING)
    monkeypatch.syspath_prepend(str(tmp_path))
    pids = tmp_path / "pids"

    def interrupted(running: Any, *_: object) -> None:
        running.stdin.write(Job(str(pids)).text())
        running.stdin.close()
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_a_process("sleeping_worker", Job(str(pids)))
    while any(map(runs_on, map(int, pids.read_text().split()))):
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("command", "workload"), [("engines", "fillseq"), ("processors", "count"), ("stores", "upsert")]
)
def test_each_benchmark_with_processes_takes_a_timeout_and_tells_who_exceeded_it(
    command: str, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exceeded(worker: str, job: object, timeout_s: float | None) -> dict[str, Any]:
        return {"failure": f"{worker} did not end within {timeout_s} s"}

    monkeypatch.setattr(f"millpond.bench.{command}.run.run_in_a_process", exceeded)
    options = ["--backend", "memory", "--workload", workload, "--timeout", "7", "--json", "-"]
    ended = CliRunner().invoke(app, ["bench", command, *options])
    assert ended.exit_code == 1, ended.output
    failures = json.loads(ended.stdout)["failures"]
    assert {row["reason"] for row in failures} == {f"millpond.bench.{command}.worker did not end within 7.0 s"}

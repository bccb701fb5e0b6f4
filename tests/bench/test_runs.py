"""Runs in processes of their own: what becomes of one that does not end."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.engines.worker import Job as EnginesJob
from millpond.bench.engines.workloads import Sizes as EnginesSizes
from millpond.bench.measure import bytes_below
from millpond.bench.processors.inputs import Sizes as ProcessorsSizes
from millpond.bench.processors.worker import Job as ProcessorsJob
from millpond.bench.runs.alone import run_alone
from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import run_in_a_process
from millpond.bench.stores.sizes import Sizes as StoresSizes
from millpond.bench.stores.worker import Job as StoresJob
from millpond.cli import app

SLEEPING = """
import json, os, subprocess, sys, time
from pathlib import Path

job = json.loads(sys.stdin.read())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
Path(job["result"]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(1000)
"""


def job(pids: Path) -> RunJob:
    """Return the job of the sleeping worker."""
    return RunJob(directory="", result=str(pids))


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
    came = run_in_a_process("sleeping_worker", job(tmp_path / "pids"), 4)
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
        running.stdin.write(job(pids).text())
        running.stdin.close()
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_a_process("sleeping_worker", job(pids))
    while any(map(runs_on, map(int, pids.read_text().split()))):
        time.sleep(0.01)


FILES: dict[str, Any] = {"directory": "/there", "result": "/there.json"}


@pytest.mark.parametrize(
    "whole",
    [
        EnginesJob("backend", "lmdb", "readseq", EnginesSizes(10, 5), 1, None, True, **FILES),
        StoresJob("engine", "rocksdb", False, "put", StoresSizes(10, 5), 2**20, **FILES),
        ProcessorsJob(None, "count", ProcessorsSizes(10, 5, 2), False, **FILES),
    ],
    ids=["engines", "stores", "processors"],
)
def test_a_program_is_told_the_whole_job(whole: RunJob) -> None:
    assert type(whole).of(whole.text()) == whole


@pytest.mark.parametrize("left", [None, "the server is gone"])
def test_a_run_alone_leaves_nothing_and_has_failed_if_something_cannot_be_deleted(
    left: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    def run(worker: str, job: RunJob, timeout_s: float | None) -> dict[str, Any]:
        ran.append((worker, Path(job.directory), timeout_s))
        Path(job.directory).mkdir()
        Path(job.result).touch()
        return {"operations": 1}

    def clean_up(directory: Path) -> str | None:
        assert directory.is_dir()
        ran.append(directory)
        return left

    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", run)
    came = run_alone("a.module", RunJob, clean_up, directory=tmp_path, timeout_s=7)
    assert came == ({"operations": 1} if left is None else {"failure": left})
    assert ran == [("a.module", ran[1], 7), ran[1]]
    assert ran[1].is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_room_of_a_file_on_the_disk_is_that_of_its_blocks_and_not_its_length(tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**30)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "full").write_bytes(os.urandom(2**20))
    assert 2**20 <= bytes_below(tmp_path) < 2**21


def test_what_an_interrupted_run_has_elsewhere_is_deleted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[Path] = []

    def interrupted(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_alone("a.module", RunJob, cleaned.append, directory=tmp_path, timeout_s=None)
    assert len(cleaned) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "workload"), [("engines", "fillseq"), ("processors", "count"), ("stores", "upsert")]
)
def test_each_benchmark_with_processes_takes_a_timeout_and_tells_who_exceeded_it(
    command: str, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exceeded(worker: str, job: object, timeout_s: float | None) -> dict[str, Any]:
        return {"failure": f"{worker} did not end within {timeout_s} s"}

    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", exceeded)
    options = ["--backend", "memory", "--workload", workload, "--timeout", "7", "--json", "-"]
    ended = CliRunner().invoke(app, ["bench", command, *options])
    assert ended.exit_code == 1, ended.output
    failures = json.loads(ended.stdout)["failures"]
    assert {row["reason"] for row in failures} == {f"millpond.bench.{command}.worker did not end within 7.0 s"}

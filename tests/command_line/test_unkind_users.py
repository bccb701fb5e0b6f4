"""Unkind input of any sort gets a message and an exit code, and leaves no trace that nobody asked for."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from millpond import __version__
from millpond.cli import main
from millpond.cli.terminal.ending import escape_what_cannot_be_written
from tests.bench.test_runs import runs_on
from tests.command_line.processes import environment, millpond, started
from tests.demo.test_command_line import run

NOT_UTF_8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_the_package_runs_as_a_module() -> None:
    done = millpond("--version")
    assert (done.returncode, done.stdout.decode().strip(), done.stderr) == (0, f"millpond {__version__}", b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bakends"], "Did you mean 'backends'?"),
        (["state", "lst"], "Did you mean 'list'?"),
        (["state", "scan", "c", "s", "--state-dri", "d"], "--state-dir"),
        (["state", "list", "c"], "Missing option '--state-dir'"),
        (["state", "list", "c", "--state-dir", "d", "--workers", "many"], "Invalid value for '--workers'"),
        (["state", "list", "c", "--state-dir", "d", "--workers", "0"], "Invalid value for '--workers'"),
        (["ui", "c", "--port", "70000"], "Invalid value for '--port'"),
        (["state", "list", "no/such/place", "--state-dir", "d"], "there is no checkpoint at no/such/place"),
        (["state", "verify", "no/such/place", "--state-dir", "d"], "there is no checkpoint at no/such/place"),
        (["state", "evolve", "c", "--state-dir", "d", "--topology", "nowhere:t"], "give MODULE:NAME"),
        (["backends", "check", "lmbd"], "did you mean 'lmdb'?"),
        (["import", "kafka-streams", "nowhere", "--store", "s", "--to", "t"], "there is no directory nowhere"),
        (["state", "clean"], "there is nothing to be cleaned"),
    ],
)
def test_what_makes_no_sense_ends_with_2_and_says_what_does(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, *arguments) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert "Traceback" not in said.err


def test_what_the_system_refuses_is_told_with_its_file_and_is_no_surprise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/srv/state")

    monkeypatch.setattr("millpond.stores.backend.catalog.described", refused)
    assert run(monkeypatch, "backends") == 1
    said = capsys.readouterr().err
    assert "Permission denied: '/srv/state'; see that the place is there, and that you may" in said
    assert "nobody expected" not in said
    monkeypatch.setattr(sys, "argv", ["millpond", "--debug", "backends"])
    with pytest.raises(PermissionError):
        main()


def test_a_reader_that_has_gone_away_is_no_error_with_a_trace() -> None:
    read, write = os.pipe()
    os.close(read)
    done = millpond("backends", "--json", stdout=write)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""


def test_ctrl_c_ends_a_command_with_130() -> None:
    script = (
        "import os, signal\n"
        "from millpond.stores.backend import catalog\n"
        "catalog.described = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "from millpond.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "backends"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


@pytest.mark.parametrize("arguments", [["--help"], ["state", "evolve", "--help"], ["state", "nothing"]])
@pytest.mark.parametrize(
    "given",
    [{"COLUMNS": "40"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, NOT_UTF_8],
    ids=["40 columns", "dumb", "no color", "not UTF-8"],
)
def test_help_and_errors_suit_the_terminal(arguments: list[str], given: dict[str, str]) -> None:
    done = millpond(*arguments, **given)
    said = done.stdout + done.stderr
    assert done.returncode == (2 if "nothing" in arguments else 0)
    assert b"\x1b[" not in said
    if given == NOT_UTF_8:
        assert said.isascii()
    if "COLUMNS" in given:
        assert max(len(line) for line in said.decode().splitlines()) <= 40


def test_where_the_encoding_lacks_a_character_a_line_of_json_means_the_same() -> None:
    script = (
        "from millpond.cli.terminal.ending import escape_what_cannot_be_written\n"
        "escape_what_cannot_be_written()\n"
        'print(\'{"key": "caf\\u00e9 \\U0001f986"}\')\n'
    )
    given = environment(NOT_UTF_8)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=given, check=False)
    assert done.stderr == b""
    assert done.stdout.isascii()
    assert json.loads(done.stdout) == {"key": "caf\u00e9 \U0001f986"}


def test_where_the_output_is_no_stream_of_text_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", object())
    escape_what_cannot_be_written()


@pytest.mark.parametrize("interrupts", [signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def test_a_benchmark_that_is_asked_to_end_takes_its_run_and_its_files_with_it(interrupts: Any, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, interrupts)  # what is ignored here, is ignored by the command, too
    arguments = ["--backend", "memory", "--workload", "readrandom", "--records", 10_000_000, "--directory", tmp_path]
    try:
        with started("bench", "engines", *arguments) as running:
            while not (runs := runs_of(running.pid)):
                assert running.poll() is None
                time.sleep(0.01)
            assert len(list(tmp_path.iterdir())) == 1
            os.kill(running.pid, signal.SIGTERM)
            _, said = running.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert running.returncode == 143
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 60
    while any(map(runs_on, runs)):  # the system takes its time to end what was killed
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs_of(command: int) -> list[int]:
    """Return the processes that a command has started and that have a session of their own."""
    children = Path(f"/proc/{command}/task/{command}/children").read_text().split()
    return [int(child) for child in children if os.getsid(int(child)) == int(child)]


def test_interrupting_a_process_of_the_command_line_leaves_no_trace() -> None:
    with started("backends", "check", "memory", "--examples", 100_000) as running:
        assert running.stdout is not None
        running.stdout.read(1)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in said

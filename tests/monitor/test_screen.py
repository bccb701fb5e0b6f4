"""The live screen of ``millpond top``, in a terminal; and where there is none."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from shutil import move

import pytest

from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import filled
from tests.monitor.terminal import terminal
from tests.monitor.test_query_monitor import kept


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def test_the_screen_follows_a_query_from_before_it_begins_to_after_its_end(query: Query, tmp_path: Path) -> None:
    writer = ProgressWriter.at(str(tmp_path / "progress"))
    move(query.checkpoint, tmp_path / "later")
    options = [
        "--state-dir",
        str(query.state),
        "--progress",
        str(tmp_path / "progress"),
        "--interval",
        "100 milliseconds",
    ]
    with terminal("top", str(query.checkpoint), *options) as screen:
        screen.wait_for("there is no checkpoint at")
        assert screen.has_a_screen_to_itself
        move(tmp_path / "later", query.checkpoint)
        screen.wait_for("micro-batch 2 committed", "note: no progress of this query is kept", "versions", "0_1")
        assert "there is no checkpoint" not in screen.text
        writer.keep(kept(2))
        screen.wait_for("counts", "Kafka[clicks]", "waiting", "3.2 s")
        assert "note:" not in screen.text
        query._write("offsets/3", "v1\n{}\n{}")
        screen.wait_for("micro-batch 3 begun", "not committed")
        writer.keep(kept(3, waiting=1_234_567))
        query.commit(3)
        screen.wait_for("micro-batch 3 committed", "1,234,567")
        assert "not committed" not in screen.text
        query._write("metadata", '{"id":"4a"}')
        screen.wait_for("note: the checkpoint was begun anew: this is query 4a")
        screen.press(b"\x03")
        assert screen.ends() == 128 + signal.SIGINT
        assert screen.is_as_it_was
        assert "Traceback" not in screen.text


def test_the_screen_fits_small_and_large_terminals_and_a_new_size_at_once(query: Query, tmp_path: Path) -> None:
    ProgressWriter.at(str(tmp_path / "progress")).keep(kept(2))
    options = ["--state-dir", str(query.state), "--progress", str(tmp_path / "progress"), "--interval", "1 hour"]
    with terminal("top", str(query.checkpoint), *options, columns=80, lines=12) as screen:
        screen.wait_for("micro-batch 2 committed", "more lines in a taller terminal, or with --once")
        assert screen.lines[-1].startswith("… ")
        assert screen.lines[0].startswith("counts")
        screen.resize(200, 100)
        screen.wait_for("micro-batch 2 committed", "sessions", "0_0", "0_1")
        assert "more lines" not in screen.text
        for size in ((30, 5), (4, 2), (1, 1)):
            screen.resize(*size)
            screen.wait_for("…")
        screen.resize(80, 24)
        screen.wait_for("micro-batch 2 committed", "more lines")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.ends() == 128 + signal.SIGTERM
        assert screen.is_as_it_was


def test_what_cannot_become_right_is_refused_before_the_screen_is_taken(tmp_path: Path) -> None:
    with terminal("top", "nowhere://checkpoint") as screen:
        assert screen.ends() == 2
        assert "nowhere" in screen.text
        assert screen.is_as_it_was


def test_a_terminal_that_cannot_go_back_gets_the_tables_once(query: Query) -> None:
    with terminal("top", str(query.checkpoint), lines=100, TERM="dumb") as screen:
        assert screen.ends() == 0
        assert "micro-batch 2 committed" in screen.text


def test_a_pipe_gets_the_tables_once_even_if_colors_are_forced(query: Query) -> None:
    command = [sys.executable, "-c", "from millpond.cli import main; main()", "top", str(query.checkpoint)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "FORCE_COLOR": "1"}, check=True
    )
    assert "micro-batch 2 committed" in done.stdout


def test_ctrl_c_ends_the_page_too(query: Query) -> None:
    with terminal("ui", str(query.checkpoint), "--port", "0") as screen:
        screen.wait_for("(Ctrl-C ends it)")
        screen.press(b"\x03")
        assert screen.ends() == 128 + signal.SIGINT
        assert "Traceback" not in screen.text

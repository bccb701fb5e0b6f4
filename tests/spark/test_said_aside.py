"""A process that starts while the standard error is aside writes there, and this process goes on where it was."""

import os
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.session.said_aside import stderr_to


def told(descriptor: int) -> bytes:
    return os.pread(descriptor, 1_000, 0)


def test_processes_that_start_meanwhile_write_into_the_file_for_as_long_as_they_live(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said = "import sys; sys.stdin.read(); print('from a process', file=sys.stderr)"
    with tempfile.TemporaryFile() as aside:
        with stderr_to(aside):
            started = subprocess.Popen([sys.executable, "-c", said], stdin=subprocess.PIPE)
        print("from this one", file=sys.stderr)
        started.communicate(b"")
        assert told(aside.fileno()) == b"from a process\n"
    assert capfd.readouterr().err == "from this one\n"


def test_an_error_puts_the_standard_error_back(capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryFile() as aside:
        with pytest.raises(LookupError), stderr_to(aside):
            raise LookupError("no Java")
        print("heard", file=sys.stderr)
        assert told(aside.fileno()) == b""
    assert capfd.readouterr().err == "heard\n"

"""The command line as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

COMMAND = (sys.executable, "-m", "millpond")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, without what says how a terminal looks, and with what is given."""
    looks = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM", "LC_ALL", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    return {name: value for name, value in os.environ.items() if name not in looks} | dict(given)


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command that runs in a group of its own, whose processes are killed in the end if they still run."""
    words = [*COMMAND, *map(str, arguments)]
    out = subprocess.PIPE
    with subprocess.Popen(words, stdout=out, stderr=out, text=True, process_group=0) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


def millpond(*arguments: object, stdout: Any = subprocess.PIPE, **given: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command; ``given`` are variables of its environment."""
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, env=environment(given), check=False)

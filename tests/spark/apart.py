"""Jobs in processes of their own, each with all that it starts in a group that dies as one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SECONDS: Final = 600
"""For a job that nobody kills; under load Spark alone takes a minute to start."""

_ROOT: Final = Path(__file__).parents[2]


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python with these arguments, which adds what it says to a file. At the end it is killed if it still runs."""
    with log.open("ab") as out:
        job = subprocess.Popen([sys.executable, *arguments], cwd=_ROOT, stdout=out, stderr=out, start_new_session=True)
    try:
        yield job
    finally:
        if job.poll() is None:
            kill_group(job)


def kill_group(job: subprocess.Popen[bytes]) -> None:
    """Kill a job and all that it has started."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def run_apart(log: Path, *arguments: str) -> int:
    """Start a job and wait for its end; its exit code."""
    with started(log, *arguments) as job:
        return job.wait(timeout=SECONDS)

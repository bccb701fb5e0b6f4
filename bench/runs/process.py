"""A run in a process of its own: how it is started, and what its program does.

Rule of this module: a job goes to the program on its standard input, because a backend's URL may hold a password, and
what came of it into a file of JSON, so that what is told of processor time and memory is the run's alone.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millpond.errors import MillpondError
from millpond.stores.options import without_secrets


class Job(Protocol):
    """What a program is to run."""

    @property
    def result(self) -> str:
        """The file for what came of it."""

    def text(self) -> str:
        """The job as the program reads it."""


J = TypeVar("J", bound=Job)


def run_in_a_process(worker: str, job: Job) -> dict[str, Any]:
    """Run a module by this interpreter, with this process's modules, and without those of the working directory.

    Args:
        worker: the module's full name; it calls ``answer``.
        job: what it is to run.

    Returns:
        What it has written; ``failure`` with the reason if its process ended otherwise.
    """
    path = os.pathsep.join(place for place in sys.path if place)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", worker],
        input=job.text(),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if ended.returncode != 0:
        return {"failure": _death(ended)}
    came: dict[str, Any] = json.loads(Path(job.result).read_text())
    return came


def answer(job_of: Callable[[str], J], measure: Callable[[J], dict[str, Any]]) -> None:
    """Do the job on the standard input, and write what came of it; ``failure`` with the reason if that raised."""
    job = job_of(sys.stdin.read())
    try:
        came = measure(job)
    except Exception as error:
        came = {"failure": reason(error)}
    Path(job.result).write_text(json.dumps(came))


def reason(error: Exception) -> str:
    """Why a run failed, in a line."""
    if isinstance(error, ModuleNotFoundError):
        return f"needs the module {error.name}, which is not installed; 'millpond[peers]' brings what peers need"
    said = str(error) if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}"
    return without_secrets(said)


def _death(ended: "subprocess.CompletedProcess[str]") -> str:
    last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
    how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
    return without_secrets(f"its process ended with {how}: {last}")

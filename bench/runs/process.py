"""A run in a process of its own: its start, and its program.

Rule of this module: a job goes to the program on its standard input, because a backend's URL may hold a password, and
what came of it into a file of JSON, so that what is told of processor time and memory is the run's alone.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from millpond.bench.runs.job import RunJob
from millpond.errors import MillpondError
from millpond.masking import masked

J = TypeVar("J", bound=RunJob)


def run_in_a_process(worker: str, job: RunJob, timeout_s: float | None = None) -> dict[str, Any]:
    """Run a module by this interpreter, with this process's modules, and without those of the working directory.

    Args:
        worker: the module's full name; it calls ``answer``.
        job: what it is to run.
        timeout_s: after so many seconds it is killed, with all processes that it has started; None waits for ever.

    Returns:
        What it has written; ``failure`` with the reason if its process ended otherwise, or not in time.
    """
    path = os.pathsep.join(place for place in sys.path if place)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", worker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as running:
        try:
            _, said = running.communicate(job.text(), timeout_s)
        except BaseException as error:
            # Whatever interrupts this process does not reach the other session, and a process that was not waited for
            # keeps its number, so the group is the worker's.
            os.killpg(running.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return {"failure": f"its process did not end within {timeout_s:g} s"}
    if running.returncode != 0:
        return {"failure": _death(running.returncode, said)}
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
    """Return why a run failed, in a line."""
    if isinstance(error, ModuleNotFoundError):
        return f"needs the module {error.name}, which is not installed; 'millpond[peers]' brings what peers need"
    said = str(error) if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}"
    return masked(said)


def _death(returned: int, said: str) -> str:
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    how = f"signal {-returned}" if returned < 0 else f"exit code {returned}"
    return masked(f"its process ended with {how}: {last}")

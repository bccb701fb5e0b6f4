"""A run alone: in a directory and a process of its own, and nothing is left of either."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import run_in_a_process


class JobMaker(Protocol):
    """Makes a job that is known but for its files, such as a ``partial`` of its class."""

    def __call__(self, *, directory: str, result: str) -> RunJob:
        """Return the job with its files."""


def run_alone(
    worker: str,
    job_of: JobMaker,
    clean_up: Callable[[Path], str | None],
    *,
    directory: Path | None,
    timeout_s: float | None,
) -> dict[str, Any]:
    """Run a module in a new directory, and delete that, whatever becomes of the run.

    Args:
        worker: the module's full name; it calls ``answer``.
        job_of: makes the job.
        clean_up: deletes what the run has outside of its directory, which it is given; why that failed, if it did.
        directory: on the file system to measure; None is the temporary directory.
        timeout_s: after so many seconds the run is ended; None waits for ever.

    Returns:
        What came of the run; ``failure`` with the reason if it failed, or has left something behind.
    """
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
        place = Path(temporary, "run")
        job = job_of(directory=str(place), result=str(Path(temporary, "result.json")))
        try:
            came = run_in_a_process(worker, job, timeout_s)
        finally:
            left = clean_up(place)
        return came if left is None else {"failure": left}

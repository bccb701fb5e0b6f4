"""The memory and disk that rows take in a backend: some are written, and then each of them again.

Rule of this module: it opens no store; ``millpond.bench.advice.worker`` does, in a process of its own.
"""

from functools import partial
from pathlib import Path
from typing import Final

from millpond.bench.advice.measured import Room
from millpond.bench.advice.worker import Job
from millpond.bench.engines.workloads import Sizes
from millpond.bench.runs.alone import run_alone
from millpond.bench.runs.leftovers import left_by_store

_WORKER: Final = "millpond.bench.advice.worker"


def room_of(backend: str, sizes: Sizes, directory: Path | None) -> Room | str:
    """Return the memory and disk that rows take in a backend, or the reason for which that could not be measured.

    Args:
        backend: its name or URL.
        sizes: how many rows, and of what sizes.
        directory: where its files go; the temporary directory by default.
    """
    job_of, clean_up = partial(Job, backend, sizes), partial(left_by_store, backend)
    came = run_alone(_WORKER, job_of, clean_up, directory=directory, timeout_s=None)
    return came["failure"] if "failure" in came else Room(**came)

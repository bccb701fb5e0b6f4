"""The program that measures the memory and disk of rows in one backend, in a process of its own.

Rule of this module: it is a program, which ``millpond.bench.runs.process`` starts. It keeps no rows itself, so that
what the process grows by is the backend's alone.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from millpond.bench.advice.measured import Room
from millpond.bench.engines.distributions import Numbers
from millpond.bench.engines.worker import LOAD_BATCH
from millpond.bench.engines.workloads import Sizes, in_order
from millpond.bench.measure import bytes_below
from millpond.bench.report import resident_bytes
from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import answer
from millpond.bench.runs.recording import Values
from millpond.stores.backend.registry import open_backend

_LOOKS: Final = 20


@dataclass(frozen=True)
class Job(RunJob):
    """The measurement to make.

    Attributes:
        backend: its name or URL.
        sizes: how many rows, and of what sizes.
    """

    backend: str
    sizes: Sizes


def measure(job: Job) -> dict[str, Any]:
    """Write the rows and then all of them again by chance; the fields of a ``Room``."""
    sizes, directory = job.sizes, Path(job.directory)
    values = Values(sizes.value_bytes, sizes.seed)
    order = np.random.default_rng(sizes.seed).permutation(sizes.records)
    half = max(1, sizes.records // 2)
    peak = 0
    with open_backend(job.backend, directory) as opened:
        for numbers in _batches(order[:half]):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
        before = resident_bytes()
        for numbers in _batches(order[half:]):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
        grown = resident_bytes() - before
        opened.flush()
        batches = list(_batches(order[::-1]))
        for place, numbers in enumerate(batches):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
            if place % max(1, len(batches) // _LOOKS) == 0:
                peak = max(peak, bytes_below(directory))
        opened.flush()
        peak = max(peak, bytes_below(directory))
    settled = bytes_below(directory)
    least = float(sizes.key_bytes + sizes.value_bytes)
    memory = grown / max(1, sizes.records - half)
    return asdict(Room(sizes.records, max(least, memory), settled / sizes.records, max(peak, settled) / sizes.records))


def _batches(numbers: Numbers) -> Iterator[Numbers]:
    return (numbers[start : start + LOAD_BATCH] for start in range(0, len(numbers), LOAD_BATCH))


if __name__ == "__main__":
    answer(Job.of, measure)

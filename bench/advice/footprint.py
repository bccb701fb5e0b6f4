"""What rows take of memory and disk in a backend: some are written, and then each of them again.

Rule of this module: ``measure`` runs in a process of its own that keeps no rows itself, so that what the process grows
by is the backend's alone.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from millpond.bench.advice.measured import Room
from millpond.bench.engines.distributions import Numbers
from millpond.bench.engines.worker import LOAD_BATCH
from millpond.bench.engines.workloads import Sizes, in_order
from millpond.bench.measure import bytes_below
from millpond.bench.report import resident_bytes
from millpond.bench.runs.leftovers import left_by_store
from millpond.bench.runs.process import reason
from millpond.bench.runs.recording import Values
from millpond.stores.registry import open_backend

_LOOKS: Final = 20


def room_of(backend: str, sizes: Sizes, directory: Path | None) -> Room | str:
    """What rows take in a backend, or why that could not be measured.

    Args:
        backend: its name or URL.
        sizes: how many rows, and of what sizes.
        directory: where its files go; the temporary directory by default.
    """
    with TemporaryDirectory(prefix="millpond-advise-", dir=directory) as temporary:
        place = Path(temporary, "store")
        found: Room | str
        try:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found = pool.submit(measure, backend, asdict(sizes), str(place)).result()
        except BrokenProcessPool:
            found = "its process died"
        except Exception as error:
            found = reason(error)
        left = left_by_store(backend, place)
        return found if left is None else left


def measure(backend: str, of_sizes: dict[str, int], place: str) -> Room:
    """Write the rows of ``of_sizes`` and then all of them again by chance; what they take of memory and disk."""
    sizes, directory = Sizes(**of_sizes), Path(place)
    values = Values(sizes.value_bytes, sizes.seed)
    order = np.random.default_rng(sizes.seed).permutation(sizes.records)
    half = max(1, sizes.records // 2)
    peak = 0
    with open_backend(backend, directory) as opened:
        for numbers in _batches(order[:half]):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
        before = resident_bytes()
        for numbers in _batches(order[half:]):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
        grown = resident_bytes() - before
        opened.flush()
        batches = list(_batches(order[::-1]))
        for place_, numbers in enumerate(batches):
            opened.write(dict(values.rows(in_order(sizes, numbers))))
            if place_ % max(1, len(batches) // _LOOKS) == 0:
                peak = max(peak, bytes_below(directory))
        opened.flush()
        peak = max(peak, bytes_below(directory))
    settled = bytes_below(directory)
    least = float(sizes.key_bytes + sizes.value_bytes)
    memory = grown / max(1, sizes.records - half)
    return Room(sizes.records, max(least, memory), settled / sizes.records, max(peak, settled) / sizes.records)


def _batches(numbers: Numbers) -> Iterator[Numbers]:
    return (numbers[start : start + LOAD_BATCH] for start in range(0, len(numbers), LOAD_BATCH))

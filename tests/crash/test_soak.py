"""The storage, the engines and the clock fail at any step, and the output equals an undisturbed run's.

``make soak`` runs the same for as long as one likes.
"""

import os
import shutil
import time
from pathlib import Path

import pytest

from millpond.stores.testing.faults.plan import fault_seed
from tests.crash.soak import BACKENDS, Query


def soak(directory: Path, histories: int, batches: int, backends: tuple[str, ...] = BACKENDS) -> int:
    """Run histories, each with a seed of its own; how many steps they had."""
    first, steps = fault_seed(), 0
    for seed in range(first, first + histories):
        query = Query(directory / str(seed), seed, backends)
        query.run(batches)
        steps += query.plan.steps.total()
        shutil.rmtree(directory / str(seed))
    return steps


@pytest.mark.parametrize(
    ("backends", "histories", "batches"), [(("memory", "lmdb"), 6, 20), (BACKENDS, 1, 8)], ids=["fast", "all"]
)
def test_whatever_fails_the_output_is_that_of_an_undisturbed_run(
    tmp_path: Path, backends: tuple[str, ...], histories: int, batches: int
) -> None:
    assert soak(tmp_path, histories, batches, backends) > 20 * histories * batches


@pytest.mark.long
@pytest.mark.parametrize(
    ("backends", "histories"),
    [(("memory",), 20), (("lmdb",), 10), (("rocksdb",), 2), (BACKENDS, 2)],
    ids=["memory", "lmdb", "rocksdb", "all"],
)
def test_however_long_it_fails_the_output_is_that_of_an_undisturbed_run(
    tmp_path: Path, backends: tuple[str, ...], histories: int
) -> None:
    assert soak(tmp_path, histories, 40, backends) > 20 * histories * 40


@pytest.mark.skipif("MILLPOND_SOAK_SECONDS" not in os.environ, reason="make soak SECONDS=... runs it")
def test_soak_for_as_long_as_one_likes(tmp_path: Path) -> None:
    end = time.monotonic() + float(os.environ["MILLPOND_SOAK_SECONDS"])
    while time.monotonic() < end:
        print(f"{soak(tmp_path, 1, 100)} steps", flush=True)

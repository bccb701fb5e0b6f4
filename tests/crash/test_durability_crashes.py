"""A process that dies at any write, to the storage or to a backend, loses nothing that was committed.

A child ends at its n-th write, before, in the middle of, or right after it, for every n until the child survives. Then
the parent opens the task as a successor would.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from millpond.stores.durability import Manifest
from tests.crash.durable_task import KEPT, Nursery, commit, content, expected, task
from tests.drawing import steps


@dataclass(frozen=True)
class Case:
    """The state of the local copy, the commit that the child tries, and the manifest that it starts from."""

    local_at: int
    opened: int


CASES = {
    "a delta": Case(2, 2),
    "a snapshot": Case(4, 4),
    "a replay and a delta": Case(1, 3),
    "a restore from another branch and a delta": Case(4, 2),
    "a restore of an empty copy and a delta": Case(0, 3),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


SLOW_TO_OPEN = {"rocksdb": ["a delta", "a restore from another branch and a delta"]}


@pytest.mark.parametrize(
    ("backend", "name"),
    [(backend, name) for backend in ("memory", "lmdb", "rocksdb") for name in SLOW_TO_OPEN.get(backend, CASES)],
)
def test_a_death_at_any_write_loses_nothing_that_was_committed(
    tmp_path: Path, nursery: Nursery, backend: str, name: str
) -> None:
    case, template = CASES[name], tmp_path / "template"
    manifests = prepare(template, backend, case)
    before = manifests[case.opened - 1]
    for fuse in steps(backend):
        directory = tmp_path / str(fuse)
        shutil.copytree(template, directory)
        survived = nursery.survives(directory, backend, fuse, before, case.opened + 1)
        with task(directory, backend) as successor:
            assert content(successor, before) == expected(case.opened)
            after = commit(successor, before, case.opened + 1)
            assert content(successor, after) == expected(case.opened + 1)
        with task(directory, "memory") as elsewhere:
            assert content(elsewhere, after) == expected(case.opened + 1)
        shutil.rmtree(directory)
        if survived:
            break
    assert fuse > 5, "nobody died"


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_processes_serve_a_task_in_turn(tmp_path: Path, nursery: Nursery, backend: str) -> None:
    with task(tmp_path, backend) as here:
        manifest = commit(here, None, 1)
        for number in range(2, 8, 2):
            assert nursery.survives(tmp_path, backend, 0, manifest, number)
            manifest = Manifest.from_json((tmp_path / KEPT).read_text())
            assert content(here, manifest) == expected(number)
            manifest = commit(here, manifest, number + 1)
        assert manifest.sequence == 7


def prepare(directory: Path, backend: str, case: Case) -> list[Manifest]:
    """Commit as often as the case needs, so that the local copy stands where the case wants it."""
    manifests: list[Manifest] = []
    for number in range(1, max(case.local_at, case.opened) + 1):
        local = "local" if number <= case.local_at else "elsewhere"
        with task(directory, backend, local=local) as state:
            manifests.append(commit(state, manifests[-1] if manifests else None, number))
    shutil.rmtree(directory / "elsewhere", ignore_errors=True)
    return manifests

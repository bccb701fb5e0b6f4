"""Each way to another format, with a micro-batch on the way, and a process that dies at any step of it.

The child opens its task in the other format, commits, and closes it, and ends at its n-th write, or change of a name,
for every n until it survives. Then the parent does the same as a successor would.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millpond.stores.durability import Manifest
from tests.crash.durable_task import Nursery, commit, content, expected, task
from tests.drawing import steps

UNKNOWN = -1


@dataclass(frozen=True)
class Way:
    """The history before the child starts, and what the child does.

    Attributes:
        before: the formats of each commit before, and whether they were upgraded in place.
        formats: those of the child.
        in_place: whether the child upgrades in place.
        rewritten: whether the local copies were opened once more in the newer formats.
    """

    before: tuple[tuple[str, bool], ...]
    formats: str = "newer"
    in_place: bool = False
    rewritten: bool = False


OLD = (("older", False), ("older", False))
WAYS = {
    "offline": Way(OLD),
    "in place: it begins": Way(OLD, in_place=True),
    "in place: it goes on": Way((*OLD, ("newer", True)), in_place=True),
    "in place: a restart before it is prepared": Way((*OLD, ("newer", True))),
    "in place: it changes over": Way((*OLD, ("newer", True), ("newer", True), ("newer", True))),
    "a downgrade": Way(OLD, formats="older", rewritten=True),
    "a downgrade in the middle of an upgrade in place": Way((*OLD, ("newer", True)), formats="older"),
}
BACKENDS = {
    "memory": ["offline", "a downgrade"],
    "lmdb": list(WAYS),
    "rocksdb": list(WAYS),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def _cases() -> Iterator[Any]:
    """Yield each way on each backend; RocksDB opens too slowly for every run."""
    for backend, names in BACKENDS.items():
        marks = [pytest.mark.long] if backend == "rocksdb" else []
        for name in names:
            yield pytest.param(backend, name, marks=marks, id=f"{backend}, {name}")


@pytest.mark.parametrize(("backend", "name"), list(_cases()))
def test_a_death_on_the_way_to_another_format_loses_nothing(
    tmp_path: Path, nursery: Nursery, backend: str, name: str
) -> None:
    way, template = WAYS[name], tmp_path / "template"
    before, number = prepare(template, backend, way), len(way.before) + 1
    for fuse in steps(backend):
        directory = tmp_path / str(fuse)
        shutil.copytree(template, directory)
        survived = nursery.survives(
            directory, backend, fuse, before, number, formats=way.formats, in_place=way.in_place
        )
        with task(directory, backend, formats=way.formats, in_place=way.in_place) as successor:
            assert values(content(successor, before)) == expected(number - 1)
            after = commit(successor, before, number)
            assert values(content(successor, after)) == expected(number)
        with task(directory, backend, formats="newer") as upgraded:
            last = commit(upgraded, after, number + 1)
            assert values(content(upgraded, last)) == expected(number + 1)
        with task(directory, "memory", formats="newer") as elsewhere:
            assert times(content(elsewhere, last)) == known_times(way, number + 1)
        shutil.rmtree(directory)
        if survived:
            break
    assert fuse > 5, "nobody died"


def prepare(directory: Path, backend: str, way: Way) -> Manifest:
    """Commit as often as the way needs."""
    manifest: Manifest | None = None
    for number, (formats, in_place) in enumerate(way.before, 1):
        with task(directory, backend, formats=formats, in_place=in_place) as state:
            manifest = commit(state, manifest, number)
    assert manifest is not None
    if way.rewritten:
        with task(directory, backend, formats="newer") as state:
            content(state, manifest)
    return manifest


def values(found: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the stores, without the timestamps of words."""
    words = {key: value if isinstance(value, int) else value.value for key, value in found["words"].items()}
    return {**found, "words": words}


def times(found: dict[str, Any]) -> dict[str, int]:
    """Return the timestamps of words."""
    return {key: value.timestamp for key, value in found["words"].items()}


def known_times(way: Way, number: int) -> dict[str, int]:
    """Return the timestamps that are known after the last commit: those of words that were written timestamped."""
    formats = [*(one for one, _ in way.before), way.formats, "newer"]
    return {
        key: value * 1000 if formats[value - 1] == "newer" else UNKNOWN
        for key, value in expected(number)["words"].items()
    }

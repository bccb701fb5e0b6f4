"""A process that dies at any write, to the storage or to a backend, loses nothing that was committed.

Each case runs in a forked child that ends at its n-th write, before, in the middle of, or right after it, for every n
until the child survives. Then the parent opens the task as a successor would.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

from millpond.stores.backend import Backend, BackendSupplier, Changes, Entries, load
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.registry import supplier
from millpond.stores.serdes import INT64, STRING
from millpond.stores.specs import StoreKind, StoreSpec

SPECS = [
    StoreSpec("words", StoreKind.KEY_VALUE, STRING, INT64),
    StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
]
DEATH = 77


class Bomb:
    """Ends the process at its n-th tick."""

    def __init__(self, fuse: int) -> None:
        self._fuse = fuse

    def tick(self) -> None:
        self._fuse -= 1
        if self._fuse == 0:
            os._exit(DEATH)


class BombedStream:
    def __init__(self, stream: Any, bomb: Bomb) -> None:
        self._stream = stream
        self._bomb = bomb

    def write(self, data: Any) -> None:
        half = len(data) // 2
        self._stream.write(bytes(data)[:half])
        self._stream.flush()
        self._bomb.tick()
        self._stream.write(bytes(data)[half:])


@dataclass(frozen=True)
class BombedStorage(Storage):
    bomb: Bomb

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        self.bomb.tick()
        with super().writing(path) as stream:
            yield BombedStream(stream, self.bomb)
        self.bomb.tick()


class BombedBackend(Backend):
    def __init__(self, backend: Backend, bomb: Bomb) -> None:
        self.max_key_size = backend.max_key_size
        self._backend = backend
        self._bomb = bomb

    def get(self, key: bytes) -> bytes | None:
        return self._backend.get(key)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._backend.scan(start, stop, reverse=reverse)

    def write(self, changes: Changes) -> None:
        self._bomb.tick()
        self._backend.write(changes)
        self._bomb.tick()

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        def ticking() -> Iterator[tuple[bytes, bytes]]:
            for entry in entries:
                self._bomb.tick()
                yield entry

        load(self._backend, ticking())
        self._bomb.tick()

    def flush(self) -> None:
        self._backend.flush()

    def close(self) -> None:
        self._backend.close()


class BombedSupplier(BackendSupplier):
    def __init__(self, inner: BackendSupplier, bomb: Bomb) -> None:
        vars(self).update(name=inner.name, persistent=inner.persistent)
        self._inner = inner
        self._bomb = bomb

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        raise NotImplementedError

    def open(self, directory: Path) -> Backend:
        return BombedBackend(self._inner.open(directory), self._bomb)


def task(directory: Path, backend: str, bomb: Bomb | None = None, local: str = "local") -> TaskState:
    inner, plain = supplier(backend), Storage.from_uri(directory / "state")
    return TaskState(
        SPECS,
        inner if bomb is None else BombedSupplier(inner, bomb),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=plain if bomb is None else BombedStorage(plain.uri, bomb),
        fingerprint="one",
        policy=DurabilityPolicy(max_deltas=3, retained_commits=1, retained_age=0),
    )


def commit(state: TaskState, manifest: Manifest | None, number: int) -> Manifest:
    """The ``number``-th batch: it changes, adds and deletes in both stores."""
    stores: Any = state.open(manifest)
    stores["words"].put_all([("last", number), (f"k{number}", number), (f"k{number - 2}", None)])
    stores["times"].put("last", number, number * 1000)
    stores["times"].put(f"k{number % 2}", number, number)
    return state.commit()


def expected(number: int) -> dict[str, Any]:
    """What the stores hold after the ``number``-th batch."""
    words = {"last": number, **{f"k{kept}": kept for kept in range(max(1, number - 1), number + 1)}}
    times = {"last": (number, number * 1000), **{f"k{kept % 2}": (kept, kept) for kept in range(1, number + 1)}}
    return {"words": words, "times": times}


def content(state: TaskState, manifest: Manifest) -> dict[str, Any]:
    stores: Any = state.open(manifest)
    found = {name: dict(store.scan()) for name, store in stores.items()}
    state.rollback()
    return found


def survives(act: Callable[[], object]) -> bool:
    """Do ``act`` in a child; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DEATH), "the child failed by itself"
    return code == 0


@dataclass(frozen=True)
class Case:
    """Where the local copy stands, and which commit the child tries, from which manifest."""

    local_at: int
    opened: int


CASES = {
    "a delta": Case(2, 2),
    "a snapshot": Case(4, 4),
    "a replay and a delta": Case(1, 3),
    "a restore from another branch and a delta": Case(4, 2),
    "a restore of an empty copy and a delta": Case(0, 3),
}


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("name", CASES)
def test_a_death_at_any_write_loses_nothing_that_was_committed(tmp_path: Path, backend: str, name: str) -> None:
    case, template = CASES[name], tmp_path / "template"
    manifests = prepare(template, backend, case)
    before = manifests[case.opened - 1]
    for fuse in count(1):
        directory = tmp_path / str(fuse)
        shutil.copytree(template, directory)

        def act(directory: Path = directory, fuse: int = fuse) -> None:
            commit(task(directory, backend, Bomb(fuse)), before, case.opened + 1)

        survived = survives(act)
        with task(directory, backend) as successor:
            assert content(successor, before) == expected(case.opened)
            after = commit(successor, before, case.opened + 1)
            assert content(successor, after) == expected(case.opened + 1)
        with task(directory, backend, local="elsewhere") as elsewhere:
            assert content(elsewhere, after) == expected(case.opened + 1)
        shutil.rmtree(directory)
        if survived:
            break
    assert fuse > 5, "the bomb never went off"


def prepare(directory: Path, backend: str, case: Case) -> list[Manifest]:
    """Commit as often as the case needs, so that the local copy stands where the case wants it."""
    manifests: list[Manifest] = []
    for number in range(1, max(case.local_at, case.opened) + 1):
        local = "local" if number <= case.local_at else "elsewhere"
        with task(directory, backend, local=local) as state:
            manifests.append(commit(state, manifests[-1] if manifests else None, number))
    shutil.rmtree(directory / "elsewhere", ignore_errors=True)
    return manifests

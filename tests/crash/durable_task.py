"""A small task with two stores, and processes that die in the middle of its commits.

Children are forked from a nursery, a process that has imported everything and used nothing: forking one that has
threads may hang the child.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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
KEPT = "manifest.json"
"""Where a child that survives leaves its manifest."""


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
        self._writes = 0

    def write(self, data: Any) -> None:
        half = len(data) // 2
        self._stream.write(bytes(data)[:half])
        self._writes += 1
        if self._writes % 8 == 0:
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
            for number, entry in enumerate(entries):
                if number % 4 == 1:
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


class Nursery:
    """Commits in processes of their own, each of which dies at a given tick."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        program = f"import sys; sys.path.insert(0, {root!r}); from tests.crash.durable_task import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def survives(self, directory: Path, backend: str, fuse: int, manifest: Manifest, number: int) -> bool:
        """Whether the commit came to its end before the bomb went off."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{directory}\t{backend}\t{fuse}\t{manifest.to_json()}\t{number}\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, DEATH), f"the child failed by itself: {code}"
        return code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def serve() -> None:
    """In the nursery: fork a child for each line, and tell how it ended."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                _run(*line.rstrip("\n").split("\t"))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(directory: str, backend: str, fuse: str, manifest: str, number: str) -> None:
    kept = commit(task(Path(directory), backend, Bomb(int(fuse))), Manifest.from_json(manifest), int(number))
    (Path(directory) / KEPT).write_text(kept.to_json())

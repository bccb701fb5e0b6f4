"""A small task with two stores, and processes that die in the middle of its commits.

Children are forked from a nursery, a process that has imported everything and used nothing: forking one that has
threads may hang the child.
"""

import os
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultyStorage, FaultySupplier, Step
from millpond.stores.testing.faults.plan import DEATH_STATUS
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

SPECS = [
    StoreSpec("words", StoreKind.KEY_VALUE, STRING, INT64),
    StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
]
STAMPED = [replace(SPECS[0], kind=StoreKind.TIMESTAMPED_KEY_VALUE, checksums=True), replace(SPECS[1], checksums=True)]
FORMATS = {"older": SPECS, "newer": STAMPED}
"""What the stores may be kept in: the words plain, or timestamped; both without checksums, or with them."""
KEPT = "manifest.json"
"""Where a child that survives leaves its manifest."""


WRITING = (
    Step.FILE_CREATE,
    Step.FILE_WRITE,
    Step.FILE_FINISH,
    Step.FILE_DELETE,
    Step.BACKEND_LOAD,
    Step.BACKEND_WRITE,
    Step.BACKEND_WRITTEN,
    Step.BACKEND_FLUSH,
    Step.BACKEND_CLOSE,
)
"""Where a death can leave something behind."""


def task(
    directory: Path,
    backend: str,
    plan: FaultPlan | None = None,
    local: str = "local",
    *,
    formats: str = "older",
    in_place: bool = False,
) -> TaskState:
    chosen, storage = supplier(backend), Storage.from_uri(directory / "state")
    return TaskState(
        FORMATS[formats],
        chosen if plan is None else FaultySupplier(chosen, plan),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=storage if plan is None else FaultyStorage.over(storage, plan),
        fingerprint="one",
        policy=DurabilityPolicy(max_deltas=3, retained_commits=1, retained_age=0, prepared_rows=2, prepared_share=1e9),
        upgrade_mode=UpgradeMode.IN_PLACE if in_place else None,
    )


def commit(state: TaskState, manifest: Manifest | None, number: int) -> Manifest:
    """Return the ``number``-th batch: it changes, adds and deletes in both stores."""
    stores: Any = state.open(manifest)
    stamp = [number * 1000] if isinstance(stores["words"], TimestampedKeyValueStore) else []
    for key, value in (("last", number), (f"k{number}", number), (f"k{number - 2}", None)):
        stores["words"].put(key, value, *stamp)
    stores["times"].put("last", number, number * 1000)
    stores["times"].put(f"k{number % 2}", number, number)
    return state.commit()


def expected(number: int) -> dict[str, Any]:
    """Return what the stores hold after the ``number``-th batch."""
    words = {"last": number, **{f"k{kept}": kept for kept in range(max(1, number - 1), number + 1)}}
    times = {"last": (number, number * 1000), **{f"k{kept % 2}": (kept, kept) for kept in range(1, number + 1)}}
    return {"words": words, "times": times}


def content(state: TaskState, manifest: Manifest) -> dict[str, Any]:
    stores: Any = state.open(manifest)
    found = {name: dict(store.scan()) for name, store in stores.items()}
    state.rollback()
    return found


class Nursery:
    """Commits in processes of their own, each of which dies at a given step."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        program = f"import sys; sys.path.insert(0, {root!r}); from tests.crash.durable_task import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def survives(
        self,
        directory: Path,
        backend: str,
        fuse: int,
        manifest: Manifest,
        number: int,
        *,
        formats: str = "older",
        in_place: bool = False,
    ) -> bool:
        """Return whether the commit came to its end before it was its turn to die."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        how = directory, backend, fuse, manifest.to_json(), number, formats, int(in_place)
        print(*how, sep="\t", file=self._process.stdin)
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, DEATH_STATUS), f"the child failed by itself: {code}"
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
    """Fork a child for each line, in the nursery, and tell how it ended."""
    import_module("pandas")  # as PyArrow does when it is first used, which is in each child
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


def _run(directory: str, backend: str, fuse: str, manifest: str, number: str, formats: str, in_place: str) -> None:
    plan = FaultPlan.at(int(fuse), Fault.DEATH, *WRITING)
    rename = Path.rename

    def mortal(path: Path, target: Path) -> Path:
        """Return a directory that changes its name is a step, too."""
        plan.meet(Step.FILE_FINISH)
        return rename(path, target)

    Path.rename = mortal  # type: ignore[method-assign, assignment]
    state = task(Path(directory), backend, plan, formats=formats, in_place=bool(int(in_place)))
    with state:
        kept = commit(state, Manifest.from_json(manifest), int(number))
    (Path(directory) / KEPT).write_text(kept.to_json())

"""The state that tasks keep between micro-batches: over backends alone, or with durable files and manifests.

A process that dies has not committed: over backends alone nothing of a micro-batch is left; with durable files those
tasks that had run have written theirs, and the next process begins with the manifests of the micro-batch before.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from millpond.processors.distribution.plan import Plan
from millpond.processors.pond.local_stores import LocalStores
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are fast, if there is such a place."""
POLICY = DurabilityPolicy(max_deltas=2, retained_commits=3, retained_age=0, retained_forks=0)


class Keeper(ABC):
    """Keeps the stores of the tasks of a query."""

    @abstractmethod
    def task(self, place: str, part: Subtopology, plan: Plan) -> AbstractContextManager[Mapping[str, Any]]:
        """Return the stores of a task, while it runs."""

    @abstractmethod
    def commit(self) -> None:
        """Let the micro-batch count."""

    @abstractmethod
    def die(self) -> None:
        """Let the micro-batch not count, and another process go on."""

    @abstractmethod
    def restart(self) -> None:
        """Restart: another process goes on after what counts."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


class BackendKeeper(Keeper):
    """Stores over backends alone.

    Args:
        directory: where they are.
        backend: their name.
    """

    def __init__(self, directory: Path, backend: str) -> None:
        self._directory = directory
        self._backend = backend
        self._stores = LocalStores(directory, backend)

    def task(self, place: str, part: Subtopology, plan: Plan) -> AbstractContextManager[Mapping[str, Any]]:
        return self._stores.task(place, part, plan)

    def commit(self) -> None:
        self._stores.commit()

    def die(self) -> None:
        self._stores.rollback()

    @property
    def backends(self) -> Collection[Backend]:
        """Return the backends of all stores so far."""
        return self._stores.backends

    def restart(self) -> None:
        """Restart; what is in memory stays."""
        if self._backend != "memory":
            self.close()
            self._stores = LocalStores(self._directory, self._backend)

    def close(self) -> None:
        self._stores.close()


class DurableKeeper(Keeper):
    """Stores with durable files, whose process is restarted with the next backend after each death.

    Args:
        directory: where durable files and local copies are.
        backends: their names, in turn.
        loses: whether a process that dies loses its local copies.
    """

    def __init__(self, directory: Path, backends: tuple[str | BackendSupplier, ...], *, loses: bool) -> None:
        self._local = directory / "local"
        self.storage = Storage.from_uri(f"file://{directory}/state?sync=false")
        self._backends = cycle(backends)
        self._loses = loses
        self._runs = 0
        self._states: dict[str, TaskState] = {}
        self.committed: dict[str, Manifest] = {}
        self._written: dict[str, Manifest] = {}
        self.restart()

    def restart(self) -> None:
        with ExitStack() as stack:
            for state in self._states.values():
                stack.callback(state.close)
        self._states = {}
        self._backend = next(self._backends)
        self._runs += 1

    def fingerprint_of(self, application: str, plan: Plan) -> str:
        """Return what the manifests of an application call their topology."""
        return plan.fingerprint

    def start_of(self, place: str) -> Manifest | None:
        """Return the manifest with which a task starts a micro-batch."""
        return self.committed.get(place)

    @contextmanager
    def task(self, place: str, part: Subtopology, plan: Plan) -> Iterator[Mapping[str, Any]]:
        if not part.stores:
            yield {}
            return
        if place not in self._states:
            application, _, task = place.partition("/")
            self._states[place] = TaskState(
                list(part.stores.values()),
                supplier(self._backend),
                application_id=application,
                task_id=task,
                local_dir=self._local,
                storage=self.storage,
                fingerprint=self.fingerprint_of(application, plan),
                policy=POLICY,
                run=f"{self._runs:032x}",
                exclusive=True,
            )
        state = self._states[place]
        try:
            yield state.open(self.start_of(place))
            self._written[place] = Manifest.from_json(state.commit().to_json())
        except BaseException as error:
            state.rollback(error)
            raise

    def committed_by(self, application: str) -> list[Manifest]:
        """Return the manifests of an application's tasks."""
        return [one for one in self.committed.values() if one.application_id == application]

    def begin(self, application: str, bases: Mapping[str, Manifest]) -> None:
        """Let the tasks of an application begin with these manifests."""
        self.committed |= {f"{application}/{task}": manifest for task, manifest in bases.items()}

    def commit(self) -> None:
        self.committed |= self._written
        self._written = {}

    def die(self) -> None:
        self._written = {}
        self.restart()
        if self._loses:
            shutil.rmtree(self._local, ignore_errors=True)

    def close(self) -> None:
        self.restart()

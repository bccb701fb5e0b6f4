"""A process that dies at any step: what it has in memory is gone, and its files are as they were at that step."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from millpond.adapters.inspect import StateInspector
from millpond.errors import MillpondError
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.evolution.evolving import Work
from millpond.stores.testing import Fault, FaultPlan, FaultyStorage, Step
from millpond.stores.testing.faults.plan import POSSIBLE

RETAINED = 3
"""So many micro-batches before the last one can be gone back to."""
POLICY = DurabilityPolicy(
    max_deltas=2,
    step_rows=6,
    retained_commits=RETAINED,
    retained_age=0,
    retained_forks=0,
    prepared_rows=4,
    prepared_share=1e9,
)

Place: TypeAlias = tuple[int, int]
Checkpoint: TypeAlias = dict[Place, Manifest]
"""By the number of the operator, and that of the task."""


class DeathError(Exception):
    """The process is gone."""


@dataclass
class Deaths:
    """Ends the process at a step: from then on nothing it does has an effect.

    Attributes:
        local: the directory of the local copies, which is kept as it is at that step.
        image: where.
        left: how many steps it still lives; None for ever.
    """

    local: Path
    image: Path
    left: int | None = None

    @property
    def dead(self) -> bool:
        return self.left is not None and self.left <= 0

    def __call__(self, step: Step) -> Fault | None:
        if self.left is None or (step in _HARMLESS and not self.dead):
            return None
        self.left -= 1
        if self.left == 0:
            _duplicate(self.local, self.image)
        return Fault.ERROR if self.dead and Fault.ERROR in POSSIBLE[step] else None


_HARMLESS = (Step.BACKEND_GET, Step.BACKEND_SCAN, Step.FILE_READ, Step.FILE_LIST)
"""A death there is one before the next step, or after the last one."""


def _duplicate(local: Path, image: Path) -> None:
    """Duplicate a directory while engines have it open; a file that one deletes meanwhile is damage to be healed."""

    def copied(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy(source, target)

    if local.exists():
        shutil.copytree(local, image, copy_function=copied)


@dataclass(frozen=True)
class HeldCheckpoint:
    """The answers of a query's checkpoint, as it stands."""

    location: str
    batch: int | None
    places: Checkpoint
    operators: int = 0

    def chosen(self, _: int | None) -> int:
        assert self.batch is not None
        return self.batch

    def last(self) -> int | None:
        return self.batch

    def held(self) -> tuple[int | None, dict[int, list[Manifest]]]:
        operators: dict[int, list[Manifest]] = {operator: [] for operator in range(self.operators)}
        for (operator, _), manifest in self.places.items():
            operators[operator].append(manifest)
        return self.batch, operators if self.batch is not None else {}

    def manifests(self, _: int | None = None) -> list[Manifest]:
        return list(self.places.values())

    @property
    def storage(self) -> Storage:
        return Storage.from_uri(self.location)


@dataclass
class Process:
    """Durable files, local copies and states of tasks, served by processes, one after the other."""

    directory: Path
    batch: int | None = None
    checkpoint: Checkpoint = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.local = self.directory / "local"
        self.deaths = Deaths(self.local, self.directory / "image")
        self.plan_of_faults = FaultPlan(self.deaths)
        self.storage = Storage.from_uri(f"file://{self.directory}/state?sync=false")
        self.states: dict[Any, TaskState] = {}
        self.runs = 0

    @property
    def run_id(self) -> str:
        return f"{self.runs:032x}"

    @property
    def held(self) -> HeldCheckpoint:
        return HeldCheckpoint(str(self.directory / "checkpoint"), self.batch, self.checkpoint)

    def inspector(self, storage: Storage) -> StateInspector:
        """Return an inspector of the state of this job, which is not running."""
        checkpoint: Any = self.held
        return StateInspector(checkpoint, storage)

    def edit(self, edit: Callable[[StateInspector], None], *, death: int | None = None) -> None:
        """Edit the state while the query does not run."""
        self.stop()
        self.runs += 1
        with self.dying_at(death):
            edit(self.inspector(self.faulty_storage))

    @property
    def faulty_storage(self) -> Storage:
        return FaultyStorage.over(self.storage, self.plan_of_faults)

    @contextmanager
    def dying_at(self, step: int | None) -> Iterator[None]:
        """Die at that step, if it is reached: everything that was in memory is gone.

        Raises:
            DeathError: it was reached.
        """
        self.deaths.left = step
        try:
            yield
        except MillpondError:
            if not self.deaths.dead:
                raise
        died, self.deaths.left = self.deaths.dead, None
        if died:
            self.stop()
            shutil.rmtree(self.local, ignore_errors=True)
            if self.deaths.image.exists():
                self.deaths.image.rename(self.local)
            raise DeathError

    def stop(self) -> None:
        with ExitStack() as stack:
            for state in self.states.values():
                stack.callback(state.close)
            self.states = {}

    def lose_local_copies(self) -> None:
        self.stop()
        shutil.rmtree(self.local, ignore_errors=True)


def in_process(work: Work) -> list[Mapping[str, str]]:
    return list(map(work.run, range(work.units)))

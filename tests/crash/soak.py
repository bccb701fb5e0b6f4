"""Random histories of a query whose storage, engines and clock fail at every step, against an undisturbed run.

A query runs one micro-batch after the other: it opens its task at the manifest that it has kept, processes, commits,
and keeps the new manifest. Meanwhile attempts fail and are repeated, twins run the same batch on two hosts, zombies
commit when nobody waits for them any more, the query restarts at an earlier manifest or on another backend, and garbage
is collected. Whatever happens, what each batch puts out and what it finds in its stores is what an undisturbed run puts
out and finds. Attempts may fail only where a fault explains it.
"""

import random
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from millpond.errors import CorruptFileError, MillpondError, MissingFileError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, collect_garbage, read_rows
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultyClock, FaultyStorage, FaultySupplier

SPECS = [
    StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64),
    StoreSpec("latest", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
    StoreSpec("prices", StoreKind.VERSIONED, STRING, INT64, history_retention=40),
]
HOSTS = ("one", "two", "three")
BACKENDS = ("memory", "lmdb", "rocksdb")
RETAINED = 4
STEP_ROWS = (1, 4, 1 << 16)
"""With the last one, snapshots are written at once."""
FORKS = (0, 3_600_000)
"""How long the files of an earlier run of the query are protected, in milliseconds."""
ATTEMPTS = 60
"""After so many failures of one batch something is wrong that is no fault of the plan's."""

Output: TypeAlias = list[tuple[Any, ...]]
Content: TypeAlias = dict[str, list[Any]]


def process(stores: Any, seed: int, number: int) -> Output:
    """Return the ``number``-th micro-batch: what it puts out depends on all that was written before."""
    chance = random.Random(f"{seed}/{number}")
    output: Output = []
    for _ in range(chance.randrange(12)):
        key, at = chance.choice("abcdefgh"), number * 10 + chance.randrange(-30, 10)
        count = (stores["counts"].get(key) or 0) + 1
        latest = stores["latest"].get(key)
        output.append((key, count, latest, stores["prices"].get_value(key, as_of=at)))
        stores["counts"].put(key, count if chance.random() < 0.8 else None)
        stores["latest"].put(key, None if chance.random() < 0.2 else at, at)
        stores["prices"].put(key, count, max(at, 0))
    return output


def content(stores: Any) -> Content:
    return {spec.name: list(stores[spec.name].scan()) for spec in SPECS}


class Expected(NamedTuple):
    """The output of an undisturbed run in a batch, and the content of its stores afterwards."""

    output: Output
    content: Content


class Undisturbed:
    """The same batches in memory, without anything that is under test but the stores."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._transactions = {spec.name: Transaction(MemoryBackend()) for spec in SPECS}
        self._known = [Expected([], {spec.name: [] for spec in SPECS})]

    def after(self, number: int) -> Expected:
        while len(self._known) <= number:
            stores = {spec.name: spec.open(self._transactions[spec.name]) for spec in SPECS}
            output = process(stores, self._seed, len(self._known))
            self._known.append(Expected(output, content(stores)))
            for store in stores.values():
                store.flush()
        return self._known[number]


Attempt: TypeAlias = Generator[None, None, Manifest]
"""Stops after it has opened its task and after it has processed its batch; returns the new manifest."""


@dataclass
class Query:
    """One query on ``directory``, in a history that ``seed`` determines."""

    directory: Path
    seed: int
    backends: tuple[str, ...] = BACKENDS
    kept: list[Manifest | None] = field(default_factory=lambda: [None])
    """What Spark has kept: a manifest for each batch."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self.plan = FaultPlan.seeded(self.seed, rate=self._chance.choice([0.003, 0.01, 0.03]))
        self._policy = DurabilityPolicy(
            max_deltas=3,
            step_rows=STEP_ROWS[self.seed % len(STEP_ROWS)],
            retained_commits=RETAINED,
            retained_age=0,
            retained_forks=self._chance.choice(FORKS),
        )
        self._storage = Storage.from_uri(f"file://{self.directory}/state?sync=false")
        self._clock = FaultyClock(self.plan, time.time_ns() // 1_000_000)
        self._undisturbed = Undisturbed(self.seed)
        self._states: dict[tuple[str, str], TaskState] = {}
        self._zombies: dict[str, Attempt] = {}
        self._oldest = 0
        self._run = 0
        self.failures = 0

    def run(self, batches: int) -> None:
        """Run until so many batches are committed, then look at all of it once more without faults."""
        with self.plan, ExitStack() as stack:
            stack.callback(self._restart)
            while len(self.kept) <= batches:
                self._disturb()
                self._run_batch()
            self._restart()
            with self.plan.quiet():
                for path in list(self.plan.lies):
                    self._put_back(path)
                self._read_durable_state()
                for backend in self.backends:
                    with closing(self._attempt("one", backend)) as attempt:
                        next(attempt)

    def _disturb(self) -> None:
        happenings = [self._restart, self._go_back, self._wake_zombie, self._collect_garbage, self._read_durable_state]
        if self._chance.random() < 0.4:
            self._tolerate(self._chance.choice(happenings))

    def _run_batch(self) -> None:
        number = len(self.kept)
        for _ in range(ATTEMPTS):
            free = [host for host in HOSTS if host not in self._zombies]
            twins = self._chance.sample(free, 2) if len(free) > 1 and self._chance.random() < 0.2 else free[:1]
            attempts = [self._attempt(host, self._chance.choice(self.backends)) for host in twins]
            manifests = self._interleave(attempts)
            if manifests and len(free) > 1 and self._chance.random() < 0.1:
                self._make_zombie(free[-1])
            if manifests:
                self.kept.append(self._chance.choice(manifests))
                self._oldest = max(self._oldest, number - RETAINED)
                return
        raise AssertionError(f"batch {number} failed {ATTEMPTS} times")

    def _attempt(self, host: str, backend: str) -> Attempt:
        number, before = len(self.kept), self.kept[-1]
        state = self._state(host, backend)
        try:
            stores = state.open(before)
            assert content(stores) == self._undisturbed.after(number - 1).content, f"batch {number} on {backend}"
            yield
            output = process(stores, self.seed, number)
            assert output == self._undisturbed.after(number).output, f"batch {number} on {backend}"
            yield
            return Manifest.from_json(state.commit().to_json())
        except BaseException as error:
            self._roll_back(state, error)
            raise

    def _roll_back(self, state: TaskState, error: BaseException) -> None:
        try:
            state.rollback(error)
        except MillpondError:
            state.close()

    def _interleave(self, attempts: list[Attempt]) -> list[Manifest]:
        """Run attempts side by side, and give the manifests of those that came to their end."""
        manifests: list[Manifest] = []
        running = list(attempts)
        while running:
            attempt = self._chance.choice(running)
            manifest = self._tolerate(lambda: self._advance(attempt))  # noqa: B023
            if manifest is not None:
                manifests.append(manifest)
            if getgeneratorstate(attempt) == GEN_CLOSED:
                running.remove(attempt)
        return manifests

    def _advance(self, attempt: Attempt) -> Manifest | None:
        try:
            next(attempt)
        except StopIteration as end:
            manifest: Manifest = end.value
            return manifest
        return None

    def _make_zombie(self, host: str) -> None:
        attempt = self._attempt(host, self._chance.choice(self.backends))
        for _ in range(self._chance.randrange(1, 3)):
            self._tolerate(lambda: self._advance(attempt))
        if getgeneratorstate(attempt) != GEN_CLOSED:
            self._zombies[host] = attempt

    def _wake_zombie(self) -> None:
        """Bring an attempt that nobody waits for to its end, one way or the other."""
        for host, attempt in list(self._zombies.items()):
            del self._zombies[host]
            self._interleave([attempt])

    @property
    def _run_id(self) -> str:
        return f"{self._run:032x}"

    def _state(self, host: str, backend: str) -> TaskState:
        if (host, backend) not in self._states:
            self._states[host, backend] = TaskState(
                SPECS,
                FaultySupplier(supplier(backend), self.plan),
                application_id="app",
                task_id="0_0",
                local_dir=self.directory / host,
                storage=FaultyStorage.over(self._storage, self.plan),
                fingerprint="one",
                policy=self._policy,
                run=self._run_id,
                lease_timeout=0.01,
            )
        return self._states[host, backend]

    def _restart(self) -> None:
        for attempt in self._zombies.values():
            attempt.close()
        with self.plan.quiet():
            for state in self._states.values():
                state.close()
        self._zombies.clear()
        self._states.clear()
        self._run += 1

    def _go_back(self) -> None:
        """Restart at one of the batches that are retained."""
        self._restart()
        del self.kept[max(self._oldest + 1, len(self.kept) - self._chance.randrange(RETAINED)) :]

    def _collect_garbage(self) -> None:
        manifest = self.kept[-1]
        if manifest is not None:
            storage = FaultyStorage.over(self._storage, self.plan)
            collect_garbage(storage, manifest, self._policy, self._run_id, now_ms=self._clock())

    def _read_durable_state(self) -> None:
        manifest = self.kept[-1]
        if manifest is None:
            return
        storage, expected = FaultyStorage.over(self._storage, self.plan), self._undisturbed.after(len(self.kept) - 1)
        found = {key: value for key, value, _ in read_rows(storage, manifest, SPECS[0])}
        assert found == dict(expected.content["counts"])

    def _tolerate(self, happening: Any) -> Any:
        """Let it fail if a fault explains that."""
        before = len(self.plan.met)
        try:
            return happening()
        except MillpondError as error:
            self.failures += 1
            if not self._cure(error) and not self._explains(before):
                raise
            return None

    def _explains(self, before: int) -> bool:
        return any(fault not in (Fault.DELAY, Fault.JUMP) for _, fault in self.plan.met[before:])

    def _cure(self, error: MillpondError) -> bool:
        """Put back the file that the error complains of, as its message asks for, if it is one that a storage lost."""
        if not isinstance(error, CorruptFileError | MissingFileError):
            return False
        lost = [path for path in self.plan.lies if path in str(error)]
        for path in lost:
            self._put_back(path)
        return bool(lost)

    def _put_back(self, path: str) -> None:
        file = self.directory / "state" / path
        if file.exists():
            file.write_bytes(self.plan.lies[path])
        del self.plan.lies[path]

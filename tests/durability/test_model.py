"""Random histories of a task, with restarts, other backends, other machines, zombies and going back, against dicts."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.drawing import tries

SPECS = [
    StoreSpec("plain", StoreKind.KEY_VALUE, BYTES, BYTES),
    StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, BYTES),
]
POLICY = DurabilityPolicy(max_deltas=3, retained_commits=4, retained_age=0)
"""With it, snapshots are written at once."""

keys = st.binary(max_size=2) | st.sampled_from([b"\x00commit", b"\x01", b"long" * 300])
batches = st.lists(
    st.tuples(st.sampled_from(["plain", "times"]), keys, st.none() | st.binary(max_size=9), st.integers(-9, 9)),
    max_size=8,
)
backends = st.sampled_from(["memory", "lmdb", "rocksdb"])
machines = st.sampled_from(["here", "there"])

Content = dict[str, dict[bytes, Any]]


class TaskMachine(RuleBasedStateMachine):
    """``history`` is what Spark retains: each committed manifest, and what the stores held then."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.states: dict[tuple[str, str], TaskState] = {}
        self.history: list[tuple[Manifest | None, Content]] = [(None, {"plain": {}, "times": {}})]

    @initialize(step_rows=st.sampled_from([1, 2, 1 << 16]))
    def begin(self, step_rows: int) -> None:
        self.storage = Storage.from_uri(self.directory / "state")
        self.policy = replace(POLICY, step_rows=step_rows)

    def state(self, backend: str, machine: str) -> TaskState:
        if (backend, machine) not in self.states:
            self.states[backend, machine] = TaskState(
                SPECS,
                supplier(backend),
                application_id="app",
                task_id="0_0",
                local_dir=self.directory / machine,
                storage=self.storage,
                fingerprint="one",
                policy=self.policy,
            )
        return self.states[backend, machine]

    @rule(backend=backends, machine=machines, batch=batches)
    def commit(self, backend: str, machine: str, batch: list[Any]) -> None:
        self.history.append(self._commit(backend, machine, batch))

    @rule(backend=backends, machine=machines, batch=batches)
    def lose(self, backend: str, machine: str, batch: list[Any]) -> None:
        """Run an attempt whose manifest nobody keeps."""
        self._commit(backend, machine, batch)

    @rule(backend=backends, machine=machines, batch=batches)
    def fail(self, backend: str, machine: str, batch: list[Any]) -> None:
        state = self.state(backend, machine)
        self._apply(state.open(self.history[-1][0]), batch)
        state.rollback()

    @rule(steps=st.integers(0, 3))
    def go_back(self, steps: int) -> None:
        """Restart Spark at an earlier batch. It retains as many batches as the policy does."""
        del self.history[max(1, len(self.history) - steps) :]

    @rule()
    def restart(self) -> None:
        for state in self.states.values():
            state.close()
        self.states.clear()

    @rule(machine=machines)
    def lose_the_machine(self, machine: str) -> None:
        self.restart()
        shutil.rmtree(self.directory / machine, ignore_errors=True)

    def _commit(self, backend: str, machine: str, batch: list[Any]) -> tuple[Manifest, Content]:
        manifest, content = self.history[-1]
        state = self.state(backend, machine)
        stores = state.open(manifest)
        assert {name: dict(store.scan()) for name, store in stores.items()} == content  # type: ignore[attr-defined]
        self._apply(stores, batch)
        content = {name: dict(entries) for name, entries in content.items()}
        for name, key, value, time in batch:
            if value is None:
                content[name].pop(key, None)
            else:
                content[name][key] = value if name == "plain" else (value, time)
        return Manifest.from_json(state.commit().to_json()), content

    def _apply(self, stores: Any, batch: list[Any]) -> None:
        for name, key, value, time in batch:
            if name == "plain":
                stores[name].put(key, value)
            else:
                stores[name].put(key, value, time)

    @invariant()
    def what_is_retained_can_be_read(self) -> None:
        for manifest, content in self.history[-2:]:
            if manifest is not None:
                for spec in SPECS:
                    found = {key: (value, time) for key, value, time in read_rows(self.storage, manifest, spec)}
                    plain = spec.name == "plain"
                    assert found == {key: (v, None) if plain else v for key, v in content[spec.name].items()}

    def teardown(self) -> None:
        self.restart()
        shutil.rmtree(self.directory)


TestTask = TaskMachine.TestCase
TestTask.settings = settings(
    max_examples=tries(25), stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

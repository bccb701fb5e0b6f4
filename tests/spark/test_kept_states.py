"""The states that a Python worker keeps of its tasks, within one budget of memory; without Spark."""

import logging
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drawing import tries

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.adapters.spark import SparkStreams
from millpond.adapters.spark.job.worker_settings import worker_settings
from millpond.adapters.spark.worker.kept_states import IDLE_SECONDS, KeptStates, Owner
from millpond.adapters.spark.worker.worker import THIS_WORKER, StateSettings
from millpond.errors import ConfigurationError
from millpond.metrics import StoreMetric
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.spark.orders import rated_orders

KIB, MIB = 2**10, 2**20
ROWS = 100
"""Of a step, which take about 20 KiB."""


class Worker:
    """One worker that serves tasks, and what they should have in their stores.

    Args:
        directory: of durable files and local copies.
        budget: the memory budget of its queries.
        backend: of the store ``counts``.
        more: stores beside it.
    """

    def __init__(
        self, directory: Path, budget: int | None, backend: str | BackendSupplier = "memory", *more: StoreSpec
    ) -> None:
        self.kept = KeptStates()
        self.budget = budget
        self.states: dict[str, TaskState] = {}
        self.restores: Counter[str] = Counter()
        self.expected: dict[str, Counter[str]] = {}
        self._specs = [StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64), *more]
        self._backend = supplier(backend)
        self._directory = directory
        self._manifests: dict[str, Manifest] = {}
        self._clock = 0.0

    @property
    def held(self) -> dict[str, int]:
        """Return what each task has in memory."""
        return {task: size for task, state in self.states.items() if (size := state.memory_use())}

    def serve(self, task: str, rows: int = ROWS, *, query: str = "query", run: str = "run", seconds: int = 1) -> None:
        """Run a micro-batch that counts so many new keys of a task, and some that it knows."""
        self._clock += seconds
        owner = Owner(("place", "app", query), run, self.budget)
        with self.kept.at_work(owner, task, lambda: self._made(task), self._clock) as state:
            assert state is self.states[task]
            others = {name: size for name, size in self.held.items() if name != task}
            store: Any = state.open(self._manifests.get(task))["counts"]
            expected = self.expected.setdefault(task, Counter())
            assert dict(store.scan()) == expected
            for number in range(len(expected) // 2, len(expected) + rows):
                name = f"key {number:05d} of a row that takes some room"
                store.put(name, (store.get(name) or 0) + 1)
                expected[name] += 1
            self.restores[task] += state.metrics.figures.get(f"counts:{StoreMetric.RESTORE_FULL}", 0)
            assert {name: size for name, size in self.held.items() if name != task} == others
            self._manifests[task] = state.commit()
            assert state.memory_use() == sum(
                amount for name, amount in state.metrics.figures.items() if name.endswith(StoreMetric.MEMORY_HELD)
            )

    def fail(self, task: str) -> None:
        """Run a micro-batch of a task that fails."""
        owner = Owner(("place", "app", "query"), "run", self.budget)
        with self.kept.at_work(owner, task, lambda: self._made(task), self._clock) as state:
            state.rollback()
            raise RuntimeError("of the user")

    def _made(self, task: str) -> TaskState:
        self.states[task] = TaskState(
            self._specs,
            self._backend,
            application_id="app",
            task_id=task,
            local_dir=self._directory / "local",
            storage=Storage.from_uri(self._directory / "state"),
            memory_budget=self.budget,
        )
        return self.states[task]


STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([0, 1, 30, 300])), min_size=1, max_size=14)


@settings(max_examples=tries(25), deadline=None)
@given(STEPS, st.sampled_from([1, 30 * KIB, 100 * KIB, 400 * KIB]))
def test_in_whatever_order_tasks_come_idle_rows_keep_within_the_budget_and_nothing_is_lost(
    steps: list[tuple[str, int]], budget: int
) -> None:
    with TemporaryDirectory() as directory:
        worker = Worker(Path(directory), budget)
        for task, rows in steps:
            worker.serve(task, rows)
            held = worker.held
            assert sum(held.values()) <= budget or list(held) == [task]
            assert task in held


def test_without_a_budget_all_rows_stay(tmp_path: Path) -> None:
    worker = Worker(tmp_path, None)
    for task in "abcabcabc":
        worker.serve(task)
    assert set(worker.held) == set("abc")
    assert worker.restores.total() == 0


def test_of_tasks_that_come_in_turns_only_as_many_are_restored_as_there_is_no_room_for(tmp_path: Path) -> None:
    whole = Worker(tmp_path / "whole", None)
    for task in "abcdefgh":
        whole.serve(task)
    worker = Worker(tmp_path / "bounded", sum(whole.held.values()) - 1)
    for turn in range(4):
        before = worker.restores.total()
        for task in "abcdefgh":
            worker.serve(task, ROWS if turn == 0 else 0)
        assert worker.restores.total() - before <= (0 if turn == 0 else 1)


def test_a_task_that_has_moved_elsewhere_goes_before_those_that_still_come(tmp_path: Path) -> None:
    whole = Worker(tmp_path / "whole", None)
    for task in "abcd":
        whole.serve(task)
    worker = Worker(tmp_path / "bounded", sum(whole.held.values()) + KIB)
    for task in "abcdacdacd":
        worker.serve(task, 0 if task in worker.held else ROWS)
    assert set(worker.held) == set("abcd")
    worker.serve("e")
    worker.serve("c", 0)
    worker.serve("e")
    assert "b" not in worker.held
    assert {"a", "c", "e"} <= set(worker.held)


def test_a_state_that_alone_is_too_large_stays_while_it_is_alone_and_one_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(tmp_path, 50 * KIB)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            worker.serve("large", 400)
        assert worker.restores.total() == 0
        assert worker.held["large"] > 50 * KIB
        worker.serve("small", 1)
        assert set(worker.held) == {"small"}
        worker.serve("large", 1)
        assert worker.restores["large"] == 1
    (record,) = [one for one in caplog.records if one.name.endswith("kept_states")]
    said = record.getMessage()
    assert "task large of application 'app'" in said
    assert f"memory_budget leaves {50 * KIB} for rows" in said
    assert "rocksdb or lmdb" in said


def test_the_budget_is_for_the_tasks_of_all_queries_and_the_smallest_counts(tmp_path: Path) -> None:
    worker = Worker(tmp_path, None)
    for task in "abc":
        worker.serve(task, query=task)
    worker.budget = 50 * KIB
    worker.serve("d", query="d")
    assert sum(worker.held.values()) <= 50 * KIB
    worker.budget = MIB
    worker.serve("e", query="e")
    assert sum(worker.held.values()) <= 50 * KIB


def test_what_an_earlier_run_has_left_and_what_is_long_idle_are_let_go_of(tmp_path: Path) -> None:
    worker = Worker(tmp_path, None)
    worker.serve("a")
    worker.serve("b", query="other")
    first = worker.states["a"]
    worker.serve("a", run="next")
    assert first.memory_use() == 0
    assert worker.states["a"] is not first
    worker.serve("a", run="next", seconds=int(IDLE_SECONDS) + 1)
    assert set(worker.held) == {"a"}


def test_what_fails_is_let_go_of_when_another_task_comes(tmp_path: Path) -> None:
    worker = Worker(tmp_path, 30 * KIB)
    worker.serve("a", 50)
    with pytest.raises(RuntimeError, match="of the user"):
        worker.fail("a")
    worker.serve("b", 130)
    assert set(worker.held) == {"b"}


def test_an_idle_task_on_lmdb_holds_no_memory_and_maps_no_file(tmp_path: Path) -> None:
    worker = Worker(tmp_path, 1, "lmdb")
    for task in "abab":
        worker.serve(task)
    assert worker.held == {}
    assert worker.restores.total() == 0
    assert str(tmp_path / "local") not in Path("/proc/self/maps").read_text()


def capacity(directory: Path, budget: int) -> int:
    """Return the bytes that RocksDB's shared cache may take in this process."""
    with RocksDbSupplier(memory_budget=budget).open(directory) as backend:
        found: int = backend._db.property_int_value("rocksdb.block-cache-capacity")
    return found


def test_rocksdb_has_what_rows_in_memory_leave_of_the_budget_and_at_least_half(tmp_path: Path) -> None:
    budget = 9 * MIB  # no other test's, because the cache is the process's
    cached = StoreSpec("cached", StoreKind.KEY_VALUE, STRING, INT64, backend="rocksdb")
    worker = Worker(tmp_path, budget, "memory", cached)
    worker.serve("a", 1_000)
    assert capacity(tmp_path / "other", budget) == budget - worker.held["a"]
    for task in "bcbcde":
        worker.serve(task, 9_000)
        assert capacity(tmp_path / "other", budget) == max(budget - sum(worker.held.values()), budget - budget // 2)
    assert worker.restores.total() > 0
    assert sum(worker.held.values()) <= budget // 2


def test_a_task_whose_backend_has_another_budget_is_refused(tmp_path: Path) -> None:
    worker = Worker(tmp_path, 64 * MIB, "rocksdb://?memory_budget=32MiB")
    with pytest.raises(ConfigurationError, match=r"memory_budget=33554432, but .* 67108864 bytes .*; leave out"):
        worker.serve("a")
    Worker(tmp_path, 32 * MIB, "rocksdb://?memory_budget=32MiB").serve("a")
    with pytest.raises(ConfigurationError, match=r"'memory_budget'.*at least"):
        Worker(tmp_path, MIB, "rocksdb").serve("a")


def restored_in_turns(settings: StateSettings, part: Subtopology) -> list[int]:
    """Return how many copies were filled anew, of two tasks in turn that change a store and come three times."""
    manifests: dict[int, Manifest] = {}
    restored = []
    for partition in (0, 1) * 3:
        with THIS_WORKER.task_state(settings, part, partition) as state:
            store: Any = state.open(manifests.get(partition))["sums"]
            store.put("tea", [1, 2], 3)
            manifests[partition] = state.commit()
            restored.append(state.metrics.figures.get(f"sums:{StoreMetric.RESTORE_FULL}", 0))
    return restored


@pytest.mark.spark
def test_a_worker_keeps_within_the_budget_that_the_job_or_its_session_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restored(number: int, **options: Any) -> list[int]:
        monkeypatch.setattr(THIS_WORKER, "_states", KeptStates())
        where: dict[str, Any] = {"state_dir": str(tmp_path / "state"), "partitions": 2, "backend": "memory"}
        job = SparkStreams(rated_orders(), application_id=f"job-{number}", **where, **options)._job
        plan = job.plan(spark, rated_orders(), "totals")
        settings = worker_settings(job, spark, plan, TimeUnit.MILLISECOND, streaming=True)
        return restored_in_turns(settings, next(part for part in plan.parts if "sums" in part.stores))

    assert restored(0) == [0] * 6
    assert restored(1, memory_budget="1 kB") == [0, 0, 1, 1, 1, 1]
    spark.conf.set("spark.millpond.memory_budget", "1 kB")
    try:
        assert restored(2) == [0, 0, 1, 1, 1, 1]
        assert restored(3, memory_budget=10 * MIB) == [0] * 6
    finally:
        spark.conf.unset("spark.millpond.memory_budget")

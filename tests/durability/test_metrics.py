"""The metrics that a task's state takes of its stores, from ``open`` to ``commit``."""

from dataclasses import replace
from pathlib import Path
from shutil import disk_usage
from time import monotonic_ns
from typing import Any

import pytest

from millpond.errors import DurabilityError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from tests.durability.one_store import COUNTS, add, key, task


@pytest.fixture(params=["memory", "lmdb", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def of_files(state: TaskState) -> tuple[int, int, int]:
    figures = state.metrics.figures
    return figures["file.rows"], figures["file.size"], figures["file.snapshots"]


def test_a_commit_tells_the_rows_that_change_and_what_its_durable_file_has(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend, policy=DurabilityPolicy(max_deltas=1)) as state:
        manifest: Manifest | None = None
        for keys, rows, snapshot in ((range(10), 10, 1), (range(8, 12), 4, 0), (range(1), 12 + 1, 1)):
            manifest = add(state, manifest, keys)
            assert state.metrics.figures["counts:commit.rows"] == len(keys)
            stored = [path.stat().st_size for path in (tmp_path / "state").rglob(f"*{manifest.commit}*")]
            assert of_files(state) == (rows, sum(stored), snapshot)
        assert len(stored) == 2, "a snapshot, and the delta beside it"


def test_a_commit_without_a_change_writes_nothing(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        manifest = add(state, None, range(3))
        assert add(state, manifest, range(0)) == manifest
        written = {name for name in state.metrics.figures if "file." in name or "engine." in name or "rows" in name}
        assert written == set()
        assert {"open.duration", "commit.duration"} <= state.metrics.figures.keys()


def test_rows_that_a_local_copy_gets_from_durable_files_are_told_once(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as here, task(tmp_path, backend, local="elsewhere") as there:
        first = add(here, None, range(10))
        assert "counts:restore.rows" not in here.metrics.figures
        second = add(there, first, range(5, 20))
        assert there.metrics.figures["counts:restore.rows"] == 10
        third = add(here, second, range(1))
        assert here.metrics.figures["counts:restore.rows"] == 15
        add(here, third, range(1))
        assert "counts:restore.rows" not in here.metrics.figures
        assert "counts:restore.duration" not in here.metrics.figures


def test_the_size_of_a_local_copy_is_that_of_its_files(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        add(state, None, range(10))
        copies = [path for path in (tmp_path / "local").rglob("counts*") if path.is_dir()]
        files = [path.stat().st_size for copy in copies for path in copy.rglob("*") if path.is_file()]
        assert state.metrics.figures.get("counts:copy.size") == (sum(files) if backend != "memory" else None)
        disk = disk_usage(tmp_path)
        expected = {"disk.size": disk.total, "disk.free": pytest.approx(disk.free, rel=0.2)}
        measured = {name: amount for name, amount in state.metrics.figures.items() if name.startswith("disk.")}
        assert measured == (expected if backend != "memory" else {})


def test_the_disk_is_measured_if_any_store_has_files_there(tmp_path: Path) -> None:
    stores = [COUNTS, replace(COUNTS, name="others", backend="memory")]
    where: dict[str, Any] = {"local_dir": tmp_path / "local", "storage": Storage.from_uri(tmp_path / "state")}
    with TaskState(stores, supplier("lmdb"), application_id="app", task_id="0_0", **where) as state:
        add(state, None, range(3))
        assert state.metrics.figures["disk.size"] == disk_usage(tmp_path).total


def test_the_memory_that_rows_take_is_told_of_those_that_are_nowhere_else(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        add(state, add(state, None, range(10)), range(1_000))
        held = state.metrics.figures.get("counts:memory.held")
        assert held == (state.memory_use() or None)
        assert (held is not None and held > 100_000) == (backend == "memory")
        state.close()
        assert state.memory_use() == 0


def test_the_times_are_parts_of_the_whole(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as here, task(tmp_path, backend, local="elsewhere") as there:
        first = add(here, None, range(2_000))
        begin = monotonic_ns()
        add(there, first, range(2_000))
        whole = (monotonic_ns() - begin) // 1_000
    took = {name: amount for name, amount in there.metrics.figures.items() if name.endswith("duration")}
    assert len(took) == 5
    assert min(took.values()) > 0
    assert took["counts:restore.duration"] <= took["open.duration"]
    assert took["file.duration"] + took["counts:engine.duration"] <= took["commit.duration"]
    assert took["open.duration"] + took["commit.duration"] <= whole


def test_a_commit_that_fails_has_written_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> Any:
        raise DurabilityError("full")

    with task(tmp_path, "memory") as state:
        manifest = add(state, None, range(3))
        with monkeypatch.context() as broken:
            broken.setattr("millpond.stores.durability.version_writer.write_file", full)
            with pytest.raises(DurabilityError):
                add(state, manifest, range(5))
        assert set(state.metrics.figures) == {"open.duration"}
        store: Any = state.open(manifest)["counts"]
        assert store.get(key(1)) == 1


def test_the_files_that_are_left_are_told_when_garbage_was_looked_for(tmp_path: Path) -> None:
    policy = DurabilityPolicy(max_deltas=2, retained_commits=4, retained_age="0 seconds")
    with task(tmp_path, "memory", policy=policy) as state:
        manifest: Manifest | None = None
        told = []
        for number in range(30):
            manifest = add(state, manifest, range(number, number + 3))
            left = state.metrics.figures.get("files.retained")
            if left is not None:
                told.append(left)
                assert left == len(list((tmp_path / "state").rglob("*.parquet")))
                assert state.metrics.figures["file.snapshots"] == 1
        assert len(told) > 3
        assert max(told) <= 12

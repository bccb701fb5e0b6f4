"""An engine that cannot be reached for a moment costs a retry, and no local copy."""

import shutil
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millpond.adapters.lmdb import LmdbBackend, LmdbSupplier
from millpond.errors import BackendUnavailableError
from millpond.stores.backend import BackendSupplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.registry import supplier
from millpond.stores.serdes import INT64, STRING
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step

SPEC = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
STEPS = (Step.BACKEND_OPEN, Step.BACKEND_GET, Step.BACKEND_SCAN, Step.BACKEND_WRITE, Step.BACKEND_FLUSH)


def task(directory: Path, engine: BackendSupplier, spec: StoreSpec = SPEC) -> TaskState:
    return TaskState(
        [spec],
        engine,
        application_id="app",
        task_id="0_0",
        local_dir=directory / "local",
        storage=Storage.from_uri(directory / "state"),
    )


def add(state: TaskState, manifest: Manifest | None) -> Manifest:
    store: Any = state.open(manifest)["counts"]
    for key in ("a", "b", "c"):
        store.put(key, (store.get(key) or 0) + 1)
    return state.commit()


def content(state: TaskState, manifest: Manifest) -> dict[str, int]:
    store: Any = state.open(manifest)["counts"]
    found = dict(store.scan())
    state.rollback()
    return found


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("retried_by", ["the same process", "another one"])
def test_an_absence_at_any_step_is_over_with_a_retry_and_without_a_restore(
    tmp_path: Path, backend: str, retried_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    engine = supplier(backend)
    for number in count(1):
        place = tmp_path / str(number)
        with task(place, engine) as state:
            before = add(state, None)
        plan = FaultPlan.at(number, Fault.AWAY, *STEPS)
        caplog.clear()
        with task(place, FaultySupplier(engine, plan)) as state:
            if not plan.met:
                try:
                    add(state, before)
                except BackendUnavailableError:
                    assert plan.met
            if plan.met and retried_by == "the same process":
                after = add(state, before)
                assert content(state, after) == {"a": 2, "b": 2, "c": 2}
        with task(place, engine) as state:
            assert content(state, before) == {"a": 1, "b": 1, "c": 1}
        if not plan.met:
            break
        assert "restoring" not in caplog.text
        shutil.rmtree(place)
    assert number > 4


class GoneAtTheEnd(LmdbBackend):
    """Cannot be reached when it is closed."""

    def close(self) -> None:
        super().close()
        raise BackendUnavailableError("the service is gone")


@dataclass(frozen=True)
class GoneSupplier(LmdbSupplier):
    def open(self, directory: Path) -> GoneAtTheEnd:
        return GoneAtTheEnd(directory, map_size=2**20, sync=False, readahead=True)


def test_an_absence_when_a_copy_is_closed_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with task(tmp_path, GoneSupplier()) as state:
        manifest = add(state, None)
    assert "closed without its engine: the service is gone" in caplog.text
    caplog.clear()
    with task(tmp_path, LmdbSupplier()) as state:
        assert content(state, manifest) == {"a": 1, "b": 1, "c": 1}
    assert "restoring" not in caplog.text


def test_a_copy_of_another_kind_is_not_deleted_because_its_engine_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with task(tmp_path, LmdbSupplier()) as state:
        manifest = add(state, None)
    with_times = replace(SPEC, kind=StoreKind.TIMESTAMPED_KEY_VALUE)
    plan = FaultPlan.at(1, Fault.AWAY, Step.BACKEND_OPEN)
    with task(tmp_path, FaultySupplier(LmdbSupplier(), plan), with_times) as state:
        with pytest.raises(BackendUnavailableError):
            state.open(manifest)
        store: Any = state.open(manifest)["counts"]
        assert dict(store.scan()) == dict.fromkeys(("a", "b", "c"), (1, -1))
    assert "deleting" not in caplog.text
    assert "migrating" in caplog.text

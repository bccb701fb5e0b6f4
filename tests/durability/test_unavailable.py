"""An engine that cannot be reached for a moment costs a retry, and no local copy."""

import shutil
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millpond.adapters.lmdb import LmdbBackend, LmdbSupplier
from millpond.errors import BackendUnavailableError
from millpond.stores.backend.registry import supplier
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.durability.one_store import COUNTS, add, content, key, task

KEYS = range(3)
STEPS = (Step.BACKEND_OPEN, Step.BACKEND_GET, Step.BACKEND_SCAN, Step.BACKEND_WRITE, Step.BACKEND_FLUSH)


def counted(number: int) -> dict[str, int]:
    """Return what the store holds once each key has come so often."""
    return dict.fromkeys(map(key, KEYS), number)


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
            before = add(state, None, KEYS)
        plan = FaultPlan.at(number, Fault.AWAY, *STEPS)
        caplog.clear()
        with task(place, FaultySupplier(engine, plan)) as state:
            if not plan.met:
                try:
                    add(state, before, KEYS)
                except BackendUnavailableError:
                    assert plan.met
            if plan.met and retried_by == "the same process":
                after = add(state, before, KEYS)
                assert content(state, after) == counted(2)
        with task(place, engine) as state:
            assert content(state, before) == counted(1)
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
        manifest = add(state, None, KEYS)
    assert "closed without its engine: the service is gone" in caplog.text
    caplog.clear()
    with task(tmp_path, LmdbSupplier()) as state:
        assert content(state, manifest) == counted(1)
    assert "restoring" not in caplog.text


def test_a_copy_of_another_kind_is_not_deleted_because_its_engine_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with task(tmp_path, LmdbSupplier()) as state:
        manifest = add(state, None, KEYS)
    with_times = replace(COUNTS, kind=StoreKind.TIMESTAMPED_KEY_VALUE)
    plan = FaultPlan.at(1, Fault.AWAY, Step.BACKEND_OPEN)
    with task(tmp_path, FaultySupplier(LmdbSupplier(), plan), with_times) as state:
        with pytest.raises(BackendUnavailableError):
            state.open(manifest)
        store: Any = state.open(manifest)["counts"]
        assert dict(store.scan()) == dict.fromkeys(map(key, KEYS), (1, -1))
    assert "deleting" not in caplog.text
    assert "migrating" in caplog.text

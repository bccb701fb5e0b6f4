"""A task that has one store, and what comes into it."""

from pathlib import Path
from typing import Any

from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

COUNTS = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)


def task(
    directory: Path,
    backend: str | BackendSupplier,
    spec: StoreSpec = COUNTS,
    *,
    local: str = "local",
    **options: Any,
) -> TaskState:
    """Return the task, with its durable files and its local copies below a directory."""
    return TaskState(
        [spec],
        supplier(backend),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=Storage.from_uri(directory / "state"),
        **options,
    )


def key(number: int) -> str:
    return f"key {number:03d}"


def add(state: TaskState, manifest: Manifest | None, keys: range, amount: int = 1) -> Manifest:
    """Return a micro-batch that adds to the counts of some keys."""
    store: Any = state.open(manifest)["counts"]
    for name in map(key, keys):
        store.put(name, (store.get(name) or 0) + amount)
    return state.commit()


def content(state: TaskState, manifest: Manifest | None) -> dict[str, Any]:
    """Return what the task finds in its store."""
    store: Any = state.open(manifest)["counts"]
    found = dict(store.scan())
    state.rollback()
    return found

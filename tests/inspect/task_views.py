"""Views of stores of tasks that no query runs."""

from pathlib import Path
from typing import Any

from millpond.adapters.inspect.columns import SerdeColumn
from millpond.adapters.inspect.store_form import StoreForm
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.inspect.store_view import StoreView
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.specs.store_spec import StoreSpec

Row = dict[str, Any]


def storage_in(directory: Path) -> Storage:
    return Storage.from_uri(directory / "state")


def task(directory: Path, spec: StoreSpec, *, number: int = 0, max_deltas: int = 64) -> TaskState:
    """Return a task of one store, with its durable files and its local copies below a directory."""
    return TaskState(
        [spec],
        supplier("memory"),
        application_id="app",
        task_id=f"0_{number}",
        local_dir=directory / "local",
        storage=storage_in(directory),
        policy=DurabilityPolicy(max_deltas=max_deltas),
    )


def view(
    storage: Storage,
    spec: StoreSpec,
    manifests: list[Manifest],
    *,
    batch: int = 0,
    partitions: int = 1,
    given: StoreSpec | None = None,
    is_global: bool = False,
) -> StoreView:
    """Return the tasks' view of a store, as a look finds it that knows no topology."""
    key, value = spec.key_serde, spec.value_serde
    columns = SerdeColumn(key), SerdeColumn(value)
    form = StoreForm(spec.name, spec.kind, spec.layout, *columns, TimeUnit.MILLISECOND, given)
    known = StoreShape(0, spec.name, spec.kind, key.name, value.name, spec.layout, key.name, is_global)
    parts = [StorePart(storage, one, form) for one in manifests]
    return StoreView("app", "sink", batch, known, partitions, form, parts)

"""Any store's content at any retained manifest, without a task."""

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import BackendError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows, read_store
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed

SPECS = {
    spec.name: spec
    for spec in [
        StoreSpec("plain", StoreKind.KEY_VALUE, STRING, INT64),
        StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
        StoreSpec("versions", StoreKind.VERSIONED, STRING, INT64, history_retention=1000),
        StoreSpec("windows", StoreKind.WINDOW, STRING, INT64, retention=1000, window_size=10),
        StoreSpec("stamped-windows", StoreKind.TIMESTAMPED_WINDOW, STRING, INT64, retention=1000, window_size=10),
        StoreSpec("sessions", StoreKind.SESSION, STRING, INT64, retention=1000),
        StoreSpec("stamped-sessions", StoreKind.TIMESTAMPED_SESSION, STRING, INT64, retention=1000),
    ]
}

FIRST: dict[str, list[tuple[Any, Any, int | None]]] = {
    "plain": [("a", 1, None)],
    "times": [("a", 1, 5)],
    "versions": [("a", 1, 5)],
    "windows": [(Windowed("a", 10, 20), 1, None)],
    "stamped-windows": [(Windowed("a", 10, 20), 1, 5)],
    "sessions": [(Windowed("a", 10, 15), 1, None)],
    "stamped-sessions": [(Windowed("a", 10, 15), 1, 5)],
}
SECOND: dict[str, list[tuple[Any, Any, int | None]]] = {
    "plain": [("a", 1, None), ("b", 2, None)],
    "times": [("a", 2, 6)],
    "versions": [("a", 1, 5), ("a", 2, 6)],
    "windows": [(Windowed("a", 10, 20), 1, None), (Windowed("a", 20, 30), 2, None)],
    "stamped-windows": [(Windowed("a", 10, 20), 2, 6)],
    "sessions": [(Windowed("b", 10, 15), 2, None)],
    "stamped-sessions": [(Windowed("a", 10, 15), 2, 6)],
}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path / "state")


@pytest.fixture
def manifests(tmp_path: Path, storage: Storage) -> list[Manifest]:
    options: dict[str, Any] = {"application_id": "app", "task_id": "0_0", "local_dir": tmp_path / "local"}
    with TaskState(list(SPECS.values()), supplier("memory"), storage=storage, **options) as state:
        stores: Any = state.open(None)
        stores["plain"].put("a", 1)
        stores["times"].put("a", 1, 5)
        stores["versions"].put("a", 1, 5)
        stores["windows"].put("a", 1, 10)
        stores["stamped-windows"].put("a", 1, 5, 10)
        stores["sessions"].put(Windowed("a", 10, 15), 1)
        stores["stamped-sessions"].put(Windowed("a", 10, 15), 1, 5)
        first = state.commit()
        stores = state.open(first)
        stores["plain"].put("b", 2)
        stores["times"].put("a", 2, 6)
        stores["versions"].put("a", 2, 6)
        stores["windows"].put("a", 2, 20)
        stores["stamped-windows"].put("a", 2, 6, 10)
        stores["sessions"].remove(Windowed("a", 10, 15))
        stores["sessions"].put(Windowed("b", 10, 15), 2)
        stores["stamped-sessions"].put(Windowed("a", 10, 15), 2, 6)
        return [first, state.commit()]


@pytest.mark.parametrize("name", SPECS)
def test_the_rows_of_every_kind_are_read_at_every_manifest(
    storage: Storage, manifests: list[Manifest], name: str
) -> None:
    assert list(read_rows(storage, manifests[0], SPECS[name])) == FIRST[name]
    assert list(read_rows(storage, manifests[1], SPECS[name])) == SECOND[name]


@pytest.mark.parametrize("name", SPECS)
def test_a_store_that_is_read_has_no_method_that_writes(storage: Storage, manifests: list[Manifest], name: str) -> None:
    store = read_store(storage, manifests[1], SPECS[name])
    writing = {"put", "put_many", "put_all", "put_if_absent", "delete", "remove", "flush"}
    writing |= {"put_metadata", "keep_metadata"}
    assert writing.isdisjoint(dir(store))
    assert type(store) is SPECS[name].kind.traits.read_only
    store.check()


def test_a_store_that_is_read_reads_all_that_its_kind_can(storage: Storage, manifests: list[Manifest]) -> None:
    store: Any = read_store(storage, manifests[1], SPECS["versions"])
    assert store.get_value("a", 5) == 1
    assert store.get_value("a") == 2


def test_durable_rows_are_a_backend_that_only_reads(storage: Storage, manifests: list[Manifest]) -> None:
    rows = DurableRows(storage, manifests[1], "plain", SPECS["plain"].format_version)
    found = list(rows.scan())
    keys = [key for key, _ in found]
    assert len(keys) == 2
    assert list(rows.scan(reverse=True)) == found[::-1]
    assert list(rows.scan(keys[1])) == found[1:]
    assert list(rows.scan(None, keys[1])) == found[:1]
    assert rows.get(keys[0]) == found[0][1]
    assert rows.get(b"nothing") is None
    with pytest.raises(BackendError, match="read only"):
        rows.write({b"key": b"value"})

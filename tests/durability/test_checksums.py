"""Rows with checksums in a task: what an engine hands out wrongly is noticed at the read, and the copy is restored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.checking.findings import Severity
from millpond.stores.durability.checking.verification import verify
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

BACKENDS = ["memory", "lmdb", "rocksdb"]


class Rotten(Backend):
    """Flips the last bit of data rows that are read."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [
            data[:-1] + bytes([data[-1] ^ 1]) if data and key[:1] == DATA else data
            for key, data in zip(keys, self._engine.get_many(keys), strict=True)
        ]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._engine.scan(start, stop, reverse=reverse)

    def write(self, changes: Changes) -> None:
        self._engine.write(changes)

    def flush(self) -> None:
        self._engine.flush()

    def close(self) -> None:
        self._engine.close()


class Rotting(BackendSupplier):
    """An engine that can be made to hand out other bytes than it was given."""

    def __init__(self, engine: str) -> None:
        self._engine = supplier(engine)
        vars(self).update(name=self._engine.name, persistent=self._engine.persistent, checksums=self._engine.checksums)
        self.rotten = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "Rotting":
        return cls("memory")

    def open(self, directory: Path) -> Backend:
        opened = open_backend(self._engine, directory)
        return Rotten(opened) if self.rotten else opened


def task(directory: Path, engine: BackendSupplier, *, checksums: bool) -> TaskState:
    return TaskState(
        [spec(checksums=checksums)],
        engine,
        application_id="app",
        task_id="0_0",
        local_dir=directory / "local",
        storage=Storage.from_uri(directory / "state"),
    )


def spec(*, checksums: bool) -> StoreSpec:
    return StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, checksums=checksums)


def commit(state: TaskState, manifest: Manifest | None, number: int) -> Manifest:
    store: Any = state.open(manifest)["counts"]
    store.put("tea", number, number)
    return state.commit()


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_wrong_bytes_are_noticed_where_they_are_read_and_the_copy_is_restored(tmp_path: Path, backend: str) -> None:
    engine = Rotting(backend)
    manifest = commit(task(tmp_path, engine, checksums=True), None, 2)
    engine.rotten = True
    with task(tmp_path, engine, checksums=True) as state:
        store: Any = state.open(manifest)["counts"]
        with pytest.raises(CorruptStoreError, match="fails its checksum") as found:
            store.get("tea")
        state.rollback(found.value)
    assert not list((tmp_path / "local" / "app" / "0_0" / backend).glob("counts*"))
    engine.rotten = False
    with task(tmp_path, engine, checksums=True) as state:
        reopened: Any = state.open(manifest)["counts"]
        assert reopened.get("tea") == (2, 2)


def test_without_checksums_nobody_notices(tmp_path: Path) -> None:
    engine = Rotting("lmdb")
    manifest = commit(task(tmp_path, engine, checksums=False), None, 2)
    engine.rotten = True
    with task(tmp_path, engine, checksums=False) as state:
        store: Any = state.open(manifest)["counts"]
        assert store.get("tea") == (3, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checksums_come_and_go_at_any_restart_and_durable_files_do_not_know(tmp_path: Path, backend: str) -> None:
    manifest, content = None, []
    for number, checksums in enumerate((False, True, True, False, True)):
        with task(tmp_path, supplier(backend), checksums=checksums) as state:
            manifest = commit(state, manifest, number)
            store: Any = state.open(manifest)["counts"]
            content.append(store.get("tea"))
        storage = Storage.from_uri(tmp_path / "state")
        assert list(read_rows(storage, manifest, spec(checksums=not checksums))) == [("tea", number, number)]
    assert content == [(number, number) for number in range(5)]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_copy_with_checksums_is_verified_against_the_durable_files(tmp_path: Path, backend: str) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with task(tmp_path, supplier(backend), checksums=True) as state:
        first = commit(state, None, 1)
        manifest = commit(state, first, 2)
    assert verify(storage, lambda: [manifest], local_dirs=[tmp_path / "local"]).findings == ()
    with open_backend(backend, tmp_path / "local" / "app" / "0_0" / backend / "counts-v5") as engine:
        engine.write({DATA + b"tea": b"not what its checksum says"})
    found = verify(storage, lambda: [manifest], local_dirs=[tmp_path / "local"]).findings
    assert [finding.severity for finding in found] == [Severity.HEALABLE]

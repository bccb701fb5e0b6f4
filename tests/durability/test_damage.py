"""Durable files that are gone, damaged, or not what they should be: found out and named, never taken for state."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import pytest

from millpond.errors import (
    CorruptFileError,
    CorruptStoreError,
    DurabilityError,
    MissingFileError,
    UnreadableRowError,
)
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.copies.position import boot_id, encode_position
from millpond.stores.durability.manifests.garbage import try_collect_garbage
from millpond.stores.encoding.keys import COMMIT_ROW, LAYOUT_ROW, TERMS_ROW
from millpond.stores.encoding.serdes import BYTES, INT64, STRING, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

SPEC = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)


def task(directory: Path, backend: str = "memory", **options: Any) -> TaskState:
    options = {"local_dir": directory / "local", "storage": Storage.from_uri(directory / "state"), **options}
    return TaskState([SPEC], supplier(backend), application_id="app", task_id="0_0", **options)


def commit(state: TaskState, manifest: Manifest | None, number: int) -> Manifest:
    store: Any = state.open(manifest)["times"]
    for key in range(20):
        store.put(f"key {key + number}", number, number)
    return state.commit()


def rows(directory: Path, manifest: Manifest) -> list[tuple[Any, Any, int | None]]:
    return list(read_rows(Storage.from_uri(directory / "state"), manifest, SPEC))


def paths(directory: Path, manifest: Manifest) -> list[Path]:
    return [directory / "state" / manifest.path(file) for file in manifest.files]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    manifest: Manifest | None = None
    with task(tmp_path) as state:
        for number in range(3):
            manifest = commit(state, manifest, number)
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_missing_file_is_named_with_the_manifest_that_needs_it(
    tmp_path: Path, manifest: Manifest, place: int
) -> None:
    path = paths(tmp_path, manifest)[place]
    path.unlink()
    with task(tmp_path) as state, pytest.raises(MissingFileError) as caught:
        state.open(manifest)
    for part in (str(path), "task '0_0'", "application 'app'", manifest.commit, "put it back"):
        assert part in str(caught.value)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("kept", [0, 3, 0.5, -1])
def test_a_truncated_file_is_damaged(tmp_path: Path, manifest: Manifest, place: int, kept: float) -> None:
    path = paths(tmp_path, manifest)[place]
    size = path.stat().st_size
    os.truncate(path, int(size * kept) if 0 < kept < 1 else int(kept) % size)
    with pytest.raises(CorruptFileError, match="damaged"):
        rows(tmp_path, manifest)


def test_a_file_under_the_name_of_another_is_damaged(tmp_path: Path, manifest: Manifest) -> None:
    _, one, other = paths(tmp_path, manifest)
    shutil.copy(one, other)
    with pytest.raises(CorruptFileError):
        rows(tmp_path, manifest)


def test_damage_found_by_the_engine_in_a_batch_makes_the_next_open_restore(tmp_path: Path, manifest: Manifest) -> None:
    with task(tmp_path, "rocksdb") as state:
        state.open(manifest)
        marker = next((tmp_path / "local").rglob("CURRENT")).parent / "mine"
        marker.touch()
        state.rollback(ValueError("something else"))
        assert marker.exists()
        state.open(manifest)
        damage = CorruptStoreError("a block fails its checksum")
        state.rollback(damage)
        assert not marker.exists()
        assert damage.__notes__ == [
            f"the local copies of task '0_0' of application 'app' in {tmp_path}/local/app/0_0 were thrown away, and "
            f"the next attempt restores them from {tmp_path}/state/; start the query again if it has ended"
        ]
        store: Any = state.open(manifest)["times"]
        assert store.get("key 0") is not None


def test_copies_are_thrown_away_unless_the_files_have_just_given_all_of_them(tmp_path: Path) -> None:
    def both() -> TaskState:
        return TaskState(
            [SPEC, replace(SPEC, name="others")], supplier("lmdb"), application_id="app", task_id="0_0", **options
        )

    options: dict[str, Any] = {"local_dir": tmp_path / "local", "storage": Storage.from_uri(tmp_path / "state")}
    with both() as state:
        for store in state.open(None).values():
            cast(Any, store).put("a", 1, 1)
        manifest = state.commit()
    copies = {path.name: path for path in (tmp_path / "local").rglob("*-v2")}
    assert set(copies) == {"times-v2", "others-v2"}
    for restored, told in ((["times-v2"], "were thrown away"), (list(copies), "hold it")):
        for name in restored:
            shutil.rmtree(copies[name])
        damage = CorruptStoreError("a row cannot be read")
        with both() as state:
            state.open(manifest)
            state.rollback(damage)
        assert told in damage.__notes__[0]
        with both() as state:
            state.open(manifest)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_damaged_local_copy_is_restored(tmp_path: Path, manifest: Manifest, backend: str) -> None:
    expected = rows(tmp_path, manifest)
    with task(tmp_path, backend) as state:
        state.open(manifest)
    for path in (tmp_path / "local").rglob("*"):
        if path.name in {"data.mdb", "CURRENT"}:
            path.write_bytes(b"rubbish" * 1000)
    with task(tmp_path, backend) as state:
        store: Any = state.open(manifest)["times"]
        assert [(key, found.value, found.timestamp) for key, found in store.scan()] == expected


def test_a_local_copy_of_another_boot_is_restored(tmp_path: Path, manifest: Manifest) -> None:
    with task(tmp_path, "rocksdb") as state:
        state.open(manifest)
    directory = next((tmp_path / "local").rglob("CURRENT")).parent
    with supplier("rocksdb").open(directory) as backend:
        position = backend.get(COMMIT_ROW) or b""
        assert position == encode_position(manifest)
        elsewhere = position.replace(boot_id().encode(), b"another-boot")
        backend.write({COMMIT_ROW: elsewhere, b"\x01stray": b"\x00" * 16})
    with task(tmp_path, "rocksdb") as state:
        store: Any = state.open(manifest)["times"]
        assert store.get("stray") is None
        assert store.get("key 0") is not None


def test_rows_without_a_position_are_not_trusted(tmp_path: Path, manifest: Manifest) -> None:
    with task(tmp_path, "rocksdb") as state:
        state.open(manifest)
    directory = next((tmp_path / "local").rglob("CURRENT")).parent
    with supplier("rocksdb").open(directory) as backend:
        backend.write({COMMIT_ROW: None, b"\x01stray": b"\x00" * 16})
    with task(tmp_path, "rocksdb") as state:
        store: Any = state.open(manifest)["times"]
        assert store.get("stray") is None
        assert store.get("key 0") is not None


def test_a_storage_that_refuses_changes_nothing(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / "state").rename(tmp_path / "away")
    (tmp_path / "state").write_text("a file where the directory should be")
    with task(tmp_path, local_dir=tmp_path / "local") as state:
        with pytest.raises(DurabilityError, match="cannot write"):
            commit(state, None, 7)
        (tmp_path / "state").unlink()
        (tmp_path / "away").rename(tmp_path / "state")
        store: Any = state.open(manifest)["times"]
        assert store.get("key 21").value == 2


def test_a_garbage_collection_that_fails_fails_no_commit(
    tmp_path: Path, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "state" / manifest.directory
    shutil.rmtree(directory)
    directory.write_text("a file where the directory should be")
    policy = DurabilityPolicy(retained_commits=1, retained_age=0)
    try_collect_garbage(Storage.from_uri(tmp_path / "state"), manifest, policy, "")
    assert "garbage of task '0_0' stays for now" in caplog.text


def test_the_memory_backend_is_restored_in_every_new_task(tmp_path: Path, manifest: Manifest) -> None:
    state = TaskState(
        [SPEC],
        MemorySupplier(),
        application_id="app",
        task_id="0_0",
        local_dir=tmp_path / "local",
        storage=Storage.from_uri(tmp_path / "state"),
    )
    store: Any = state.open(manifest)["times"]
    assert len(list(store.scan())) == 22


class Held(BackendSupplier):
    """An engine, of whose backends the test keeps hold."""

    name = "held"
    persistent = True
    opened: ClassVar[list[Backend]] = []

    def __init__(self, engine: str) -> None:
        self._engine = supplier(engine)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls("lmdb")

    def open(self, directory: Path) -> Backend:
        self.opened.append(self._engine.open(directory))
        return self.opened[-1]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize(
    "damaged",
    [{TERMS_ROW: b"rubbish"}, {TERMS_ROW: b'{"terms":9}'}, {LAYOUT_ROW: b"\x00\x00\x00\x09of nobody"}],
    ids=["damaged", "of a later release", "another layout"],
)
def test_a_copy_closed_with_damaged_metadata_is_restored_when_it_is_opened(
    tmp_path: Path, manifest: Manifest, backend: str, damaged: dict[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    engine, expected = Held(backend), rows(tmp_path, manifest)
    options: dict[str, Any] = {"local_dir": tmp_path / "local", "storage": Storage.from_uri(tmp_path / "state")}
    for _ in range(2):
        with TaskState([SPEC], engine, application_id="app", task_id="0_0", exclusive=True, **options) as state:
            store: Any = state.open(manifest)["times"]
            assert [(key, found.value, found.timestamp) for key, found in store.scan()] == expected
            state.rollback()
            Held.opened[-1].write(damaged)
    assert len([one for one in caplog.messages if "whose local copies have failed" in one]) == 1


def test_what_is_advised_for_rows_that_durable_files_hold_is_taken(tmp_path: Path) -> None:
    def counts(serde: Serde[Any]) -> TaskState:
        spec = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, serde)
        return TaskState([spec], supplier("lmdb"), application_id="app", task_id="0_0", **options)

    def total(state: TaskState, manifest: Manifest) -> list[tuple[str, Any]]:
        with state:
            store: Any = state.open(manifest)["counts"]
            return list(store.scan())

    options: dict[str, Any] = {"local_dir": tmp_path / "local", "storage": Storage.from_uri(tmp_path / "state")}
    manifests: list[Manifest] = []
    for serde, value in ((INT64, 1), (BYTES, b"two")):
        with counts(serde) as state:
            store: Any = state.open(manifests[-1] if manifests else None)["counts"]
            store.put("a", value)
            manifests.append(state.commit())
    with pytest.raises(UnreadableRowError, match="the int64 serde cannot read b'two'") as first:
        total(counts(INT64), manifests[1])
    assert "start the query again" in first.value.__notes__[0]
    with pytest.raises(UnreadableRowError) as again:
        total(counts(INT64), manifests[1])
    place = f"the durable files of task '0_0' of application 'app' in {tmp_path}/state/ hold it"
    advice = "read it with the serdes and the release that wrote it, or go back to an earlier micro-batch"
    assert again.value.__notes__ == [f"{place}; {advice}"]
    spec = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
    with pytest.raises(UnreadableRowError) as read:
        list(read_rows(options["storage"], manifests[1], spec))
    assert read.value.__notes__ == again.value.__notes__
    assert total(counts(BYTES), manifests[1]) == [("a", b"two")]
    assert total(counts(INT64), manifests[0]) == [("a", 1)]

"""Format versions of store directories: refused where unknown, migrated where older."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from millpond.errors import BackendError, FormatError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability import Manifest
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import older_versions, open_directory
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing.faults.backend import FaultySupplier
from millpond.stores.testing.faults.plan import Fault, FaultPlan, Step
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from tests.durability import one_store

PLAIN = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
TIMESTAMPED = StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
VERSIONED = StoreSpec("counts", StoreKind.VERSIONED, STRING, INT64, history_retention=1000)
PLAIN_WINDOW = StoreSpec("counts", StoreKind.WINDOW, STRING, INT64, retention=1000, window_size=10)
TIMESTAMPED_WINDOW = StoreSpec("counts", StoreKind.TIMESTAMPED_WINDOW, STRING, INT64, retention=1000, window_size=10)


@pytest.fixture(params=["lmdb", "rocksdb"])
def engine(request: pytest.FixtureRequest) -> BackendSupplier:
    return supplier(request.param)


def directory_of(tmp_path: Path, engine: BackendSupplier, spec: StoreSpec) -> Path:
    return store_directory(tmp_path, "app", "0_0", engine.name, spec)


def write_plain(tmp_path: Path, engine: BackendSupplier) -> Path:
    directory = directory_of(tmp_path, engine, PLAIN)
    with open_directory(engine, directory, PLAIN) as backend, Transaction(backend) as transaction:
        store: Any = PLAIN.open(transaction)
        store.put_many(["a", "b"], [1, 2])
        store.put_metadata("mark", b"kept")
        transaction.commit()
    return directory


def check_migrated(tmp_path: Path, engine: BackendSupplier) -> None:
    directory = directory_of(tmp_path, engine, TIMESTAMPED)
    with open_directory(engine, directory, TIMESTAMPED) as backend, Transaction(backend) as transaction:
        store: Any = TIMESTAMPED.open(transaction)
        assert list(store.scan()) == [
            ("a", ValueAndTimestamp(1, -1)),
            ("b", ValueAndTimestamp(2, -1)),
        ]
        assert store.get_metadata("mark") == b"kept"
    assert [path.name for path in directory.parent.iterdir()] == ["counts-v2"]


def test_a_new_directory_whose_first_look_fails_is_free_for_the_next_attempt(
    tmp_path: Path, engine: BackendSupplier
) -> None:
    plan = FaultPlan.at(1, Fault.ERROR, Step.BACKEND_SCAN)
    directory = directory_of(tmp_path, engine, PLAIN)
    with pytest.raises(BackendError, match="scan") as failed:
        open_directory(FaultySupplier(engine, plan), directory, PLAIN)
    assert failed.tb is not None  # as long as somebody has its frames, nothing but a close lets go of the engine
    with open_directory(engine, directory, PLAIN) as backend:
        assert list(backend.scan()) == []


def test_a_plain_directory_becomes_a_timestamped_one_with_unknown_timestamps(
    tmp_path: Path, engine: BackendSupplier
) -> None:
    write_plain(tmp_path, engine)
    check_migrated(tmp_path, engine)
    check_migrated(tmp_path, engine)


def test_a_migration_killed_while_building_begins_again(tmp_path: Path, engine: BackendSupplier) -> None:
    plain = write_plain(tmp_path, engine)
    copytree(plain, plain.with_name(".counts-v2.building"))
    check_migrated(tmp_path, engine)


def test_a_migration_killed_after_the_rename_removes_the_old_directory(tmp_path: Path, engine: BackendSupplier) -> None:
    plain = write_plain(tmp_path, engine)
    copytree(plain, tmp_path / "backup")
    check_migrated(tmp_path, engine)
    copytree(tmp_path / "backup", plain)
    check_migrated(tmp_path, engine)


def test_windows_migrate_with_their_times_and_metadata(tmp_path: Path, engine: BackendSupplier) -> None:
    directory = directory_of(tmp_path, engine, PLAIN_WINDOW)
    with open_directory(engine, directory, PLAIN_WINDOW) as backend, Transaction(backend) as transaction:
        store: Any = PLAIN_WINDOW.open(transaction)
        store.put("a", 1, 500)
        store.flush()
        transaction.commit()
    directory = directory_of(tmp_path, engine, TIMESTAMPED_WINDOW)
    with open_directory(engine, directory, TIMESTAMPED_WINDOW) as backend, Transaction(backend) as transaction:
        reopened: Any = TIMESTAMPED_WINDOW.open(transaction)
        assert reopened.fetch("a", 500) == ValueAndTimestamp(1, -1)
        assert reopened.observed_stream_time == 500
        reopened.check()


def test_a_directory_of_an_unknown_version_is_refused_by_number_and_left_alone(
    tmp_path: Path, engine: BackendSupplier
) -> None:
    directory = directory_of(tmp_path, engine, TIMESTAMPED)
    later = directory.with_name("counts-v7")
    later.mkdir(parents=True)
    with pytest.raises(FormatError, match="counts-v7"):
        open_directory(engine, directory, TIMESTAMPED)
    assert [path.name for path in directory.parent.iterdir()] == ["counts-v7"]


def test_timestamps_that_are_unknown_go_as_they_came(tmp_path: Path, engine: BackendSupplier) -> None:
    plain = write_plain(tmp_path, engine)
    check_migrated(tmp_path, engine)
    with open_directory(engine, plain, PLAIN) as backend, Transaction(backend) as transaction:
        store: Any = PLAIN.open(transaction)
        assert list(store.scan()) == [("a", 1), ("b", 2)]
        assert store.get_metadata("mark") == b"kept"
    assert [path.name for path in plain.parent.iterdir()] == ["counts"]


@pytest.mark.parametrize("checksums", [False, True])
def test_a_plain_store_refuses_a_directory_with_known_timestamps(
    tmp_path: Path, engine: BackendSupplier, checksums: bool
) -> None:
    write_plain(tmp_path, engine)
    stamped = replace(TIMESTAMPED, checksums=checksums)
    directory = directory_of(tmp_path, engine, stamped)
    for time in (-1, 7):
        with open_directory(engine, directory, stamped) as backend, Transaction(backend) as transaction:
            store: Any = stamped.open(transaction)
            store.put("b", 2, time)
            transaction.commit()
    with pytest.raises(FormatError, match=f"{directory.name} cannot become counts: the row b'.x01b' has a timestamp"):
        open_directory(engine, directory_of(tmp_path, engine, PLAIN), PLAIN)
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    with open_directory(engine, directory, stamped) as backend:
        kept: Any = stamped.open(Transaction(backend))
        assert list(kept.scan()) == [("a", ValueAndTimestamp(1, -1)), ("b", ValueAndTimestamp(2, 7))]


@pytest.mark.parametrize(
    ("wanted", "advice"),
    [
        (PLAIN, "keep the timestamped kind, or delete the directory .* then restored without timestamps \\["),
        (VERSIONED, "choose the kind that wrote it, or another name, for a store that begins empty \\["),
    ],
)
def test_rows_of_a_format_that_a_kind_cannot_have_are_read_by_their_kind_or_left(
    tmp_path: Path, engine: BackendSupplier, wanted: StoreSpec, advice: str
) -> None:
    def found(spec: StoreSpec, manifest: Manifest | None) -> dict[str, Any]:
        with one_store.task(tmp_path, engine, spec) as state:
            store: Any = state.open(manifest)[spec.name]
            return dict(store.scan()) if spec.kind is not StoreKind.VERSIONED else {"a": store.get("a")}

    with one_store.task(tmp_path, engine, TIMESTAMPED) as state:
        store: Any = state.open(None)["counts"]
        store.put("a", 1, 7)
        manifest = state.commit()
    with pytest.raises(FormatError, match=advice) as refused:
        found(wanted, manifest)
    assert found(TIMESTAMPED, manifest) == {"a": ValueAndTimestamp(1, 7)}
    if wanted is PLAIN:
        rmtree(str(refused.value).partition(" cannot become")[0])
        assert found(PLAIN, manifest) == {"a": 1}
    else:
        assert found(replace(wanted, name="more"), manifest) == {"a": None}


def test_every_version_has_a_migration() -> None:
    assert all(older_versions(version) for version in FormatVersion)

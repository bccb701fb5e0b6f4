"""The formats with checksums: their bytes, and the ways from each format to each that can hold the same rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import CorruptStoreError, FormatError
from millpond.stores.backend.checksums import checksummed
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import converted, older_versions, open_directory, open_version
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_keyvalue import pack_timestamp
from millpond.stores.typed.windows.windowed import Windowed
from tests.formats.scenarios import GOLDEN, Rows, read
from tests.formats.test_latest_apart import VERSION_1, VERSION_3, rows_of

FILE = GOLDEN / "checksums.json"
LIMITS = {"history_retention": 10_000, "retention": 1000, "window_size": 10}


def spec_of(kind: StoreKind, *, checksums: bool) -> StoreSpec:
    limits: dict[str, Any] = {name: LIMITS[name] for name in kind.traits.needed}
    return StoreSpec(kind.value, kind, STRING, INT64, checksums=checksums, **limits)


@dataclass(frozen=True)
class Given(MemorySupplier):
    """Opens one engine again and again."""

    engine: MemoryBackend

    def open(self, directory: Path) -> MemoryBackend:
        return self.engine


def opened_over(engine: MemoryBackend, spec: StoreSpec) -> Backend:
    return open_version(Given(engine), Path(), spec.format_version, spec.name)


def filled(spec: StoreSpec) -> Rows:
    """Return the rows of a small store as they lie in the engine."""
    engine = MemoryBackend()
    with Transaction(opened_over(engine, spec)) as transaction:
        store: Any = spec.open(transaction)
        for key, value, time in (("tea", 310, 1000), ("tea", 320, 1500), ("milk", 90, 1200)):
            times = (time,) if spec.kind.stamped else ()
            if spec.kind.family == "window":
                store.put(key, value, time, *times)
            elif spec.kind.family == "session":
                store.put(Windowed(key, time - 5, time), value, *times)
            else:
                store.put(key, value, *times)
        store.flush()
        transaction.commit()
    return dict(engine.scan())


def named(value: StoreKind | FormatVersion) -> str:
    return str(value.value)


@pytest.mark.parametrize("kind", StoreKind, ids=named)
def test_each_kind_writes_the_same_bytes_as_ever(kind: StoreKind) -> None:
    spec = spec_of(kind, checksums=True)
    assert filled(spec) == read(FILE)[f"{kind.value}-v{int(kind.format_version) + 3}"]


@pytest.mark.parametrize("kind", StoreKind, ids=named)
def test_what_releases_have_written_is_read(kind: StoreKind) -> None:
    spec = spec_of(kind, checksums=True)
    engine = MemoryBackend()
    engine.write(dict(read(FILE)[spec.directory_name]))
    assert dict(opened_over(engine, spec).scan()) == filled(spec_of(kind, checksums=False))
    spec.open(Transaction(opened_over(engine, spec))).check()


KINDS = {
    FormatVersion.PLAIN: StoreKind.KEY_VALUE,
    FormatVersion.TIMESTAMPED: StoreKind.TIMESTAMPED_KEY_VALUE,
    FormatVersion.LATEST_APART: StoreKind.VERSIONED,
}
WAYS = [(old, new) for new in FormatVersion for old in older_versions(new)]


def content(old: FormatVersion, new: FormatVersion) -> Rows:
    """Return rows that a store may hold in ``old``, before it has those of ``new``."""
    if old.content is FormatVersion.LATEST_APART:
        return rows_of(VERSION_3)
    if new.content is FormatVersion.LATEST_APART:
        return rows_of(VERSION_1)
    head = pack_timestamp(-1) if old.content is FormatVersion.TIMESTAMPED else b""
    return {b"\0mark": b"kept", b"\1a": head + b"one", b"\1" + b"b" * 600: head, b"\2index": b""}


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb"])
@pytest.mark.parametrize(("old", "new"), WAYS, ids=named)
def test_a_directory_of_each_format_becomes_one_of_each_other(
    tmp_path: Path, engine: str, old: FormatVersion, new: FormatVersion
) -> None:
    spec = spec_of(KINDS[new.content], checksums=new.checksums)
    directory, rows = store_directory(tmp_path, "app", "0_0", engine, spec), content(old, new)
    before = directory.with_name(old.directory_name(spec.name))
    with open_version(supplier(engine), before, old, spec.name) as backend:
        backend.write(dict(rows))
    with open_directory(supplier(engine), directory, spec) as backend:
        found = dict(backend.scan())
    assert found == dict(converted(iter(sorted(rows.items())), old, new))
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    with open_backend(engine, directory) as backend:
        stored = {row: checksummed(row, value) if new.checksums else value for row, value in found.items()}
        assert dict(backend.scan()) == stored


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb"])
def test_a_migration_does_not_carry_damage_over(tmp_path: Path, engine: str) -> None:
    spec = spec_of(StoreKind.TIMESTAMPED_KEY_VALUE, checksums=False)
    directory = store_directory(tmp_path, "app", "0_0", engine, spec)
    with open_backend(engine, directory.with_name(f"{spec.name}-v4")) as backend:
        backend.write({b"\1a": checksummed(b"\1a", b"one"), b"\1b": checksummed(b"\1b", b"two")[:-1]})
    with pytest.raises(CorruptStoreError, match="fails its checksum"):
        open_directory(supplier(engine), directory, spec)
    assert not directory.exists()


@pytest.mark.parametrize("left", ["", "data"])
def test_what_a_kill_left_of_an_older_directory_goes_with_the_next_opening(tmp_path: Path, left: str) -> None:
    spec = spec_of(StoreKind.KEY_VALUE, checksums=True)
    directory = store_directory(tmp_path, "app", "0_0", "lmdb", spec)
    (directory.with_name(f".{spec.name}.removing") / left).mkdir(parents=True)
    open_directory(supplier("lmdb"), directory, spec).close()
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


def test_a_kind_refuses_a_format_that_holds_other_rows(tmp_path: Path) -> None:
    spec = spec_of(StoreKind.VERSIONED, checksums=True)
    directory = store_directory(tmp_path, "app", "0_0", "lmdb", spec)
    directory.with_name(f"{spec.name}-v5").mkdir(parents=True)
    with pytest.raises(FormatError, match="format version 5, but a store of kind versioned is kept in version 6"):
        open_directory(supplier("lmdb"), directory, spec)

"""Damage to a directory: the rows come out as they were written, or an error names store and place."""

import struct
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, lockf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.adapters.kafka_streams import Entry, Import, ParquetTarget, open_store
from millpond.errors import BackendInUseError, CorruptStoreError, FormatError, MillpondError, StoreError
from millpond.stores import StoreKind
from millpond.stores.backend.registry import open_backend
from tests.drawing import tries
from tests.kafka_streams.directories import content_of, recorded, unpacked, write_database, write_task

KINDS = {
    "kv-upgrade-mixed": None,
    "session": StoreKind.SESSION,
    "versioned": StoreKind.VERSIONED,
    "window-timestamped": None,
}


class Recorded:
    """The directory of an application, with its entries as they are."""

    def __init__(self, name: str, into: Path) -> None:
        case = recorded(name)
        self.app = unpacked(case, into / name)
        self.store: str = case.content["store"]
        self.kind = KINDS[name]
        self.files = [
            path
            for path in sorted(self.app.rglob("*"))
            if path.suffix == ".sst" or path.name.startswith(("MANIFEST", "CURRENT", ".checkpoint"))
        ]
        self.entries = self.read()

    def read(self) -> list[Entry]:
        with open_store(self.app, self.store, self.kind) as source:
            return list(source.entries())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    return [Recorded(name, tmp_path_factory.mktemp("recorded")) for name in KINDS]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]


def zeroed(data: bytes, at: int) -> bytes:
    return (data[:at] + bytes(16) + data[at + 16 :])[: len(data)]


def truncated(data: bytes, at: int) -> bytes:
    return data[:at]


@settings(max_examples=tries(120), deadline=None)
@given(data=st.data(), harm=st.sampled_from([flipped, zeroed, truncated]))
def test_a_damaged_file_gives_all_rows_or_an_error_that_names_it(
    sources: list[Recorded], data: st.DataObject, harm: Callable[[bytes, int], bytes]
) -> None:
    source = data.draw(st.sampled_from(sources))
    path = data.draw(st.sampled_from(source.files))
    sound = path.read_bytes()
    path.write_bytes(harm(sound, data.draw(st.integers(0, len(sound) - 1))))
    try:
        found, message = outcome(source)
    finally:
        path.write_bytes(sound)
    if message is None:
        assert path.name == ".checkpoint" or found == source.entries
    else:
        assert source.store in message
        assert str(path.parent) in message


def outcome(source: Recorded) -> tuple[list[Entry], str | None]:
    """Return the entries, or the message of the error."""
    try:
        return source.read(), None
    except StoreError as error:
        return [], str(error)


@pytest.mark.parametrize("gone", ["MANIFEST-*", "CURRENT", "*.sst"])
def test_a_missing_file_is_an_error_that_names_the_directory(gone: str, tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    path = next(source.app.rglob(gone))
    path.unlink()
    with pytest.raises(CorruptStoreError, match="is damaged or not complete") as caught:
        source.read()
    assert str(path.parent) in str(caught.value)


def test_an_error_leaves_no_target_and_no_change_behind(tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    table = next(path for path in source.files if path.suffix == ".sst")
    table.write_bytes(flipped(table.read_bytes(), 20))
    before = content_of(source.app)
    with pytest.raises(CorruptStoreError):
        Import(source.app, "s-store", ParquetTarget(tmp_path / "out" / "rows"), source.kind).run()
    assert list((tmp_path / "out").iterdir()) == []
    assert content_of(source.app) == before


def test_a_table_that_the_manifest_does_not_name_is_an_error(tmp_path: Path) -> None:
    source = Recorded("kv-upgrade-mixed", tmp_path)
    other = next(source.app.rglob("*.sst")).with_name("009999.sst")
    other.write_bytes(b"half of a table")
    with pytest.raises(CorruptStoreError, match=r"009999\.sst.*not closed cleanly"):
        source.read()


def test_a_log_with_content_is_an_error(tmp_path: Path) -> None:
    source = Recorded("kv-upgrade-mixed", tmp_path)
    next(source.app.rglob("*.log")).write_bytes(b"a record")
    with pytest.raises(CorruptStoreError, match="is not empty, but Kafka Streams writes no log"):
        source.read()


def test_without_a_checkpoint_a_store_is_read_only_if_told_to(tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    (source.app / "0_0" / ".checkpoint").unlink()
    with pytest.raises(CorruptStoreError, match=r"not closed cleanly.*--without-checkpoint"):
        source.read()
    with open_store(source.app, "s-store", StoreKind.SESSION, without_checkpoint=True) as found:
        assert list(found.entries()) == source.entries
        assert found.parts[0].offsets is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", CorruptStoreError),
        ("1\n0\n", FormatError),
        ("0\n2\ntopic 0 5\n", CorruptStoreError),
        ("0\n1\ntopic 0\n", CorruptStoreError),
        ("0\n1\ntopic 0 five\n", CorruptStoreError),
        (f"0\n1\ntopic 0 {10**30}\n", CorruptStoreError),
        (f"0\n1\ntopic {10**30} 5\n", CorruptStoreError),
        (f"0\n{10**30}\ntopic 0 5\n", CorruptStoreError),
    ],
)
def test_a_checkpoint_that_is_none_is_an_error(text: str, error: type[StoreError], tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    (source.app / "0_0" / ".checkpoint").write_text(text)
    with pytest.raises(error, match=r"0_0/\.checkpoint"):
        source.read()


def test_a_directory_that_somebody_writes_is_refused(tmp_path: Path) -> None:
    directory = write_task(tmp_path / "app" / "0_0") / "rocksdb" / "store"
    with (
        open_backend("rocksdb", directory),
        pytest.raises(BackendInUseError, match="stop the application"),
        open_store(tmp_path / "app", "store", StoreKind.KEY_VALUE),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize("place", ["app", "app/0_0"])
def test_the_directory_of_a_running_application_is_refused(place: str, tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    with (source.app.parent / place / ".lock").open("w") as lock:
        lockf(lock, LOCK_EX)
        with pytest.raises(BackendInUseError, match=r"\.lock; stop the application"):
            source.read()


def test_an_application_that_starts_while_its_store_is_read_ends_that(tmp_path: Path) -> None:
    source = Recorded("session", tmp_path)
    with open_store(source.app, "s-store", source.kind) as store:
        entries = store.entries()
        next(entries)
        with next(source.app.rglob("LOCK")).open("w") as lock:
            lockf(lock, LOCK_EX)
            with pytest.raises(BackendInUseError):
                list(entries)


def test_a_directory_whose_keys_have_another_order_is_refused(tmp_path: Path) -> None:
    directory = write_database(write_task(tmp_path / "app" / "0_0") / "rocksdb" / "store", {"default": {b"a": b"1"}})
    manifest = next(directory.glob("MANIFEST-*"))
    manifest.write_bytes(with_other_comparator(manifest.read_bytes()))
    with (
        pytest.raises(FormatError, match="an order of keys that is not known here"),
        open_store(tmp_path / "app", "store", StoreKind.KEY_VALUE),
    ):
        pytest.fail("it was opened")


def with_other_comparator(manifest: bytes) -> bytes:
    """Return the records of a manifest, with the name of a comparator that nobody has, and with right checksums."""
    made, at = b"", 0
    while at < len(manifest):
        size, kind = struct.unpack_from("<HB", manifest, at + 4)
        body = manifest[at + 7 : at + 7 + size].replace(b"BytewiseComparator", b"OutOfOrderCompares")
        made += struct.pack("<IHB", masked(crc32c(bytes((kind,)) + body)), size, kind) + body
        at += 7 + size
    assert made != manifest
    return made


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def wrong_kinds() -> Iterator[tuple[str, StoreKind]]:
    for name, right in (
        ("kv-plain-old-format", StoreKind.KEY_VALUE),
        ("kv-timestamped", StoreKind.TIMESTAMPED_KEY_VALUE),
        ("kv-upgrade-mixed", StoreKind.TIMESTAMPED_KEY_VALUE),
        ("session", StoreKind.SESSION),
        ("versioned", StoreKind.VERSIONED),
        ("window-plain", StoreKind.WINDOW),
        ("window-timestamped", StoreKind.TIMESTAMPED_WINDOW),
    ):
        yield from ((name, kind) for kind in StoreKind if kind is not right)


@pytest.mark.parametrize(("name", "kind"), list(wrong_kinds()))
def test_the_wrong_kind_is_refused(name: str, kind: StoreKind, tmp_path: Path) -> None:
    case = recorded(name)
    app = unpacked(case, tmp_path)
    with pytest.raises(MillpondError, match="kind"), open_store(app, case.content["store"], kind) as source:
        list(source.entries())

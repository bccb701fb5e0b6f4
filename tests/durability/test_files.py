"""Durable files: every byte is under a checksum, whatever is read is what was written, and formats have numbers."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from millpond.errors import CorruptFileError, FormatError
from millpond.releases import RELEASE
from millpond.stores.durability import Manifest, Storage, read_rows
from millpond.stores.durability.parquet.files import write_file
from millpond.stores.durability.parquet.reading import read_all_tables, read_from, read_span, read_tables
from millpond.stores.durability.parquet.rows import SCHEMA
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.drawing import tries

EMPTY = Manifest.empty("app", "0_0", "")
TIMES = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
WORDS = StoreSpec("words", StoreKind.KEY_VALUE, STRING, STRING)


def table(store: str, keys: Sequence[bytes | None]) -> Any:
    size = len(keys)
    columns: Any = [[store] * size, keys, list(range(size)), [b"value"] * size]
    return pa.table(columns, schema=SCHEMA)


def write(storage: Storage, *tables: Any) -> tuple[Manifest, DurableFile]:
    file = write_file(storage, EMPTY.directory, FileKind.SNAPSHOT, 1, new_commit_id(), tables)
    return EMPTY.with_snapshot(file, ()), file


def read(storage: Storage, manifest: Manifest, store: str) -> list[dict[str, Any]]:
    (file,) = manifest.files
    return [row for part in read_tables(storage, manifest, file, store) for row in part.to_pylist()]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


@pytest.fixture(params=["whole", "range by range"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "range by range":
        monkeypatch.setattr("millpond.stores.durability.parquet.reading.WHOLE", 0)


@pytest.mark.usefixtures("reading")
def test_each_store_is_read_alone_and_in_order(storage: Storage) -> None:
    manifest, file = write(storage, table("a", [b"1", b"2"]), table("a", [b"3"]), table("b", [b"1"]))
    assert [row["key"] for row in read(storage, manifest, "a")] == [b"1", b"2", b"3"]
    assert [row["key"] for row in read(storage, manifest, "b")] == [b"1"]
    assert read(storage, manifest, "c") == []
    assert file.size == Path(storage.describe(manifest.path(file))).stat().st_size


def test_all_stores_come_in_the_order_of_their_names_from_any_place_on(storage: Storage) -> None:
    manifest, file = write(storage, table("b", [b"1", b"2"]), table("a", [b"3", b"4"]))
    for place, rows in enumerate([["a", "a", "b", "b"], ["a", "b", "b"], ["b", "b"], ["b"], []]):
        found = read_from(storage, manifest, file, place)
        assert [store for store, part in found for _ in range(part.num_rows)] == rows


@pytest.mark.usefixtures("reading")
def test_a_row_group_that_begins_without_a_key_is_damage(storage: Storage) -> None:
    manifest, file = write(storage, table("a", [b"1"]), table("a", [b""]), table("a", [b"3"]))
    with pytest.raises(CorruptFileError, match="its row group 1 does not begin with a key"):
        list(read_span(storage, manifest, file, "a", Span(b"2", None)))


def test_a_footer_that_is_longer_than_what_is_read_at_first_is_read(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.stores.durability.parquet.reading.WHOLE", 0)
    monkeypatch.setattr("millpond.stores.durability.parquet.reading._MOSTLY_ENOUGH", 100)
    manifest, _ = write(storage, table("a", [b"1", b"2"]))
    assert [row["key"] for row in read(storage, manifest, "a")] == [b"1", b"2"]


@pytest.mark.usefixtures("reading")
def test_a_flip_in_any_byte_is_found(storage: Storage) -> None:
    keys = [b"key %03d" % number for number in range(40)]
    manifest, file = write(storage, table("a", keys), table("b", keys[:3]))
    path = Path(storage.describe(manifest.path(file)))
    original = path.read_bytes()
    for place in Random(1).sample(range(len(original)), tries(len(original))):
        damaged = bytearray(original)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=path.name):
            list(read_all_tables(storage, manifest, file))


def test_a_flip_that_turns_the_keys_encoding_into_another_is_found(storage: Storage) -> None:
    """One bit makes ``DELTA_LENGTH_BYTE_ARRAY`` of ``DELTA_BYTE_ARRAY``; checksums of pages do not cover it."""
    manifest, file = write(storage, table("a", [b"key %03d" % number for number in range(40)]))
    path = Path(storage.describe(manifest.path(file)))
    original, silent = path.read_bytes(), 0
    for place in range(len(original) * 8):
        damaged = bytearray(original)
        damaged[place // 8] ^= 1 << place % 8
        silent += _keys_become_others_without_an_error(bytes(damaged))
        if silent:
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match="fail their checksum"):
                read(storage, manifest, "a")
            return
    raise AssertionError("Parquet itself finds every flip; this test has lost its reason")


def _keys_become_others_without_an_error(content: bytes) -> bool:
    try:
        return bool(pq.read_table(pa.BufferReader(content), columns=["key"])["key"][1].as_py() != b"key 001")
    except (OSError, pa.ArrowException, IndexError, UnicodeDecodeError):
        return False


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b"", b"a"], [b"a", None]])
def test_rows_whose_keys_cannot_be_are_not_used(storage: Storage, keys: Sequence[bytes | None]) -> None:
    manifest, _ = write(storage, table("a", keys))
    with pytest.raises(CorruptFileError, match="damaged"):
        read(storage, manifest, "a")


def test_row_groups_of_a_store_that_are_not_in_order_are_not_used(storage: Storage) -> None:
    manifest, _ = write(storage, table("a", [b"3"]), table("a", [b"1"]))
    with pytest.raises(CorruptFileError, match="not in ascending order"):
        read(storage, manifest, "a")


def rewritten(storage: Storage, manifest: Manifest, changes: dict[bytes, bytes]) -> Manifest:
    """Return the manifest's file with other metadata, as if it had been written so."""
    (file,) = manifest.files
    path = Path(storage.describe(manifest.path(file)))
    content = pq.read_table(path)
    known = pq.read_metadata(path).metadata or {}
    mine = {key: value for key, value in known.items() if key.startswith(b"millpond")} | changes
    pq.write_table(content.replace_schema_metadata(mine), path)
    written = path.read_bytes()
    length = int.from_bytes(written[-8:-4], "little")
    return manifest.with_snapshot(file._replace(size=len(written), checksum=crc32(written[-8 - length :])), ())


def test_a_file_of_a_later_format_is_refused_by_number(storage: Storage) -> None:
    manifest, _ = write(storage, table("a", [b"1"]))
    later = rewritten(storage, manifest, {b"millpond.format": b"4"})
    with pytest.raises(FormatError, match="format 4, but this release of Millpond knows formats 1 to 3"):
        read(storage, later, "a")


def test_a_file_says_who_wrote_it_and_who_reads_it(storage: Storage) -> None:
    manifest, file = write(storage, table("a", [b"1"]))
    known = pq.read_metadata(Path(storage.describe(manifest.path(file)))).metadata or {}
    assert (known[b"millpond.written_by"], known[b"millpond.oldest_reader"]) == (RELEASE.encode(), b"0.2.0")


def test_a_file_that_a_later_release_must_read_is_refused_with_both(storage: Storage) -> None:
    manifest, file = write(storage, table("a", [b"1"]))
    releases = {b"millpond.written_by": b"9.10.1", b"millpond.oldest_reader": b"9.10.0"}
    later = rewritten(storage, manifest, releases)
    told = rf"{file.name} was written by release 9\.10\.1 .* release 9\.10\.0 or .* is release {RELEASE}; run release"
    with pytest.raises(FormatError, match=told):
        read(storage, later, "a")


@pytest.mark.parametrize("release", [b"", b"newest", b"\xff", b"1"])
def test_a_file_whose_reader_is_no_release_is_damaged(storage: Storage, release: bytes) -> None:
    manifest, _ = write(storage, table("a", [b"1"]))
    changed = rewritten(storage, manifest, {b"millpond.oldest_reader": release})
    with pytest.raises(CorruptFileError):
        read(storage, changed, "a")


@pytest.mark.parametrize("ranges", [b"", b"[]", b"[[4,0]]", b"17", b'[["a",1]]', b"[[1e99,1]]"])
def test_ranges_that_do_not_cover_the_rows_are_damage(storage: Storage, ranges: bytes) -> None:
    manifest, _ = write(storage, table("a", [b"1"]))
    changed = rewritten(storage, manifest, {b"millpond.ranges": ranges})
    with pytest.raises(CorruptFileError):
        read(storage, changed, "a")


def test_the_ranges_and_the_footer_cover_the_file(storage: Storage) -> None:
    manifest, file = write(storage, table("a", [b"1", b"2"]), table("b", [b"1"]))
    content = Path(storage.describe(manifest.path(file))).read_bytes()
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata or {}
    start = 0
    for size, checksum in json.loads(metadata[b"millpond.ranges"]):
        assert crc32(content[start : start + size]) == checksum
        start += size
    assert crc32(content[start:]) == file.checksum


FORMAT_1 = (
    '{"millpond":1,"application":"app","task":"0_0","fingerprint":"","lineage":"9142291e6de64a75a7a49e4e3ffa8807",'
    '"snapshot":[1,"5fa29138488c42308a645247e3bfd927",4,1789,3583031562],'
    '"deltas":[[2,"ac93baa8a7274f16a0eb805a0a49db73",4,1779,1274180556]],"bases":[]}'
)


@pytest.fixture
def format_1(tmp_path: Path) -> Storage:
    shutil.copytree(Path(__file__).parent / "format-1", tmp_path / "format-1")
    return Storage.from_uri(tmp_path / "format-1")


def test_files_of_format_1_are_read(format_1: Storage) -> None:
    manifest = Manifest.from_json(FORMAT_1)
    assert list(read_rows(format_1, manifest, TIMES)) == [
        ("key 0", 0, 10),
        ("key 1", 1, 11),
        ("key 2", 1, 11),
        ("key 3", 1, 11),
    ]
    assert list(read_rows(format_1, manifest, WORDS)) == []


def test_a_flip_in_a_page_of_format_1_is_found(format_1: Storage) -> None:
    manifest = Manifest.from_json(FORMAT_1)
    path = Path(format_1.describe(manifest.path(manifest.files[0])))
    content = bytearray(path.read_bytes())
    content[pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        list(read_rows(format_1, manifest, TIMES))

"""The readers of durable state: manifests, shapes, files, the history of schemas, position and seal of a local copy.

Rule of this module: who makes a file also makes the checksums of it, so these protect nothing here. All CRC-32 are 0
while something is written or read, and the rest of what a manifest says is true of the changed bytes.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

import pyarrow as pa
from pyarrow import parquet as pq

from millpond.errors import CorruptStoreError, MillpondError
from millpond.processors.verbs.encoding.python_values import python_rows
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.position import encode_position, position_of
from millpond.stores.durability.copies.restore import entries
from millpond.stores.durability.manifests import schema_log
from millpond.stores.durability.manifests.base import Base
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import kept_schemas
from millpond.stores.durability.parquet import files, reading
from millpond.stores.durability.parquet.rows import tables_of_entries
from millpond.stores.durability.storage import checked_text
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import COMMIT_ROW, pack_time
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.evolution.shape import Shape, StoreShape, difference
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.layouts import Layout
from tests.fuzz.reader import Reader, attempt
from tests.fuzz.store_readers import SCHEMAS

COMMIT: Final = "c" * 32
EMPTY: Final = Manifest("app", "0_0", "f" * 32, "a" * 32)
SNAPSHOT: Final = DurableFile(FileKind.SNAPSHOT, 1, COMMIT, 3, 1000, 7)
DELTA: Final = DurableFile(FileKind.DELTA, 2, "d" * 32, 3, 1000, 7)


@contextmanager
def _no_checksums() -> Iterator[None]:
    with ExitStack() as patches:
        for module in (files, checked_text, reading, schema_log):
            patches.enter_context(patch.object(module, "crc32", lambda data, start=0: 0))
        yield


def _read_manifest(data: bytes) -> None:
    with _no_checksums():
        found = Manifest.from_json(data.decode(errors="surrogateescape"))
        assert Manifest.from_json(found.to_json()) == found
    assert not {"", ".", ".."} & set(found.directory.split("/")), found.directory
    repr(found)


def _manifest_reader() -> Reader:
    whole = EMPTY.with_snapshot(SNAPSHOT, (Base(1, 1),)).with_delta(DELTA)
    with _no_checksums():
        return Reader(_read_manifest, (EMPTY.to_json().encode(), whole.to_json().encode()))


def _read_shape(data: bytes) -> None:
    with _no_checksums():
        found = Shape.from_json(data.decode(errors="surrogateescape"))
        assert Shape.from_json(found.to_json()) == found
    assert difference(found, found) == ""


def _shape_reader() -> Reader:
    held = StoreShape(1, "held", StoreKind.KEY_VALUE, "bytes", "bytes", Layout("suppress-buffer", 1), "string")
    names = StoreShape(0, "names", StoreKind.VERSIONED, "string", "json", None, "string", is_global=True)
    with _no_checksums():
        return Reader(_read_shape, (Shape(1, ()).to_json().encode(), Shape(4, (held, names)).to_json().encode()))


def _read_position(data: bytes) -> None:
    backend = MemoryBackend()
    backend.write({COMMIT_ROW: data})
    if position_of(backend) is None:
        raise CorruptStoreError("it is unknown")


_TIME = pack_time(5)


class _Directory:
    """The place of files that are read: a directory of its own, in which one file after the other has the same name."""

    def __init__(self) -> None:
        self._removed_with_this = TemporaryDirectory(prefix="millpond-fuzz-")
        self._root = Path(self._removed_with_this.name)
        self._storage = Storage.from_uri(self._root)
        self._copy = self._root / "copy"
        self._copy.mkdir()
        (self._copy / "data.mdb").write_bytes(b"data")
        (self._root / EMPTY.directory).mkdir(parents=True)

    def file(self, version: FormatVersion, entries: list[tuple[bytes, bytes]]) -> bytes:
        """Return a durable file with entries of two stores."""
        with _no_checksums():
            tables = [*tables_of_entries("s", version, entries), *tables_of_entries("t", version, entries[:1])]
            file = files.write_file(self._storage, EMPTY.directory, FileKind.SNAPSHOT, 1, COMMIT, tables)
        return (self._root / EMPTY.path(file)).read_bytes()

    def read_file(self, data: bytes) -> None:
        file = DurableFile(FileKind.SNAPSHOT, 1, COMMIT, _rows(data), len(data), 0)
        manifest = EMPTY.with_snapshot(file, ())
        _write(self._root / manifest.path(file), data)
        with _no_checksums():
            attempt(lambda: reading.read_all_tables(self._storage, manifest, file))
            for version in FormatVersion:
                attempt(partial(entries, self._storage, manifest, "s", version))

    def read_schemas(self, data: bytes) -> None:
        _write(self._root / EMPTY.application_id / "in-schema-1.json", data)
        with _no_checksums():
            schemas = kept_schemas(self._storage, EMPTY.application_id, "in")
        assert schemas is not None
        codec = RowCodec(schemas)
        with suppress(MillpondError):  # these are hardly rows of it
            python_rows(codec.unpack([b"\x91\x01", b"\x92\x01\xc0", b"\x92\x01\x90"]))
        attempt(schemas.to_json, lambda: schemas.evolved(schemas.current, where="here"))

    def seal(self) -> bytes:
        self._seal().closed()
        return seal_path(self._copy).read_bytes()

    def read_seal(self, data: bytes) -> None:
        _write(seal_path(self._copy), data)
        if fault := self._seal().fault():
            raise CorruptStoreError(fault)

    def _seal(self) -> CleanShutdownMarker:
        return CleanShutdownMarker(self._copy, checked_by_engine=False, limit=100)


def _write(path: Path, data: bytes) -> None:
    with pa.OSFile(str(path), "wb") as sink:
        sink.write(data)


def _rows(data: bytes) -> int:
    """Return how many rows the footer claims."""
    with suppress(OSError, ValueError, pa.ArrowException):
        return max(0, pq.read_metadata(pa.BufferReader(data)).num_rows)
    return 0


def durable_readers() -> dict[str, Reader]:
    """Return all of them."""
    directory = _Directory()
    one, two = b"\1a\0\0" + _TIME, b"\1b\0\0" + _TIME
    content = [(b"\0layout", b"\0\0\0\1some"), (one, b"\0" * 8 + b"one"), (two, b"\0" * 7 + b"\1two")]
    schemas = b'{"crc32":0,"schemas":%b}' % SCHEMAS.to_json().encode()
    return {
        "manifest": _manifest_reader(),
        "shape": _shape_reader(),
        "schemas": Reader(directory.read_schemas, (schemas,)),
        "position": Reader(_read_position, (encode_position(EMPTY.with_snapshot(SNAPSHOT, ())),)),
        "seal": Reader(directory.read_seal, (directory.seal(),)),
        "durable file": Reader(directory.read_file, tuple(directory.file(v, content) for v in FormatVersion)),
    }

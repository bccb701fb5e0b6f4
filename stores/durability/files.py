"""Durable files: Parquet, one store per row group, its rows in key order, every byte under a checksum.

Rule of this module: it writes and reads whole files and knows nothing of backends. The columns are ``store``, ``key``,
``timestamp`` and ``value`` (see ``millpond.stores.durability.rows``). The footer's checksum is in the manifest, and the
footer has those of all that comes before it: byte ranges, one for each row group, so that a file that is read part by
part proves each part before a row of it is used. The file's metadata is::

    millpond.format    2
    millpond.commit    the commit that wrote it, so that a file under the wrong name is detected
    millpond.ranges    [[bytes, CRC-32], ...] from the beginning of the file to its footer, as JSON
    millpond.stores    [name, ...] of the store of each row group, as JSON

Format 1 has neither, but a checksum in each page; it is read, and no longer written. What Arrow tells of columns in the
footer is never asked for: where a footer contradicts itself, asking ends the process.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import SEEK_END, SEEK_SET, RawIOBase
from itertools import accumulate
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa
from pyarrow import compute
from pyarrow import parquet as pq

from millpond.errors import CorruptFileError, FormatError, MissingFileError
from millpond.stores.durability.manifest import DurableFile, FileKind, Manifest, file_name
from millpond.stores.durability.rows import SCHEMA, Table
from millpond.stores.durability.storage import Storage

pc: Any = compute

FILE_FORMAT: Final = 2
_PAGE_CHECKSUMS: Final = 1
"""The format whose pages have the checksums."""

_FORMAT_KEY: Final = b"millpond.format"
_COMMIT_KEY: Final = b"millpond.commit"
_RANGES_KEY: Final = b"millpond.ranges"
_STORES_KEY: Final = b"millpond.stores"
_FOOTER_LENGTH = 4
_FOOTER_END = 8
"""A Parquet file ends with its footer, the footer's length, and four bytes of magic."""
_WHOLE = 1 << 23
"""Files up to this size are read whole: an object store takes longer to answer than to send."""
_LOCAL_COLUMNS = ["key", "timestamp", "value"]


class _Range(NamedTuple):
    """So many bytes, and their CRC-32."""

    size: int
    checksum: int


def write_file(
    storage: Storage, directory: str, kind: FileKind, sequence: int, commit: str, tables: Iterable[Table]
) -> DurableFile:
    """Write a file from tables of bounded size, each of one store; only one of them is in memory at a time.

    Raises:
        DurabilityError: the storage failed; no manifest names what may be left behind.
    """
    rows = 0
    ranges: list[_Range] = []
    stores: list[str] = []
    with storage.writing(f"{directory}/{file_name(kind, sequence, commit)}") as stream:
        sink = _Sink(stream)
        with _writer(sink, commit) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
                stores.append(table.column("store")[0].as_py())
                ranges.append(sink.end_range())
            ranges = ranges or [sink.end_range()]
            writer.add_key_value_metadata({_RANGES_KEY: _json(ranges), _STORES_KEY: _json(stores)})
        footer = sink.end_range()
    return DurableFile(kind, sequence, commit, rows, sum(one.size for one in ranges) + footer.size, footer.checksum)


def _json(content: Sequence[Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


class _Sink(RawIOBase):
    """Passes on what is written, as ranges."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._range = _Range(0, 0)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._range = _Range(self._range.size + len(data), crc32(data, self._range.checksum))
        return len(data)

    def end_range(self) -> _Range:
        """What was written since the last call."""
        ended, self._range = self._range, _Range(0, 0)
        return ended


def _writer(stream: Any, commit: str) -> Any:
    metadata = {_FORMAT_KEY: str(FILE_FORMAT), _COMMIT_KEY: commit}
    writer: Any = pq.ParquetWriter
    return writer(
        stream,
        SCHEMA.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=["store"],
        column_encoding={"key": "DELTA_BYTE_ARRAY", "timestamp": "DELTA_BINARY_PACKED", "value": "PLAIN"},
        write_statistics=["store"],
    )


def read_tables(storage: Storage, manifest: Manifest, file: DurableFile, store: str) -> Iterator[Table]:
    """The rows of one store in a file of ``manifest``, in key order, one row group at a time, without the store column.

    Raises:
        MissingFileError: the file is gone.
        CorruptFileError: the file is not as it was written.
        FormatError: the file is in a format that this release does not know.
        DurabilityError: the storage failed.
    """
    return (table for _, table in _groups(storage, manifest, file, store))


def read_all_tables(storage: Storage, manifest: Manifest, file: DurableFile) -> Iterator[tuple[str, Table]]:
    """The rows of all stores in a file of ``manifest``, as ``read_tables`` gives them, each with its store's name.

    Raises what ``read_tables`` raises.
    """
    return _groups(storage, manifest, file, None)


def _groups(storage: Storage, manifest: Manifest, file: DurableFile, wanted: str | None) -> Iterator[tuple[str, Table]]:
    """The row groups of one store, or of all of them, each with its store's name."""
    last: dict[str, bytes] = {}
    with _opened(storage, manifest, file) as parquet:
        with _blaming(storage, manifest, file):
            stores = _stores_of(parquet)
        for group, store in enumerate(stores):
            if wanted not in (store, None):
                continue
            with _blaming(storage, manifest, file):
                table = parquet.read_row_group(group, columns=_LOCAL_COLUMNS, use_threads=False)
                last[store] = _checked_keys(table, last.get(store, b""))
            yield store, table


@contextmanager
def _opened(storage: Storage, manifest: Manifest, file: DurableFile) -> Iterator[Any]:
    path = manifest.path(file)
    try:
        source = pa.BufferReader(storage.read(path)) if file.size <= _WHOLE else storage.reading(path)
    except MissingFileError as error:
        raise _missing_file(storage, manifest, file) from error
    with source:
        with _blaming(storage, manifest, file):
            metadata = _metadata(source, file)
            proven = _proven(source, metadata, file, storage.describe(path))
            parquet = pq.ParquetFile(proven, metadata=metadata, page_checksum_verification=True, pre_buffer=False)
        yield parquet


def broken_file(storage: Storage, manifest: Manifest) -> MissingFileError | CorruptFileError | None:
    """The error for the first file of ``manifest`` that is gone or has another size.

    One question shows that all is well. A listing may lag behind, so what it lacks is looked for by name.

    Raises:
        DurabilityError: the storage failed.
    """
    if not manifest.files:
        return None
    sizes = storage.sizes(manifest.directory, [file.name for file in manifest.files])
    for file in manifest.files:
        if sizes.get(file.name) == file.size:
            continue
        try:
            with storage.reading(manifest.path(file)) as source:
                size = source.size()
        except MissingFileError:
            return _missing_file(storage, manifest, file)
        if size != file.size:
            return _corrupt_file(storage, manifest, file, f"it has {size} bytes instead of {file.size}")
    return None


def _missing_file(storage: Storage, manifest: Manifest, file: DurableFile) -> MissingFileError:
    """The error for a file of ``manifest`` that is gone."""
    return MissingFileError(
        f"the file {storage.describe(manifest.path(file))} is gone, but the manifest of task {manifest.task_id!r} of "
        f"application {manifest.application_id!r} at commit {manifest.sequence} ({manifest.commit}) needs it; put it "
        "back, or restart the query at a batch whose files are all there"
    )


def _metadata(source: Any, file: DurableFile) -> Any:
    """The footer, whose checksum is in the manifest."""
    if source.size() != file.size:
        raise pa.ArrowInvalid(f"it has {source.size()} bytes instead of {file.size}")
    length = int.from_bytes(source.read_at(_FOOTER_LENGTH, file.size - _FOOTER_END), "little")
    footer = source.read_at(length + _FOOTER_END, max(0, file.size - _FOOTER_END - length))
    if crc32(footer) != file.checksum:
        raise pa.ArrowInvalid("its footer fails its checksum")
    return pq.read_metadata(pa.BufferReader(footer))


def _proven(source: Any, metadata: Any, file: DurableFile, where: str) -> Any:
    """The file as one that gives only bytes that pass their checksum."""
    known = metadata.metadata or {}
    version = known.get(_FORMAT_KEY, b"none").decode(errors="replace")
    if version not in (str(_PAGE_CHECKSUMS), str(FILE_FORMAT)):
        raise FormatError(
            f"the file {where} has format {version}, but this release of Millpond knows formats {_PAGE_CHECKSUMS} to "
            f"{FILE_FORMAT}; run the release that wrote it, or a newer one"
        )
    if known.get(_COMMIT_KEY) != file.commit.encode() or metadata.num_rows != file.rows:
        raise pa.ArrowInvalid("it is the file of another commit")
    if version == str(_PAGE_CHECKSUMS):
        return source
    ranges = _ranges(known)
    if sum(one.size for one in ranges) != file.size - _FOOTER_END - metadata.serialized_size:
        raise pa.ArrowInvalid("its ranges are not all that comes before its footer")
    return _Proven(source, ranges, file.size)


def _ranges(known: Any) -> list[_Range]:
    try:
        return [_Range(int(size), int(checksum)) for size, checksum in json.loads(known.get(_RANGES_KEY, b""))]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid("its footer names no ranges") from error


class _Proven(RawIOBase):
    """A file without its footer that holds one range of it, whose bytes have passed their checksum."""

    def __init__(self, source: Any, ranges: Sequence[_Range], size: int) -> None:
        self._source = source
        self._ranges = ranges
        self._ends = list(accumulate(one.size for one in ranges))
        self._size = size
        self._start = 0
        self._content = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        base = {SEEK_SET: 0, SEEK_END: self._size}.get(whence, self._position)
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position - self._start
        if not 0 <= start < len(self._content):
            self._load()
            start = self._position - self._start
        found = self._content[start : start + size if size >= 0 else None]
        self._position += len(found)
        return bytes(found)

    def _load(self) -> None:
        """Read the range that has the position."""
        number = bisect_right(self._ends, self._position)
        if number == len(self._ends):
            raise pa.ArrowInvalid(f"its rows go on at byte {self._position}, where its footer begins")
        size, checksum = self._ranges[number]
        start = self._ends[number] - size
        content = self._source.read_at(size, start)
        if len(content) != size or crc32(content) != checksum:
            raise pa.ArrowInvalid(f"its bytes {start} to {start + size} fail their checksum")
        self._start, self._content = start, memoryview(content)


def _stores_of(parquet: Any) -> list[str]:
    """The store of each row group."""
    named = (parquet.metadata.metadata or {}).get(_STORES_KEY)
    if named is None:
        return [_store_in(parquet, group) for group in range(parquet.num_row_groups)]
    try:
        stores = json.loads(named)
    except RecursionError as error:
        raise pa.ArrowInvalid("its footer names no stores") from error
    if not isinstance(stores, list) or [type(store) for store in stores] != [str] * parquet.num_row_groups:
        raise pa.ArrowInvalid("its footer does not name the store of each row group")
    return stores


def _store_in(parquet: Any, group: int) -> str:
    """The only store that a row group has rows of."""
    table = parquet.read_row_group(group, columns=["store"], use_threads=False)
    stores = pc.unique(table.column("store")).to_pylist()
    if len(stores) != 1 or not isinstance(stores[0], str):
        raise pa.ArrowInvalid(f"its row group {group} does not have the rows of one store")
    return stores[0]


def _checked_keys(table: Table, last: bytes) -> bytes:
    """The greatest key of a table whose keys come after ``last`` in strictly ascending order, so none is empty."""
    keys = table.column("key").combine_chunks()
    if table.schema.types != [SCHEMA.field(name).type for name in _LOCAL_COLUMNS] or keys.null_count:
        raise pa.ArrowInvalid("its columns are not those of a durable file")
    if not len(keys):
        return last
    ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py() is not False
    if not ascending or keys[0].as_py() <= last:
        raise pa.ArrowInvalid("its keys are not in ascending order")
    greatest: bytes = keys[-1].as_py()
    return greatest


@contextmanager
def _blaming(storage: Storage, manifest: Manifest, file: DurableFile) -> Iterator[None]:
    """Turn a failure to read a file into the error that says whether storage or file is to blame."""
    path = manifest.path(file)
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:  # Arrow's own, for names and columns
        storage.probe(path)
        raise _corrupt_file(storage, manifest, file, error) from error


def _corrupt_file(storage: Storage, manifest: Manifest, file: DurableFile, fault: object) -> CorruptFileError:
    return CorruptFileError(
        f"the file {storage.describe(manifest.path(file))} of task {manifest.task_id!r} is damaged: {fault}; put an "
        "undamaged copy back, or restart the query at a batch that does not need it"
    )

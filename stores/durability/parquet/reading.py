"""Reading durable files: nothing comes out of one before its checksum has shown that it is what was written.

Rule of this module: it knows nothing of backends, and nothing of where files are (see
``millpond.stores.durability.parquet.sources``). Arrow is never asked about columns in the footer: if a footer
contradicts itself, asking ends the process.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from io import SEEK_END, SEEK_SET, RawIOBase
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
from pyarrow import compute
from pyarrow import parquet as pq

from millpond.errors import FormatError, MissingFileError
from millpond.releases import check_reader
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.older_reader import WITH_A_PART
from millpond.stores.durability.parquet.file_faults import blaming, missing_file
from millpond.stores.durability.parquet.files import (
    COMMIT_KEY,
    FORMAT_KEY,
    PAGE_CHECKSUMS,
    PART_KEY,
    RANGES_KEY,
    READER_KEY,
    STORES_KEY,
    WRITER_KEY,
    ByteRange,
)
from millpond.stores.durability.parquet.prefetch import called_ahead
from millpond.stores.durability.parquet.rows import SCHEMA, Table
from millpond.stores.durability.parquet.sources import WHOLE, FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.checked_text import read_count
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind

pc: Any = compute

_FOOTER_LENGTH = 4
_FOOTER_END = 8
"""A Parquet file ends with its footer, the footer's length, and four bytes of magic."""
_MOSTLY_ENOUGH = 1 << 16
"""Bytes of a file's end in which its footer is, unless it has hundreds of row groups."""
_LOCAL_COLUMNS = ["key", "timestamp", "value"]
_KEY_COLUMN = ["key"]

_AHEAD: Final = 4
_AHEAD_BYTES: Final = 1 << 25
"""The most row groups of a large file, and their most bytes, that are fetched at once from a remote storage."""


def read_tables(source: FileSource, manifest: Manifest, file: DurableFile, store: str) -> Iterator[Table]:
    """Yield the rows of one store in a file, in key order, one row group at a time, without the store column.

    Raises:
        MissingFileError: the file is gone.
        CorruptFileError: the file is not as it was written.
        FormatError: the file is in a format that this release does not know.
        DurabilityError: the storage failed.
    """
    return (table for _, table in _groups(source, manifest, file, store))


def read_span(source: FileSource, manifest: Manifest, file: DurableFile, store: str, span: Span) -> Iterator[Table]:
    """Yield the rows of one store in a file whose keys are within a span, as ``read_tables`` does.

    Only row groups that can hold such a key are read, and those that show which these are; each is proved first.

    Raises what ``read_tables`` raises.
    """
    with _opened(source, manifest, file) as opened:
        with blaming(source, manifest, file):
            groups = [group for group, name in opened.groups() if name == store]

        def proved(place: int) -> Table:
            with blaming(source, manifest, file), closing(opened.tables([groups[place]], 0)) as tables:
                table = next(tables)
                if not _checked_keys(table, b""):
                    raise pa.ArrowInvalid(f"its row group {groups[place]} is empty")
            return table

        def first_key(place: int) -> bytes:
            with blaming(source, manifest, file):
                return opened.first_key(groups[place])

        yield from span.tables(len(groups), first_key, proved)


def read_keys(source: FileSource, manifest: Manifest, file: DurableFile, store: str) -> Iterator[Any]:
    """Yield the keys of one store in a file of ``manifest``, as ascending Arrow arrays, one for each row group.

    Raises what ``read_tables`` raises.
    """
    with _opened(source, manifest, file) as opened, blaming(source, manifest, file):
        last = b""
        for group, name in opened.groups():
            if name == store:
                keys = opened.keys(group)
                last = _ascending(keys, last)
                yield keys


def read_all_tables(source: FileSource, manifest: Manifest, file: DurableFile) -> Iterator[tuple[str, Table]]:
    """Yield the rows of all stores in a file of ``manifest``, as ``read_tables`` does, each with its store's name.

    Raises what ``read_tables`` raises.
    """
    return _groups(source, manifest, file, None)


def stores_in(source: FileSource, manifest: Manifest, file: DurableFile) -> set[str]:
    """Return the names of the stores that have rows in a file of ``manifest``.

    Raises what ``read_tables`` raises.
    """
    with _opened(source, manifest, file) as opened, blaming(source, manifest, file):
        return {store for _, store in opened.groups()}


def bytes_of_stores(source: FileSource, manifest: Manifest, file: DurableFile) -> Counter[str]:
    """Return the number of bytes that each store has in a file of ``manifest``; none are known in format 1.

    Raises what ``read_tables`` raises.
    """
    with _opened(source, manifest, file) as opened, blaming(source, manifest, file):
        return opened.bytes_of_stores()


def read_from(source: FileSource, manifest: Manifest, file: DurableFile, place: int) -> Iterator[tuple[str, Table]]:
    """Yield the rows of all stores in a file, in the order of the stores' names, from a place among them on.

    Raises what ``read_tables`` raises.
    """
    last: dict[str, bytes] = {}
    with _opened(source, manifest, file) as opened:
        with blaming(source, manifest, file):
            groups = sorted(opened.groups(), key=itemgetter(1))
        for group, store in groups:
            with blaming(source, manifest, file):
                rows = opened.rows(group)
                if place >= rows:
                    place -= rows
                    continue
                with closing(opened.tables([group], 0)) as tables:
                    table = next(tables)
                last[store] = _checked_keys(table, last.get(store, b""))
            yield store, table.slice(place)
            place = 0


def _groups(
    source: FileSource, manifest: Manifest, file: DurableFile, wanted: str | None
) -> Iterator[tuple[str, Table]]:
    """Yield the row groups of one store, or of all of them, each with its store's name."""
    last: dict[str, bytes] = {}
    with _opened(source, manifest, file) as opened:
        with blaming(source, manifest, file):
            groups = [(group, store) for group, store in opened.groups() if wanted in (store, None)]
        ahead = opened.most_ahead() if source.remote and file.size > WHOLE else 0
        with closing(opened.tables([group for group, _ in groups], ahead)) as tables:
            for _, store in groups:
                with blaming(source, manifest, file):
                    table = next(tables)
                    last[store] = _checked_keys(table, last.get(store, b""))
                yield store, table


@contextmanager
def _opened(source: FileSource, manifest: Manifest, file: DurableFile) -> Iterator["_OpenFile"]:
    path = manifest.path(file)
    try:
        opening = pa.BufferReader(source.read(path)) if file.size <= WHOLE else source.reading(path)
    except MissingFileError as error:
        raise missing_file(source, manifest, file) from error
    with opening as content:
        with blaming(source, manifest, file):
            opened = _OpenFile(content, file, source.describe(path))
        yield opened


class _OpenFile:
    """A durable file whose footer has passed its checksum; several threads may read it.

    Args:
        content: its bytes.
        file: its entry in the manifest.
        where: its full name.
    """

    def __init__(self, content: Any, file: DurableFile, where: str) -> None:
        self._content = content
        self._kind = file.kind
        self._size = file.size
        self._metadata = metadata = _metadata(content, file)
        known = metadata.metadata or {}
        version = known.get(FORMAT_KEY, b"none").decode(errors="replace")
        if version not in map(str, range(PAGE_CHECKSUMS, WITH_A_PART + 1)):
            raise FormatError(
                f"the file {where} has format {version}, but this release of Millpond knows formats {PAGE_CHECKSUMS} "
                f"to {WITH_A_PART}; run the release that wrote it, or a newer one"
            )
        if READER_KEY in known:
            oldest, writer = (known.get(key, b"").decode() for key in (READER_KEY, WRITER_KEY))
            check_reader(f"the file {where}", oldest, writer)
        if known.get(COMMIT_KEY) != file.commit.encode() or metadata.num_rows != file.rows:
            raise pa.ArrowInvalid("it is the file of another commit")
        self._ranges = None if version == str(PAGE_CHECKSUMS) else _ranges(known)
        self._ends = list(accumulate(one.size for one in self._ranges or ()))
        if self._ranges is not None and self._ends[-1:] != [file.size - _FOOTER_END - metadata.serialized_size]:
            raise pa.ArrowInvalid("its ranges are not all that comes before its footer")

        self._part = _part_of(known, metadata.num_row_groups) if version == str(WITH_A_PART) else None
        if self._part is None and file.part_rows:
            raise pa.ArrowInvalid("it has no part of a snapshot")

    def groups(self) -> list[tuple[int, str]]:
        """Return the row groups of a delta or of a part of a snapshot, by the file's kind, each with its store."""
        groups = list(enumerate(self._stores()))
        if self._part is None:
            return groups
        return groups[self._part :] if self._kind is FileKind.PART else groups[: self._part]

    def rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        rows: int = self._metadata.row_group(group).num_rows
        return rows

    def _stores(self) -> list[str]:
        """Return the store of each row group."""
        named = _stores_of(self._metadata)
        if named is not None:
            return named
        parquet = self._parquet()
        return [_store_in(parquet, group) for group in range(parquet.num_row_groups)]

    def tables(self, groups: Sequence[int], ahead: int) -> Generator[Table, None, None]:
        """Return row groups without the store column; ``ahead`` of them are read while the caller uses one."""
        reads = [partial(self._table, group) for group in groups]
        yield from called_ahead(reads, ahead) if ahead else (read() for read in reads)

    def bytes_of_stores(self) -> Counter[str]:
        """Return the number of bytes that the row groups of each store have."""
        sizes: Counter[str] = Counter()
        for store, one in zip(self._stores() if self._ranges else (), self._ranges or (), strict=False):
            sizes[store] += one.size
        return sizes

    def most_ahead(self) -> int:
        """Return the number of row groups to read ahead within little memory; 0 if their sizes are unknown."""
        return min(_AHEAD, _AHEAD_BYTES // max(1, *(one.size for one in self._ranges))) if self._ranges else 0

    def keys(self, group: int) -> Any:
        """Return the keys of a row group, as an Arrow array."""
        table = self._parquet().read_row_group(group, columns=_KEY_COLUMN, use_threads=False)
        return table.column("key").combine_chunks()

    def first_key(self, group: int) -> bytes:
        """Return the first key of a row group, and decode no more than the page that holds it."""
        batches = self._parquet().iter_batches(1, row_groups=[group], columns=_KEY_COLUMN, use_threads=False)
        first = next(batches, None)
        key = None if first is None else first.column(0)[0].as_py()
        if not isinstance(key, bytes) or not key:
            raise pa.ArrowInvalid(f"its row group {group} does not begin with a key")
        return key

    def _table(self, group: int) -> Table:
        return self._parquet().read_row_group(group, columns=_LOCAL_COLUMNS, use_threads=False)

    def _parquet(self) -> Any:
        """Return a reader for one thread alone."""
        ranges, content = self._ranges, self._content
        proven: Any = content if ranges is None else _Proven(content, ranges, self._ends, self._size)
        return pq.ParquetFile(proven, metadata=self._metadata, page_checksum_verification=True, pre_buffer=False)


def _metadata(source: Any, file: DurableFile) -> Any:
    """Return the footer, whose checksum is in the manifest."""
    if source.size() != file.size:
        raise pa.ArrowInvalid(f"it has {source.size()} bytes instead of {file.size}")
    end = source.read_at(_MOSTLY_ENOUGH, max(0, file.size - _MOSTLY_ENOUGH))
    size = int.from_bytes(end[-_FOOTER_END:][:_FOOTER_LENGTH], "little") + _FOOTER_END
    footer = end[-size:] if size <= len(end) else source.read_at(size, max(0, file.size - size))
    if crc32(footer) != file.checksum:
        raise pa.ArrowInvalid("its footer fails its checksum")
    return pq.read_metadata(pa.BufferReader(footer))


def _ranges(known: Any) -> list[ByteRange]:
    try:
        return [
            ByteRange(read_count(size), read_count(checksum))
            for size, checksum in json.loads(known.get(RANGES_KEY, b""))
        ]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid("its footer names no ranges") from error


class _Proven(RawIOBase):
    """A file without its footer that holds one range of it, whose bytes have passed their checksum."""

    def __init__(self, source: Any, ranges: Sequence[ByteRange], ends: Sequence[int], size: int) -> None:
        self._source = source
        self._ranges = ranges
        self._ends = ends
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


def _part_of(known: Any, groups: int) -> int:
    """Return the first row group of a part of a snapshot."""
    try:
        return read_count(int(known.get(PART_KEY, b"")), groups)
    except (TypeError, ValueError) as error:
        raise pa.ArrowInvalid("its footer does not say where its part of a snapshot begins") from error


def _stores_of(metadata: Any) -> list[str] | None:
    """Return the store of each row group, as the footer names it; None if it does not, as in the first format."""
    named = (metadata.metadata or {}).get(STORES_KEY)
    if named is None:
        return None
    try:
        stores = json.loads(named)
    except RecursionError as error:
        raise pa.ArrowInvalid("its footer names no stores") from error
    if not isinstance(stores, list) or [type(store) for store in stores] != [str] * metadata.num_row_groups:
        raise pa.ArrowInvalid("its footer does not name the store of each row group")
    return stores


def _store_in(parquet: Any, group: int) -> str:
    """Return the only store with rows in a row group."""
    table = parquet.read_row_group(group, columns=["store"], use_threads=False)
    stores = pc.unique(table.column("store")).to_pylist()
    if len(stores) != 1 or not isinstance(stores[0], str):
        raise pa.ArrowInvalid(f"its row group {group} does not have the rows of one store")
    return stores[0]


def _checked_keys(table: Table, last: bytes) -> bytes:
    """Return the greatest key of a table; check that its keys ascend strictly from ``last``, so that none is empty."""
    if table.schema.types != [SCHEMA.field(name).type for name in _LOCAL_COLUMNS]:
        raise pa.ArrowInvalid("its columns are not those of a durable file")
    return _ascending(table.column("key").combine_chunks(), last)


def _ascending(keys: Any, last: bytes) -> bytes:
    """Return the greatest of keys that come after ``last`` in strictly ascending order; ``last`` if there are none."""
    if keys.type != SCHEMA.field("key").type or keys.null_count:
        raise pa.ArrowInvalid("its columns are not those of a durable file")
    if not len(keys):
        return last
    ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py() is not False
    if not ascending or keys[0].as_py() <= last:
        raise pa.ArrowInvalid("its keys are not in ascending order")
    greatest: bytes = keys[-1].as_py()
    return greatest

"""Durable files: Parquet, one store per row group, its rows in key order, every byte under a checksum.

Rule of this module: it writes whole files and knows nothing of backends; ``millpond.stores.durability.parquet.reading``
reads them. The columns are ``store``, ``key``, ``timestamp`` and ``value`` (see
``millpond.stores.durability.parquet.rows``). The footer's checksum is in the manifest, and the footer has the checksums
of all before it: byte ranges, one for each row group, so that a file that is read part by part proves each part before
a row of it is used. The file's metadata is::

    millpond.format    2
    millpond.commit    the commit that wrote it, so that a file under the wrong name is detected
    millpond.ranges    [[bytes, CRC-32], ...] from the beginning of the file to its footer, as JSON
    millpond.stores    [name, ...] of the store of each row group, as JSON
    millpond.written_by, millpond.oldest_reader    the release that wrote it, and the oldest that reads it

Format 3 is for a delta that has a part of a snapshot behind its own row groups
(``millpond.stores.durability.manifests.parts``)::

    millpond.part      the number of the first row group that belongs to the part

Format 1 has neither ranges nor stores, but a checksum in each page; it is written where release 0.1.0 has to read it.
Releases may be missing. A reader passes over metadata that it does not know, so they are no format of their own.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from typing import Any, Final, NamedTuple
from zlib import crc32

from pyarrow import parquet as pq

from millpond.releases import RELEASE, Numbered, oldest_reader
from millpond.stores.durability.parquet.rows import SCHEMA, Table
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, file_name
from millpond.stores.durability.storage.storage import Storage

FILE_FORMAT: Final = 2
PAGE_CHECKSUMS: Final = 1
"""The format whose pages have the checksums."""

FORMAT_KEY: Final = b"millpond.format"
COMMIT_KEY: Final = b"millpond.commit"
RANGES_KEY: Final = b"millpond.ranges"
STORES_KEY: Final = b"millpond.stores"
PART_KEY: Final = b"millpond.part"
WRITER_KEY: Final = b"millpond.written_by"
READER_KEY: Final = b"millpond.oldest_reader"


class ByteRange(NamedTuple):
    """A number of bytes, and their CRC-32."""

    size: int
    checksum: int


def write_file(
    storage: Storage,
    directory: str,
    kind: FileKind,
    sequence: int,
    commit: str,
    tables: Iterable[Table],
    file_format: int = FILE_FORMAT,
) -> DurableFile:
    """Write a file from tables of bounded size, each of one store; only one of them is in memory at a time.

    Raises:
        DurabilityError: the storage failed; no manifest names a file that may be left behind.
    """
    with writing_file(storage, directory, kind, sequence, commit, file_format) as new:
        for table in tables:
            new.add(table)
    return new.written()


class NewFile:
    """A file that is being written.

    Args:
        sink: the target of its bytes.
        writer: the writer that makes them.
        file_format: the format.
    """

    def __init__(self, sink: "_Sink", writer: Any, file_format: int) -> None:
        self._sink = sink
        self._writer = writer
        self._format = file_format
        self._rows = 0
        self._ranges: list[ByteRange] = []
        self._stores: list[str] = []
        self._part: int | None = None
        self._own_rows = 0
        self._written: DurableFile | None = None

    def add(self, table: Table) -> None:
        """Write a table of one store, whose keys come after those of that store's earlier tables."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows += table.num_rows
        self._stores.append(table.column("store")[0].as_py())
        self._ranges.append(self._sink.end_range())

    def begin_part(self) -> None:
        """Begin a part of a snapshot: tables added from now on belong to it."""
        self._part, self._own_rows = len(self._ranges), self._rows

    @property
    def part_size(self) -> int:
        """The bytes of the part so far."""
        return 0 if self._part is None else sum(one.size for one in self._ranges[self._part :])

    def written(self) -> DurableFile:
        """Return the file as manifests name it, once it is written in full."""
        assert self._written is not None, "it is written when its context has ended"
        return self._written

    def _end_rows(self) -> None:
        part = {} if self._part is None else {PART_KEY: str(self._part)}
        self._ranges = self._ranges or [self._sink.end_range()]
        # Parquet keeps metadata of the schema twice, and metadata that is added here once.
        reader = str(oldest_reader(Numbered.DURABLE_FILE, self._format))
        self._writer.add_key_value_metadata({WRITER_KEY: RELEASE, READER_KEY: reader, **part})
        if self._format != PAGE_CHECKSUMS:
            self._writer.add_key_value_metadata({RANGES_KEY: _json(self._ranges), STORES_KEY: _json(self._stores)})

    def _end(self, kind: FileKind, sequence: int, commit: str) -> None:
        footer = self._sink.end_range()
        size = sum(one.size for one in self._ranges) + footer.size
        rows = 0 if self._part is None else self._rows - self._own_rows
        part = (rows, self.part_size if rows else 0)
        self._written = DurableFile(kind, sequence, commit, self._rows, size, footer.checksum, *part)


@contextmanager
def writing_file(
    storage: Storage, directory: str, kind: FileKind, sequence: int, commit: str, file_format: int = FILE_FORMAT
) -> Iterator[NewFile]:
    """A new file, to which tables of bounded size are added; it is deleted after an error.

    Raises:
        DurabilityError: the storage failed; no manifest names a file that may be left behind.
    """
    with storage.writing(f"{directory}/{file_name(kind, sequence, commit)}") as stream:
        sink = _Sink(stream)
        with _writer(sink, commit, file_format) as writer:
            new = NewFile(sink, writer, file_format)
            yield new
            new._end_rows()
        new._end(kind, sequence, commit)


def _json(content: Sequence[Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


class _Sink(RawIOBase):
    """A stream that passes bytes on, and forms ranges of them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._range = ByteRange(0, 0)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._range = ByteRange(self._range.size + len(data), crc32(data, self._range.checksum))
        return len(data)

    def end_range(self) -> ByteRange:
        """Return the range of the bytes written since the last call, and begin another."""
        ended, self._range = self._range, ByteRange(0, 0)
        return ended


def _writer(stream: Any, commit: str, file_format: int) -> Any:
    metadata = {FORMAT_KEY: str(file_format), COMMIT_KEY: commit}
    writer: Any = pq.ParquetWriter
    return writer(
        stream,
        SCHEMA.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=["store"],
        column_encoding={"key": "DELTA_BYTE_ARRAY", "timestamp": "DELTA_BINARY_PACKED", "value": "PLAIN"},
        write_statistics=["store"],
        write_page_checksum=file_format == PAGE_CHECKSUMS,
    )

"""Durable files: Parquet with a checksum on every page, one store per row group, its rows in key order.

Rule of this module: it writes and reads whole files and knows nothing of backends. The columns are ``store``, ``key``,
``timestamp`` and ``value`` (see ``millpond.stores.durability.rows``). The file's own metadata carries the format number
``millpond.format`` and the commit that wrote it, so that a file under the wrong name is detected.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import RawIOBase
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
from pyarrow import parquet as pq

from millpond.errors import CorruptFileError, FormatError, MissingFileError
from millpond.stores.durability.manifest import DurableFile, FileKind, Manifest, file_name
from millpond.stores.durability.rows import SCHEMA, Table
from millpond.stores.durability.storage import Storage

FILE_FORMAT: Final = 1

_FORMAT_KEY = b"millpond.format"
_COMMIT_KEY = b"millpond.commit"
_FOOTER_LENGTH = 4
_FOOTER_END = 8
"""A Parquet file ends with its footer, the footer's length, and four bytes of magic."""
_WHOLE = 1 << 23
"""Files up to this size are read whole: an object store takes longer to answer than to send."""
_LOCAL_COLUMNS = ["key", "timestamp", "value"]


def write_file(
    storage: Storage, directory: str, kind: FileKind, sequence: int, commit: str, tables: Iterable[Table]
) -> DurableFile:
    """Write a file from tables of bounded size, each of one store; only one of them is in memory at a time.

    Raises:
        DurabilityError: the storage failed; no manifest names what may be left behind.
    """
    rows = 0
    with storage.writing(f"{directory}/{file_name(kind, sequence, commit)}") as stream:
        sink = _Sink(stream)
        with _writer(sink, commit) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
            sink.checksum = 0
    return DurableFile(kind, sequence, commit, rows, sink.size, sink.checksum)


class _Sink(RawIOBase):
    """Passes on what is written, counts it, and keeps the checksum of all since that was last set to 0."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size = 0
        self.checksum = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self.checksum = crc32(data, self.checksum)
        self.size += len(data)
        return len(data)


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
        write_page_checksum=True,
    )


def read_tables(storage: Storage, manifest: Manifest, file: DurableFile, store: str) -> Iterator[Table]:
    """The rows of one store in a file of ``manifest``, in key order, one row group at a time, without the store column.

    Raises:
        MissingFileError: the file is gone.
        CorruptFileError: the file is not as it was written.
        FormatError: the file is in a format that this release does not know.
        DurabilityError: the storage failed.
    """
    with _opened(storage, manifest, file) as parquet:
        for group in range(parquet.num_row_groups):
            if _store_of(parquet, group) == store:
                with _blaming(storage, manifest, file):
                    table = parquet.read_row_group(group, columns=_LOCAL_COLUMNS, use_threads=False)
                yield table


@contextmanager
def _opened(storage: Storage, manifest: Manifest, file: DurableFile) -> Iterator[Any]:
    path = manifest.path(file)
    try:
        source = pa.BufferReader(storage.read(path)) if file.size <= _WHOLE else storage.reading(path)
    except MissingFileError as error:
        raise MissingFileError(
            f"the file {storage.describe(path)} is gone, but the manifest of task {manifest.task_id!r} of application "
            f"{manifest.application_id!r} at commit {manifest.sequence} ({manifest.commit}) needs it; put it back, or "
            "restart the query at a batch whose files are all there"
        ) from error
    with source:
        with _blaming(storage, manifest, file):
            _check_footer(source, file)
            parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
            _check_metadata(parquet, file, storage.describe(path))
        yield parquet


def _check_footer(source: Any, file: DurableFile) -> None:
    """Every page has a checksum of its own; the footer, which says where and whose they are, has this one."""
    if source.size() != file.size:
        raise pa.ArrowInvalid(f"it has {source.size()} bytes instead of {file.size}")
    length = int.from_bytes(source.read_at(_FOOTER_LENGTH, file.size - _FOOTER_END), "little")
    footer = source.read_at(length + _FOOTER_END, max(0, file.size - _FOOTER_END - length))
    if crc32(footer) != file.checksum:
        raise pa.ArrowInvalid("its footer fails its checksum")


def _check_metadata(parquet: Any, file: DurableFile, where: str) -> None:
    metadata = parquet.metadata.metadata or {}
    version = metadata.get(_FORMAT_KEY, b"none").decode()
    if version != str(FILE_FORMAT):
        raise FormatError(
            f"the file {where} has format {version}, but this release of Millpond knows format {FILE_FORMAT}; "
            "run the release that wrote it, or a newer one"
        )
    if metadata.get(_COMMIT_KEY) != file.commit.encode() or parquet.metadata.num_rows != file.rows:
        raise pa.ArrowInvalid("it is the file of another commit")


def _store_of(parquet: Any, group: int) -> str:
    name: str = parquet.metadata.row_group(group).column(0).statistics.min
    return name


@contextmanager
def _blaming(storage: Storage, manifest: Manifest, file: DurableFile) -> Iterator[None]:
    """Turn a failure to read a file into the error that says whether storage or file is to blame."""
    path = manifest.path(file)
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        storage.probe(path)
        raise CorruptFileError(
            f"the file {storage.describe(path)} of task {manifest.task_id!r} is damaged: {error}; put an undamaged "
            "copy back, or restart the query at a batch that does not need it"
        ) from error

"""Bringing a backend to the version of a manifest, from the durable files.

Rule of this module: it decides nothing. Whether to replay, to undo or to restore is up to
``millpond.stores.durability.copies.local``. All end at the same content, but start from different ones.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from millpond.stores.backend.column_changes import parts
from millpond.stores.backend.contract import Backend, Changes
from millpond.stores.backend.entry_chunks import EntryChunks
from millpond.stores.durability.copies.position import Position, encode_position
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.prefetch import prefetched
from millpond.stores.durability.parquet.reading import read_span, read_tables
from millpond.stores.durability.parquet.rows import local_changes, local_columns, local_entries, sorted_changes
from millpond.stores.durability.parquet.sorted_runs import Rows, merged_runs
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.durable_file import DurableFile
from millpond.stores.encoding.keys import COMMIT_ROW, DATA
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP

_log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 10.0


class Progress:
    """The count of the rows that are read for one store.

    Args:
        store: its name.
        manifest: the version that it is restored at.

    Attributes:
        read: the number of rows so far.
    """

    def __init__(self, store: str, manifest: Manifest) -> None:
        self._store = store
        self._most = sum(file.own_rows for file in manifest.files)
        self.read = 0
        self._began = self._told = time.monotonic()

    def watched(self, run: Iterator[Rows]) -> Iterator[Rows]:
        """Yield the parts of a run, and count them."""
        for part in run:
            self.read += len(part[0])
            now = time.monotonic()
            if now - self._told >= EVERY_SECONDS:
                self._told = now
                _log.info(
                    "restoring store %r: %d of at most %d rows read in %.0f s",
                    self._store,
                    self.read,
                    self._most,
                    now - self._began,
                )
            yield part


pc: Any = compute

_WORTH_A_THREAD = 1 << 20
_ALL = Span()


def replay(
    backend: Backend, source: FileSource, manifest: Manifest, commit: str, store: str, version: FormatVersion
) -> int:
    """Bring a backend on from ``commit``, which ``manifest`` includes: each delta with its position in one write.

    Returns:
        The number of rows written.

    Raises:
        MissingFileError, CorruptFileError: a file is gone or damaged. The backend is at an earlier commit.
    """
    written = 0
    deltas = manifest.after(commit)
    if deltas is None:
        deltas = (*(manifest.across(commit) or ()), *manifest.deltas)
    for delta in deltas:
        changes: dict[bytes, bytes | None] = {}
        for keys, values in _rows(source, manifest, delta, store, version):
            changes.update(zip(keys, values, strict=True))
        local = local_changes(version, backend, changes)
        backend.write({**local, COMMIT_ROW: Position(delta, commit).encoded()})
        commit, written = delta.commit, written + len(changes)
    return written


def undo(
    backend: Backend, source: FileSource, manifest: Manifest, delta: DurableFile, store: str, version: FormatVersion
) -> None:
    """Undo one delta that was written over ``manifest``: give its keys their former values, in one write."""
    changed = [keys for keys, _ in columns_of_file(source, manifest, delta, store, version)]
    wanted = pa.chunked_array(changed, pa.binary()).combine_chunks()
    before: dict[Any, Any] = dict.fromkeys(wanted.to_pylist())
    if len(wanted):
        for file in manifest.files:
            for keys, values in columns_of_file(source, manifest, file, store, version):
                mine = pc.is_in(keys, value_set=wanted)
                before.update(zip(keys.filter(mine).to_pylist(), values.filter(mine).to_pylist(), strict=True))
    local = local_changes(version, backend, before)
    backend.write({**local, COMMIT_ROW: encode_position(manifest)})


def restore(backend: Backend, source: FileSource, manifest: Manifest, store: str, version: FormatVersion) -> int:
    """Fill an empty backend with the rows of ``store``. The position comes last: until then nobody trusts the rest.

    Returns:
        The number of rows read.
    """
    progress = Progress(store, manifest)
    if manifest.files:
        backend.load(entries(source, manifest, store, version, progress=progress))
        backend.write({COMMIT_ROW: encode_position(manifest)})
    return progress.read


def entries(
    source: FileSource,
    manifest: Manifest,
    store: str,
    version: FormatVersion,
    changes: Changes | None = None,
    progress: Progress | None = None,
    span: Span = _ALL,
) -> Iterable[tuple[bytes, bytes]]:
    """Return a stream of the rows of ``store`` at ``manifest`` in the local format, in key order, with metadata rows.

    Args:
        source, manifest, store, version: the rows.
        changes: the changes since.
        progress: is told of each part that is read.
        span: the wanted keys, as durable files have them, and all of each key whose versions lie apart.
    """
    runs = rows_of_files(source, manifest, store, version, span)
    if progress is not None:
        runs = list(map(progress.watched, runs))
    if changes:
        runs.append(iter([sorted_changes(version, changes)]))
    merged: Any = merged_runs(runs, deletions=False)
    return local_entries(version, EntryChunks(merged))


def knows_timestamps(source: FileSource, manifest: Manifest, store: str) -> bool:
    """Return whether a file of ``manifest`` has a row of ``store`` with a known timestamp."""
    tables = (table for file in manifest.files for table in read_tables(source, manifest, file, store))
    return any(pc.any(pc.not_equal(table.column("timestamp"), UNKNOWN_TIMESTAMP)).as_py() for table in tables)


def newest_are_stamped(source: FileSource, manifest: Manifest, store: str) -> bool:
    """Return whether the newest values of ``store`` in the files of ``manifest`` have timestamps, known or not.

    They have timestamps if a timestamped store wrote them: in one file all values have one, or none has.
    """
    for file in reversed(manifest.files):
        for table in read_tables(source, manifest, file, store):
            values = pc.and_(pc.starts_with(table.column("key"), DATA), pc.is_valid(table.column("value")))
            if pc.any(values).as_py():
                return bool(pc.any(pc.is_valid(table.column("timestamp"))).as_py())
    return False


def rows_of_files(
    source: FileSource, manifest: Manifest, store: str, version: FormatVersion, span: Span = _ALL
) -> list[Iterator[Rows]]:
    """Return the rows of ``store`` in the snapshot of ``manifest``, and in each delta: runs to be merged.

    Each version still has its own row, by its time.
    """
    base = (_rows(source, manifest, file, store, version, span) for file in manifest.base)
    deltas = [_rows(source, manifest, file, store, version, span) for file in manifest.deltas]
    return [chain.from_iterable(base), *deltas]


def _rows(
    source: FileSource, manifest: Manifest, file: DurableFile, store: str, version: FormatVersion, span: Span = _ALL
) -> Iterator[Rows]:
    columns = columns_of_file(source, manifest, file, store, version, span)
    for keys, values in prefetched(columns) if span.whole and file.size > _WORTH_A_THREAD else columns:
        yield from parts(keys, values)


def columns_of_file(
    source: FileSource, manifest: Manifest, file: DurableFile, store: str, version: FormatVersion, span: Span = _ALL
) -> Iterator[tuple[Any, Any]]:
    """Return the keys and values of one store in one file within a span, as arrays, row group by row group."""
    if span.whole:
        tables = read_tables(source, manifest, file, store)
    else:
        tables = read_span(source, manifest, file, store, span)
    return (local_columns(table, version) for table in tables)

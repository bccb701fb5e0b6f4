"""One step of a snapshot: a number of rows of a version, merged from its files, from the end of the last step on.

Rule of this module: it knows durable rows, and neither local ones nor backends. Runs are read in the order of stores
and keys, so the number of rows taken of each tells where the next step begins. A step reads from each run only the rows
that it takes, and no more than one row group beyond.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import StepSize
from millpond.stores.durability.parquet.files import NewFile
from millpond.stores.durability.parquet.reading import read_from
from millpond.stores.durability.parquet.rows import ROWS_PER_TABLE, SCHEMA, Table, conformed
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.storage.durable_file import DurableFile
from millpond.stores.specs.formats import FormatVersion

pc: Any = compute

_BYTES_PER_GROUP: Final = 1 << 24
"""The most bytes of a row group of a part, about, before it is compressed."""


class _Run:
    """The rows of consecutive files, from a place on, of which one table is in memory.

    Attributes:
        place: the number of rows taken since the run's beginning.
    """

    def __init__(self, source: FileSource, manifest: Manifest, files: Sequence[DurableFile], place: int) -> None:
        self.place = place
        self.store = ""
        self._tables = _tables(source, manifest, files, place)
        self._table: Table = SCHEMA.empty_table()
        self._keys: Any = pa.array([], pa.binary())
        self._start = 0

    def fill(self) -> bool:
        """Make sure that a row is in memory; return False at the run's end."""
        while self._start >= len(self._keys):
            found = next(self._tables, None)
            if found is None:
                return False
            (self.store, self._table), self._start = found, 0
            self._keys = self._table.column("key").combine_chunks()
        return True

    @property
    def row_size(self) -> int:
        """About how many bytes a row in memory takes."""
        return int(self._table.nbytes // max(1, len(self._keys)))

    def key(self, ahead: int) -> bytes:
        """Return the key of the row that is so many rows ahead, or else of the last one in memory."""
        key: bytes = self._keys[min(self._start + ahead, len(self._keys) - 1)].as_py()
        return key

    def count(self, bound: bytes) -> int:
        """Return the number of rows in memory with keys up to ``bound``, included."""
        low, high = self._start, len(self._keys)
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle].as_py() <= bound:
                low = middle + 1
            else:
                high = middle
        return low - self._start

    def take(self, count: int) -> Table:
        """Return the next so many rows in memory."""
        taken = self._table.slice(self._start, count)
        self._start += count
        self.place += count
        return taken


def _tables(
    source: FileSource, manifest: Manifest, files: Sequence[DurableFile], place: int
) -> Iterator[tuple[str, Table]]:
    """Yield the rows of consecutive files from a place on; those before it are not opened."""
    for file in files:
        if place >= file.own_rows:
            place -= file.own_rows
            continue
        yield from read_from(source, manifest, file, place)
        place = 0


class Step(NamedTuple):
    """The result of a step: the number of rows taken of each run, and whether these are all."""

    taken: tuple[int, ...]
    last: bool


def write_step(
    new: NewFile,
    source: FileSource,
    manifest: Manifest,
    runs: Sequence[tuple[Sequence[DurableFile], int]],
    stores: Mapping[str, FormatVersion],
    size: StepSize | None,
) -> Step:
    """Write the next rows of runs, merged, to a new file.

    Args:
        new: the file.
        source: the source of the manifest's files.
        manifest: a version that has the runs' files.
        runs: the files of each run, and the number of its rows that have been taken, in the order in which they apply.
        stores: the stores whose rows are kept, and their formats.
        size: the size of a snapshot's step, which has no deleted rows; None to take all rows, deleted ones included.

    Raises:
        MissingFileError, CorruptFileError, FormatError, DurabilityError: a file cannot be read, or the new one written.
    """
    sources = [_Run(source, manifest, files, place) for files, place in runs]
    pending = _Pending(new)
    taken, left = 0, [run for run in sources if run.fill()]
    while left and (size is None or (taken < size.rows and new.part_size < size.bytes)):
        store = min(run.store for run in left)
        alike = [run for run in left if run.store == store]
        fitting = min(ROWS_PER_TABLE, _BYTES_PER_GROUP // max(1, *(run.row_size for run in alike)))
        pieces = _pieces(alike, max(1, fitting if size is None else min(fitting, size.rows - taken)))
        taken += sum(piece.num_rows for piece in pieces)
        if store in stores:
            pending.add(store, conformed(_merged(pieces, deletions=size is None), stores[store]))
        left = [run for run in left if run.fill()]
    pending.flush()
    return Step(tuple(run.place for run in sources), not left)


def _pieces(runs: Sequence[_Run], rows: int) -> list[Table]:
    """Return the next rows of runs of one store up to a common key: at most so many, or one of each run.

    No run has more rows up to the least of these keys than its share, as each has a key once.
    """
    share = max(1, rows // len(runs))
    bound = min(run.key(share - 1) for run in runs)
    counts = [run.count(bound) for run in runs]
    return [run.take(count) for run, count in zip(runs, counts, strict=True) if count]


def _merged(pieces: Sequence[Table], *, deletions: bool) -> Table:
    """Return the rows of several tables in the order of keys, each key from the last table that has it."""
    table = pa.concat_tables(pieces).combine_chunks()
    if len(pieces) > 1:
        order = pc.sort_indices(table, [("key", "ascending")])
        keys = table.column("key").take(order).combine_chunks()
        last = pa.concat_arrays([pc.not_equal(keys[1:], keys[:-1]), pa.array([True])])
        table = table.take(order.filter(last))
    values = table.column("value")
    return table.filter(values.is_valid()) if values.null_count and not deletions else table


class _Pending:
    """Rows that are yet to be written, of one store."""

    def __init__(self, new: NewFile) -> None:
        self._new = new
        self._store = ""
        self._tables: list[Table] = []
        self._rows = self._bytes = 0

    def add(self, store: str, table: Table) -> None:
        if store != self._store or self._rows + table.num_rows > ROWS_PER_TABLE:
            self.flush()
        self._store = store
        self._tables.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._bytes >= _BYTES_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the rows."""
        if self._rows:
            table = pa.concat_tables(self._tables).combine_chunks()
            store = pa.repeat(pa.scalar(self._store), table.num_rows)
            self._new.add(pa.table([store, *table.columns], schema=SCHEMA))
        self._tables, self._rows, self._bytes = [], 0, 0

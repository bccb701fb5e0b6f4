"""``TableRows``: the reading of a table that others keep, and its rows in a process's memory.

Rule of this module: rows in memory can be read again. A version takes over the parts that it shares with the one
before it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ColumnTypeError, LookupTableError, RecordError
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.tables.sorted_versions import SortedVersions, VersionRows
from millpond.processors.verbs.change_feed import KNOWN, Change, changes_of
from millpond.processors.verbs.verb import PackedRows, flattened, nullable
from millpond.stores.encoding.nulls import spread

pc: Any = _compute

_TABLES: Final = 8
"""Of how many tables a process has rows in memory: those that were read last."""

_SHOWN: Final = 80
"""The number of characters of a version that are shown: it may be the names of many files."""


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, as a verb looks them up. Travels to the workers.

    Attributes:
        table: reads them.
        columns: the columns that are read, by the names and in the types that they have where the verb is made.
        select: makes the columns of the verb's input of them, as ``PackedRows`` takes them.
        packed: packs them.
        never: the time, in microseconds, from which on a row is never valid.
        max_bytes: how many bytes rows may take in the memory of a process.
        place: tells these rows in memory from those of other verbs.
    """

    table: VersionedTable
    columns: pa.Schema
    select: Callable[[pa.Table], pa.Table]
    packed: PackedRows
    never: int
    max_bytes: int
    place: str

    @property
    def shown(self) -> pa.Schema:
        """The columns of the result, each of which may be null."""
        return nullable(self.packed.rows.schemas.current)

    def newest(self) -> str:
        """Return the newest version."""
        return self.table.version()

    def at(self, version: str) -> SortedVersions:
        """Return the object that looks up rows of a version.

        Raises:
            ConfigurationError: they take more memory than they may, or a column has another type now.
            RecordError: an operation is unknown.
            MissingFileError: the table does not keep the version any more.
        """
        with _lock:
            held = _held.pop(self.place, None)
            if held is None or held.version != version:
                held = self._read(version, held)
            _held[self.place] = held
            while len(_held) > _TABLES:
                _held.popitem(last=False)
        return held.found

    def told(self, version: str) -> str:
        text = version if len(version) <= _SHOWN else f"{version[:_SHOWN]}..."
        return f"version {text} of {self.table!r}"

    def _read(self, version: str, before: "_Held | None") -> "_Held":
        """Return a version, with the parts that it shares with the one before it."""
        parts = {part: number for number, part in enumerate(self.table.parts(version))}
        rows = [self._nothing() if before is None else before.shared(parts)]
        known = {} if before is None else before.parts
        size = rows[0].size
        for part, number in parts.items():
            if part not in known:
                rows.append(self._part(part, number))
                size += rows[-1].size
                self._check_size(size)
        return _Held(version, parts, SortedVersions(VersionRows.joined(rows)))

    def _nothing(self) -> VersionRows:
        """Return no rows."""
        none, numbers = pa.array([], pa.binary()), np.zeros(0, np.int64)
        return VersionRows(none, none, numbers, None if self.packed.order is None else none, numbers)

    def _part(self, part: str, number: int) -> VersionRows:
        """Return the rows of a part."""
        rows = self.select(self._aligned(part))
        times: Any = rows["timestamp"]
        rows = rows.filter(pc.less(times, self.never))  # null, too, is no time from which on a row is valid
        live = np.ones(rows.num_rows, np.bool_)
        if "op" in rows.column_names:
            rows, live = self._changing(rows, part)
        packed = self.packed
        values = spread(_one(packed.packed(rows.filter(pa.array(live)))), live)
        orders = None if packed.order is None else _one(packed.order.pack_columns(flattened(rows["order"])))
        return VersionRows(
            _one(packed.keys_of(rows)),
            values,
            rows["timestamp"].to_numpy(),
            orders,
            np.full(rows.num_rows, number, np.int64),
        )

    def _aligned(self, part: str) -> pa.Table:
        """Return the columns of a part, in the types of those where the verb is made."""
        found = self.table.read(part, self.columns.names)
        columns: list[Any] = []
        for field in self.columns:
            if field.name not in found.column_names:
                columns.append(pa.nulls(found.num_rows, field.type))
                continue
            try:
                columns.append(found[field.name].cast(field.type))
            except pa.ArrowException as error:
                raise ColumnTypeError(
                    f"the column {field.name!r} of {part} is of type {found.schema.field(field.name).type}, and what "
                    f"it has does not fit {field.type}, as the verb reads it: {error}; round or cast it where the file "
                    "is written, or give the column one type in all files that fits, and make the verb again"
                ) from error
        return pa.Table.from_arrays(columns, schema=self.columns)

    def _changing(self, rows: pa.Table, part: str) -> tuple[pa.Table, Any]:
        """Return the rows that say something new, and which of them are no deletes."""
        changes = changes_of(rows["op"])
        if None in changes:
            unknown = rows["op"][changes.index(None)].as_py()
            raise RecordError(
                f"{part} has the operation {unknown!r}, which is none of {KNOWN}; correct it, or leave out right_op"
            )
        new = [change is not Change.BEFORE for change in changes]
        kept: Any = pa.array(new, pa.bool_())
        live = [change is not Change.DELETE for change in changes if change is not Change.BEFORE]
        return rows.filter(kept), np.array(live, np.bool_)

    def _check_size(self, size: int) -> None:
        """Refuse rows that take more memory than they may.

        Raises:
            ConfigurationError: they take more.
        """
        if size > self.max_bytes:
            raise LookupTableError(
                f"the rows of {self.table!r} that were read so far take {size:,} bytes of memory, of at most "
                f"{self.max_bytes:,}; name fewer columns=[...], or give a greater max_bytes, which each Python process "
                "of a worker may take, or join it as a DataFrame by asof_join, which keeps it in state"
            )


class _Held:
    """The rows of a table in memory.

    Args:
        version: the version.
        parts: the numbers of its parts.
        found: the rows.
    """

    def __init__(self, version: str, parts: dict[str, int], found: SortedVersions) -> None:
        self.version = version
        self.parts = parts
        self.found = found

    def shared(self, parts: dict[str, int]) -> VersionRows:
        """Return the rows of those parts that others have, too, with the numbers that they have there."""
        numbers = np.full(len(self.parts) + 1, -1, np.int64)
        for part, number in self.parts.items():
            numbers[number] = parts.get(part, -1)
        rows = self.found.rows
        renumbered = numbers[rows.parts]
        return rows._replace(parts=renumbered).taken(np.flatnonzero(renumbered >= 0))


_held: "OrderedDict[str, _Held]" = OrderedDict()
_lock: Final = Lock()


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

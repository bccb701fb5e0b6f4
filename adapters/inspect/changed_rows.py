"""The rows of a store that differ between two manifests, read from the durable files.

Rule of this module: it compares bytes. Of what they mean it only knows which rows belong to one key, and gives these
together. Where deltas lead from one manifest to the other, it reads the deltas and looks up what they touch; else it
reads all rows of both side by side, in their order. Rows are as durable files have them: each version lies by its time.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millpond.stores.durability.copies.restore import rows_of_files
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sorted_runs import Rows, Run, merged_runs
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.durable_file import DurableFile
from millpond.stores.encoding.keys import DATA, INDEX, TIME_SIZE
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.versions.version_rows import JUST_ABOVE

Belonging = Callable[[Any], Sequence[bool]]
"""The choice of rows that belong to the compared tasks, by an Arrow array of the rows' keys."""

ALL_DATA: Final = Span(DATA, INDEX)

_METADATA: Final = Span(b"", DATA)
_LAST_NUMBER: Final = b"\xff" * TIME_SIZE
_ALONE: Final = 4
"""The most keys that are looked up one by one; the rows of more are read from the first key to the last."""


class ChangedRows(NamedTuple):
    """All rows of some keys of which a row has changed.

    Attributes:
        before: for each of the earlier manifests, the rows that it has.
        after: the rows of the later one.
    """

    before: list[dict[bytes, bytes]]
    after: dict[bytes, bytes]


@dataclass(frozen=True)
class RowsAt:
    """The rows of one store in one task at one manifest.

    Attributes:
        source: where the durable files are.
        manifest: which of them.
        store: the store's name.
        kind: its kind.
    """

    source: FileSource
    manifest: Manifest
    store: str
    kind: StoreKind

    def metadata(self) -> dict[bytes, bytes]:
        """Return the store's metadata, by its row."""
        return dict(_pairs(self.rows(_METADATA)))

    def rows(self, span: Span) -> Iterator[Any]:
        """Return the rows of a span, in order and part by part."""
        return merged_runs(self._runs(self.manifest, span), deletions=False)

    def deltas_since(self, earlier: "RowsAt") -> tuple[DurableFile, ...] | None:
        """Return the deltas that lead here from an earlier manifest; None if they do not."""
        same = earlier.manifest.directory == self.manifest.directory
        return self.manifest.after(earlier.manifest.commit) if same else None

    def touched(self, deltas: tuple[DurableFile, ...], span: Span) -> Iterator[Rows]:
        """Yield the rows of a span that deltas have changed, in order, with their present values: None if deleted."""
        return merged_runs(self._runs(replace(self.manifest, snapshot=None, deltas=deltas), span), deletions=True)

    def _runs(self, manifest: Manifest, span: Span) -> list[Iterator[Rows]]:
        return rows_of_files(self.source, manifest, self.store, self.kind.format_version, span)


def changed_rows(
    before: Sequence[RowsAt], after: RowsAt | None, span: Span, belonging: Belonging | None, *, numbered: bool
) -> Iterator[ChangedRows]:
    """Return the rows that differ, with all others of their keys, in the order of rows and part by part.

    Args:
        before: the tasks that had the rows, of which no two have the same; at least one if there is none ``after``.
        after: the task that has them; None if it has no state.
        span: which rows are compared: whole keys.
        belonging: which of the earlier rows are; None for all.
        numbered: whether rows end with eight bytes that tell rows of one key from each other: a version's time, or the
            number of a put in a window with duplicates.

    Raises:
        MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
    """
    keys = _RowKeys(numbered)
    if after is not None and len(before) == 1 and belonging is None:
        deltas = after.deltas_since(before[0])
        if deltas is not None:
            return _looked_up(before[0], after.touched(deltas, span), keys)
    sides = [_kept(one.rows(span), belonging) for one in before]
    return _side_by_side(sides, iter(()) if after is None else after.rows(span), keys)


def all_rows(before: Sequence[RowsAt], after: RowsAt | None, span: Span, belonging: Belonging | None) -> ChangedRows:
    """Return all rows, in memory, for tasks that keep the same rows in other orders; arguments as above."""
    olds = [dict(_pairs(_kept(one.rows(span), belonging))) for one in before]
    return ChangedRows(olds, {} if after is None else dict(_pairs(after.rows(span))))


class _RowKeys:
    """The grouping of rows by key: rows that differ only in their numbers are together, any other row is alone.

    Args:
        numbered: whether rows end with a number.
    """

    def __init__(self, numbered: bool) -> None:
        self._numbered = numbered

    def of(self, row: bytes) -> bytes:
        """Return the key that a row belongs to, which its rows begin with."""
        return row[:-TIME_SIZE] if self._numbered else row

    def last_row(self, key: bytes) -> bytes:
        """Return the greatest row that a key can have."""
        return key + _LAST_NUMBER if self._numbered else key

    def whole(self, parts: Iterable[Rows]) -> Iterator[Rows]:
        """Yield the same rows in parts that do not divide a key."""
        rows: list[bytes] = []
        values: list[bytes | None] = []
        for some_rows, some_values in parts:
            rows, values = rows + some_rows, values + some_values
            cut = self._last_key(rows) if self._numbered else len(rows)
            if cut:
                yield rows[:cut], values[:cut]
                rows, values = rows[cut:], values[cut:]
        if rows:
            yield rows, values

    def _last_key(self, rows: Sequence[bytes]) -> int:
        """Return the index at which the rows of the last key begin."""
        place = len(rows)
        while place and rows[place - 1].startswith(self.of(rows[-1])):
            place -= 1
        return place

    def differing(self, before: list[dict[bytes, bytes]], after: dict[bytes, bytes]) -> Iterator[ChangedRows]:
        """Yield the rows of the keys that are not the same on both sides, if there are any."""
        olds = before[0] if len(before) == 1 else dict(chain.from_iterable(one.items() for one in before))
        keys = {self.of(row) for row, _ in olds.items() ^ after.items()}
        if keys:
            yield ChangedRows([self.among(one.items(), keys) for one in before], self.among(after.items(), keys))

    def among(self, rows: Iterable[tuple[bytes, bytes]], keys: Container[bytes]) -> dict[bytes, bytes]:
        """Return the rows that belong to some keys."""
        return {row: value for row, value in rows if self.of(row) in keys}


def _looked_up(before: RowsAt, touched: Iterator[Rows], keys: _RowKeys) -> Iterator[ChangedRows]:
    """Yield the touched rows that differ, by looking up what they were before."""
    for rows, values in keys.whole(touched):
        wanted = list(dict.fromkeys(map(keys.of, rows)))
        ends = [(key, key) for key in wanted] if len(wanted) <= _ALONE else [(wanted[0], wanted[-1])]
        spans = (Span(first, keys.last_row(last) + JUST_ABOVE) for first, last in ends)
        old = keys.among(chain.from_iterable(_pairs(before.rows(span)) for span in spans), set(wanted))
        now = old | dict(zip(rows, values, strict=True))
        yield from keys.differing([old], {row: value for row, value in now.items() if value is not None})


def _side_by_side(before: Sequence[Iterator[Rows]], after: Iterator[Rows], keys: _RowKeys) -> Iterator[ChangedRows]:
    """Yield the rows that differ between all sides, key by key; one part of each side is in memory."""
    runs = [Run(keys.whole(side)) for side in (*before, after)]
    while ends := [run.last_key for run in runs if run.fill()]:
        bound = keys.last_row(keys.of(min(ends)))
        *olds, now = (dict(_pairs([run.take(bound)])) for run in runs)
        yield from keys.differing(olds, now)


def _kept(parts: Iterator[Rows], belonging: Belonging | None) -> Iterator[Rows]:
    """Yield the rows that are compared."""
    for rows, values in parts:
        if belonging is None:
            yield rows, values
        elif rows:
            kept = belonging(pa.array(rows, pa.binary()))
            yield list(compress(rows, kept)), list(compress(values, kept))


def _pairs(parts: Iterable[Any]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that are not deleted, each with its value."""
    return chain.from_iterable(zip(rows, values, strict=True) for rows, values in parts)

"""Rows as durable files have them: columns ``key``, ``timestamp``, ``value``, in key order, for one store at a time.

Rule of this module: durable files know nothing of local formats, which are translated here. A data row of a store in
the format ``TIMESTAMPED`` is split into timestamp and value; in ``PLAIN`` its timestamp is null, so that either can be
restored as the other. A version of a store in the format ``LATEST_APART`` lies in the durable form as in ``PLAIN``, so
all of a key's rows are needed to tell the latest. A null value is a deletion. Metadata rows are taken as they are; the
position of the local copy (``COMMIT_ROW``) is left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import compute

from millpond.errors import CorruptStoreError
from millpond.stores.backend.column_changes import ColumnChanges, as_columns
from millpond.stores.backend.contract import Backend
from millpond.stores.encoding.column_keys import TO_THE_END
from millpond.stores.encoding.column_serdes import from_big_endian, to_big_endian
from millpond.stores.encoding.keys import BEYOND, COMMIT_ROW, DATA, TIME_SIZE
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP
from millpond.stores.typed.versions.version_row_columns import plain_columns
from millpond.stores.typed.versions.version_rows import (
    changes_with_latest_apart,
    entries_with_latest_apart,
    plain_changes,
    plain_entries,
)

Table: TypeAlias = Any
"""A ``pyarrow.Table``."""

pc: Any = compute

_COLUMNS: Any = {"store": pa.string(), "key": pa.binary(), "timestamp": pa.int64(), "value": pa.binary()}

SCHEMA: Final = pa.schema(_COLUMNS)

ROWS_PER_TABLE: Final = 65_536
_BYTES_PER_TABLE = 1 << 26


def sorted_changes(
    version: FormatVersion, changes: Mapping[bytes, bytes | None]
) -> tuple[list[bytes], list[bytes | None]]:
    """Return the keys in order, and their values, without the position of the local copy; each version by its time."""
    if version is FormatVersion.LATEST_APART:
        changes = plain_changes(changes)
    keys = sorted(changes)
    if COMMIT_ROW in changes:
        keys.remove(COMMIT_ROW)
    return keys, list(map(changes.__getitem__, keys))


def tables_of_changes(store: str, version: FormatVersion, changes: Mapping[bytes, bytes | None]) -> Iterator[Table]:
    """Yield the changes of one store as tables of bounded size, in key order."""
    if version is FormatVersion.LATEST_APART and changes:
        changes = as_columns(changes)
    if isinstance(changes, ColumnChanges):
        plain = plain_columns(changes) if version is FormatVersion.LATEST_APART else changes
        if plain is not None:
            yield from tables_of_columns(store, version, plain.keys_column, plain.values_column)
        return
    keys, values = sorted_changes(version, changes)
    for start in range(0, len(keys), ROWS_PER_TABLE):
        stop = start + ROWS_PER_TABLE
        yield from _tables(store, version, keys[start:stop], values[start:stop])


def tables_of_columns(store: str, version: FormatVersion, keys: Any, values: Any) -> Iterator[Table]:
    """Yield rows that are Arrow arrays in key order, as tables of bounded size."""
    kept = pc.not_equal(keys, COMMIT_ROW)
    keys, values = keys.filter(kept), values.filter(kept)
    for start in range(0, len(keys), ROWS_PER_TABLE):
        yield from _halved(store, version, keys.slice(start, ROWS_PER_TABLE), values.slice(start, ROWS_PER_TABLE))


def _halved(store: str, version: FormatVersion, keys: Any, values: Any) -> Iterator[Table]:
    if len(keys) > 1 and keys.nbytes + values.nbytes > _BYTES_PER_TABLE:
        middle = len(keys) // 2
        yield from _halved(store, version, keys[:middle], values[:middle])
        yield from _halved(store, version, keys[middle:], values[middle:])
    else:
        yield _table(store, version, keys, values)


def tables_of_entries(store: str, version: FormatVersion, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[Table]:
    """Yield entries that come in key order, as tables of bounded size; hold one table at a time."""
    source = plain_entries(entries) if version is FormatVersion.LATEST_APART else iter(entries)
    while chunk := [entry for entry in islice(source, ROWS_PER_TABLE) if entry[0] != COMMIT_ROW]:
        keys, values = zip(*chunk, strict=True)
        yield from _tables(store, version, keys, values)


def _tables(
    store: str, version: FormatVersion, keys: Sequence[bytes], values: Sequence[bytes | None]
) -> Iterator[Table]:
    if len(keys) > 1 and sum(map(len, filter(None, values))) + sum(map(len, keys)) > _BYTES_PER_TABLE:
        middle = len(keys) // 2
        yield from _tables(store, version, keys[:middle], values[:middle])
        yield from _tables(store, version, keys[middle:], values[middle:])
    else:
        yield _table(store, version, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def _table(store: str, version: FormatVersion, keys: Any, values: Any) -> Table:
    if version is FormatVersion.TIMESTAMPED:
        timestamps, values = _split(store, keys, values)
    else:
        timestamps = pa.nulls(len(keys), pa.int64())
    names = pa.repeat(pa.scalar(store), len(keys))
    return pa.table([names, keys, timestamps, values], schema=SCHEMA)


def _split(store: str, keys: Any, values: Any) -> tuple[Any, Any]:
    """Return the timestamps and the rest of the values of data rows; other rows keep their values."""
    data = pc.and_(pc.starts_with(keys, DATA), values.is_valid())
    heads = pc.if_else(data, pc.binary_slice(values, 0, TIME_SIZE), b"\x00" * TIME_SIZE)
    try:
        timestamps = from_big_endian(heads, pa.int64())
    except pa.ArrowInvalid as error:
        raise CorruptStoreError(f"store {store!r} has a value without the timestamp that its format needs") from error
    rest = pc.binary_slice(values, TIME_SIZE, TO_THE_END)
    return pc.if_else(data, timestamps, pa.scalar(None, pa.int64())), pc.if_else(data, rest, values)


def conformed(table: Table, version: FormatVersion) -> Table:
    """Return rows of durable files as a store of that format writes them, whatever format they were written in.

    A data row without a timestamp gets the unknown one (-1) where the format has them, and loses it where it has none.
    """
    timestamps = table.column("timestamp")
    if version is FormatVersion.TIMESTAMPED:
        stamped = pc.and_(pc.starts_with(table.column("key"), DATA), table.column("value").is_valid())
        unknown = pc.and_not(stamped, timestamps.is_valid())
        timestamps = pc.if_else(unknown, pa.scalar(UNKNOWN_TIMESTAMP, pa.int64()), timestamps)
    else:
        timestamps = pa.nulls(table.num_rows, pa.int64())
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", timestamps)


def local_columns(table: Table, version: FormatVersion) -> tuple[Any, Any]:
    """Return the keys of a table and their values in the local format, as arrays; null where the row was deleted.

    A data row without a timestamp gets the unknown one (-1) where the format needs one. Versions still have rows by
    their times: ``local_entries`` and ``local_changes`` set the latest apart, once all of a key's rows are known.
    """
    columns = table.combine_chunks()
    keys, values = _column(columns, "key"), _column(columns, "value")
    if version is FormatVersion.TIMESTAMPED:
        timestamps = pc.fill_null(_column(columns, "timestamp"), UNKNOWN_TIMESTAMP)
        joined = pc.binary_join_element_wise(to_big_endian(timestamps), values, pa.scalar(b"", pa.binary()))
        values = pc.if_else(pc.starts_with(keys, DATA), joined, values)
    return keys, values


def local_entries(version: FormatVersion, entries: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """Return all entries of a store in the local format, from entries with each version by its time."""
    return entries_with_latest_apart(iter(entries)) if version is FormatVersion.LATEST_APART else entries


def local_changes(
    version: FormatVersion, backend: Backend, changes: Mapping[bytes, bytes | None]
) -> Mapping[bytes, bytes | None]:
    """Return changes of a backend in the local format, from changes with each version by its time."""
    return changes_with_latest_apart(backend, changes) if version is FormatVersion.LATEST_APART else changes


def _column(table: Table, name: str) -> Any:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def fault_in(table: Table, *, deletions: bool) -> str | None:
    """Return what is wrong with the rows of one store in one file, as far as can be told without its kind and serdes.

    Args:
        table: the rows, without the store column.
        deletions: whether rows may be deleted ones.
    """
    columns = table.combine_chunks()
    keys, values = _column(columns, "key"), _column(columns, "value")
    stamped, data = _column(columns, "timestamp").is_valid(), pc.starts_with(keys, DATA)
    faults = {
        "is the position of a local copy": pc.equal(keys, COMMIT_ROW),
        "is neither metadata nor data nor index": pc.greater_equal(keys, BEYOND),
        "is deleted in a snapshot": pc.and_(values.is_null(), pa.scalar(not deletions)),
        "has a timestamp although it has no value, or is no data": pc.and_not(
            stamped, pc.and_(data, values.is_valid())
        ),
    }
    for what, rows in faults.items():
        if pc.any(rows).as_py():
            return f"the row {keys.filter(rows)[0].as_py().hex()} {what}"
    with_value = pc.and_(data, values.is_valid())
    if pc.any(pc.and_(with_value, stamped)).as_py() and pc.any(pc.and_not(with_value, stamped)).as_py():
        return "some values have a timestamp, and others have none"
    return None

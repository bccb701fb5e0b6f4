"""A row that a user asks about, as the inputs of its join pack it.

Rule of this module: it decides which columns of a row belong to which input; how they become columns of Arrow is
up to callers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidRowError, StoreKindError
from millpond.processors.verbs.matching.matching import Asked, Matching, PackedSide, side_called
from millpond.processors.verbs.verb import PackedRows, Verb, flattened, nullable
from millpond.stores.encoding.times import NO_TIME


@dataclass(frozen=True)
class SideColumns:
    """The columns of one input of a join.

    Attributes:
        keys: the columns that must equal those of the other side, in order.
        values: the columns that are packed.
        needed: the columns without which nothing can be told of a row: its key, and its time where that is a column.
        names: all columns.
    """

    keys: Sequence[str]
    values: Sequence[str]
    needed: Sequence[str]
    names: Sequence[str]


def matching_of(verb: Verb) -> Matching:
    """Return the rules by which a verb decides who matches.

    Raises:
        ConfigurationError: it is no join.
    """
    if verb.matching is None:
        raise StoreKindError(f"the verb {verb.name!r} is no join, so its rows have no match to explain")
    return verb.matching


def asked_row(
    verb: Verb,
    row: Mapping[str, Any],
    sides: Mapping[str, SideColumns],
    read: Callable[[str, Mapping[str, Any]], pa.Table],
) -> Asked:
    """Return a row of the result of a join, or of its first side.

    Args:
        verb: the join.
        row: the row.
        sides: the columns of its inputs, by role, the left one first.
        read: makes of a role and some values of its columns one row as the verb's ``Input`` takes it, and of the name
            of a table that the verb looks up and the columns of a result that are of it, these as Arrow's.

    Raises:
        ConfigurationError: the verb is no join, or the row is no mapping or lacks a column that is needed.
    """
    if not isinstance(row, Mapping):
        raise InvalidRowError(f"the row is {row!r}; give a mapping from the names of columns to values")
    (first, left), *others = sides.items()
    for name in (*left.needed, *(one for one in matching_of(verb).needs if one in left.names)):
        if name not in row:
            raise InvalidRowError(
                f"the row has no {name!r}; give a row of the result, or of {side_called(first)}, with all its columns"
            )
    given = {first: {name: row[name] for name in left.names if name in row}}
    for role, other in others:
        same = dict(zip(other.keys, left.keys, strict=True))
        shown = [name for name in other.values if name not in same]
        if all(name in row for name in shown):
            keys = {name: row[mine] for name, mine in same.items() if mine in row}
            given[role] = {**keys, **{name: row[name] for name in shown}}
    packed = {role: _packed(verb.inputs[role], read(role, values)) for role, values in given.items()}
    for name, table in verb.tables.items():
        if table.shown.names and all(one in row for one in table.shown.names):
            found = read(name, {one: row[one] for one in table.shown.names})
            packed[name] = PackedSide(packed[first].key, found.cast(table.shown), None)
    return Asked(verb.name, row, packed)


def _packed(input_: Any, rows: pa.Table) -> PackedSide:
    """Return the part of one row that belongs to an input."""
    assert isinstance(input_, PackedRows)
    times, place = rows["timestamp"].combine_chunks(), rows.column_names.index("timestamp")
    timed = rows.set_column(place, "timestamp", times.fill_null(NO_TIME))
    (key,) = input_.keys_of(timed).to_pylist()
    values, schema = flattened(rows["value"]), nullable(input_.rows.schemas.current)
    columns = [column.cast(field.type) for column, field in zip(values.columns, schema, strict=True)]
    return PackedSide(key, pa.Table.from_arrays(columns, schema=schema), times[0].as_py())

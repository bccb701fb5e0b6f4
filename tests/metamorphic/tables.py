"""Tables of rows between verbs, as DataFrames are: which columns they have, and how a verb reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.calls.account import InputTime, Path
from millpond.processors.verbs.projections import CHANGE_TIME

pc: Any = _compute

TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Rows:
    """Rows that somebody puts out.

    Attributes:
        source: whose they are.
        schema: the columns.
        paths: where each of them is found in what is put out.
        bounds: how much later than their time rows may come, by such places.
        present: the places of columns; where one of them is null, a row is left out.
    """

    source: str
    schema: pa.Schema
    paths: Mapping[str, Path]
    bounds: Mapping[Path, int]
    present: tuple[Path, ...] = ()

    @classmethod
    def of(cls, source: str, schema: pa.Schema, bounds: Mapping[Path, int | None] | None = None) -> "Rows":
        known = {path: bound for path, bound in (bounds or {}).items() if bound}
        return cls(source, schema, {name: (name,) for name in schema.names}, known)

    def select(self, *names: str, **paths: str | Path) -> "Rows":
        """Some of the columns, or fields of them, under these names."""
        chosen: dict[str, Path] = {name: (name,) for name in names}
        chosen |= {name: (path,) if isinstance(path, str) else path for name, path in paths.items()}
        fields = [pa.field(name, _type(self.schema, path)) for name, path in chosen.items()]
        places = {name: (*self.paths[path[0]], *path[1:]) for name, path in chosen.items()}
        return replace(self, schema=pa.schema(fields), paths=places)

    def where_present(self, name: str) -> "Rows":
        """The rows in which a column is not null."""
        return replace(self, present=(*self.present, self.paths[name]))

    def is_feed(self, time: str) -> bool:
        """Whether a column is the time of a change feed that a verb has made."""
        return self.paths[time] == (CHANGE_TIME,)

    def time(self, name: str, result: Sequence[str] = ()) -> InputTime:
        """What is known of a column of times; ``result`` has the columns that the verb's result has."""
        return InputTime(self.bounds.get(self.paths[name], 0), (name,) if name in result else None)


@dataclass(frozen=True)
class Selection:
    """How a verb reads rows: the columns of ``RowInput.selected``.

    Attributes:
        rows: the rows.
        keys, values, foreign: the columns that are packed.
        time: the column with the time.
        op: the column with the operation; None if there is none.
        keyed: whether rows with a null in their key are left out before.
        order: the column that decides among rows of one key and time; None if there is none.
        where: for values that only some rows bring, the column that is not null in these, and whether they are wrapped.
        pairs: for values that are structs of two columns, the second one.
    """

    rows: Rows
    keys: Sequence[str]
    values: Sequence[str]
    time: str
    op: str | None = None
    foreign: Sequence[str] = ()
    keyed: bool = False
    order: str | None = None
    where: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: pa.Table) -> pa.Table:
        for path in self.rows.present:
            table = table.filter(pc.is_valid(_column(table, path)))
        columns = {name: _column(table, path) for name, path in self.rows.paths.items()}
        for name, second in self.pairs.items():
            columns[name] = pa.StructArray.from_arrays([columns[name], columns[second]], ["first", "second"])
        for name, (condition, wrapped) in self.where.items():
            columns[name] = _where(columns[name], pc.is_null(columns[condition]), wrapped=wrapped)
        made = {
            "key": _struct(self.keys, columns) if self.keys else _present(table.num_rows),
            "value": _struct(self.values, columns) if self.values else _present(table.num_rows),
            "timestamp": columns[self.time].cast(pa.int64()),
        }
        if self.foreign:
            made["foreign"] = _struct(self.foreign, columns)
        if self.op is not None:
            made["op"] = columns[self.op]
        if self.order is not None:
            made["order"] = pa.StructArray.from_arrays([columns[self.order]], ["order"])
        selected = pa.table(made)
        if not self.keyed:
            return selected
        present = [pc.is_valid(columns[name]) for name in self.keys]
        mask = present[0]
        for one in present[1:]:
            mask = pc.and_(mask, one)
        return selected.filter(mask)


def _where(values: Any, left_out: Any, *, wrapped: bool) -> Any:
    """Values that are null where rows do not count; wrapped ones are the only fields of structs."""
    if wrapped:
        return pa.StructArray.from_arrays([values], ["value"], mask=left_out)
    return pc.if_else(left_out, pa.scalar(None, values.type), values)


def _type(schema: pa.Schema, path: Path) -> pa.DataType:
    type_: Any = schema.field(path[0]).type
    for name in path[1:]:
        type_ = type_.field(name).type
    found: pa.DataType = type_
    return found


def _column(table: pa.Table, path: Path) -> Any:
    column: Any = table[path[0]].combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _struct(names: Sequence[str], columns: Mapping[str, Any]) -> Any:
    return pa.StructArray.from_arrays([columns[name] for name in names], list(names))


def _present(size: int) -> Any:
    column: Any = pa.array([True] * size)
    return pa.StructArray.from_arrays([column], ["present"])

"""Tables of rows: which columns they have, and how a verb reads them.

Rule of this module: it takes columns apart and puts them together, and changes no value.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.calls.account import InputTime, Path
from millpond.processors.verbs.projections import CHANGE_COLUMNS, CHANGE_TIME

pc: Any = _compute


@dataclass(frozen=True)
class Rows:
    """Rows that somebody puts out.

    Attributes:
        source: whose they are.
        schema: the columns.
        paths: where each of them is found in what is put out.
        bounds: how much later than their time rows may come, by such places.
        present: the places of columns; where one of them is null, a row is left out.
        feed: the places of the key of the change feed that they are; None if no verb has made them one.
        hidden: the columns that reach no result.
    """

    source: str
    schema: pa.Schema
    paths: Mapping[str, Path]
    bounds: Mapping[Path, int]
    present: tuple[Path, ...] = ()
    feed: frozenset[Path] | None = None
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        source: str,
        schema: pa.Schema,
        bounds: Mapping[Path, int | None] | None = None,
        feed: Sequence[str] | None = None,
    ) -> "Rows":
        """Rows as somebody puts them out.

        Args:
            source: whose they are.
            schema: the columns.
            bounds: how much later than their time rows may come, by the places of the times.
            feed: the key of the change feed that they are; None if no verb has made them one.
        """
        known = {path: bound for path, bound in (bounds or {}).items() if bound}
        key = None if feed is None else frozenset((name,) for name in feed)
        return cls(source, schema, {name: (name,) for name in schema.names}, known, feed=key)

    def select(self, /, *names: str, **paths: str | Path) -> "Rows":
        """Some of the columns, or fields of them, under these names."""
        chosen: dict[str, Path] = {name: (name,) for name in names}
        chosen |= {name: (path,) if isinstance(path, str) else path for name, path in paths.items()}
        fields = [pa.field(name, _type(self.schema, path)) for name, path in chosen.items()]
        places = {name: (*self.paths[path[0]], *path[1:]) for name, path in chosen.items()}
        return replace(self, schema=pa.schema(fields), paths=places)

    def where_present(self, name: str) -> "Rows":
        """The rows in which a column is not null."""
        return replace(self, present=(*self.present, self.paths[name]))

    def shown(self, name: str) -> str:
        """What messages call a column: its place in what is put out."""
        return ".".join(self.paths[name])

    def in_order(self, keys: Sequence[str], time: str) -> bool:
        """Whether rows of one of these keys come in the order in which they count, by that time.

        Those of a change feed do if one task has made them, so all columns of the feed's key must be among them.
        """
        if self.feed is None or self.paths[time] != (CHANGE_TIME,):
            return False
        return self.feed <= {self.paths[name] for name in keys}

    def carried(self, apart: Collection[str] = (), taken: Collection[str] = ()) -> list[str]:
        """The columns that reach a result.

        Args:
            apart: those that do not, such as the key.
            taken: names that the result has from elsewhere: the columns of a change feed that have one are left out.
        """
        changes = set() if self.feed is None else {(name,) for name in CHANGE_COLUMNS}
        return [
            name
            for name in self.schema.names
            if name not in apart and name not in self.hidden and not (name in taken and self.paths[name] in changes)
        ]

    def time(self, name: str, result: Sequence[str] = ()) -> InputTime:
        """What is known of a column of times; ``result`` has the columns that the verb's result has."""
        return InputTime(self.bounds.get(self.paths[name], 0), (name,) if name in result else None)


@dataclass(frozen=True)
class Selection:
    """How a verb reads rows.

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
        """The columns of the verb's ``Input`` of a table of the rows."""
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
            "timestamp": _micros(columns[self.time]),
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


def _micros(times: Any) -> Any:
    """Times, or dates, in microseconds since 1970."""
    return times.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_date(times.type) else times.cast(pa.int64())


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

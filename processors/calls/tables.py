"""Tables of rows: their columns, and the reading of these by a verb, as ``readings`` asks.

Rule of this module: it takes columns apart and puts them together, and changes no value.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.calls.account import InputTime, Path
from millpond.processors.calls.arguments import INPUT
from millpond.processors.calls.feeds import Feed, Gone
from millpond.processors.calls.readings import hidden_arguments
from millpond.processors.options.grouping import GroupingSets
from millpond.processors.options.known_names import unused_name
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.projections import CHANGE_COLUMNS, CHANGE_TIME, OP, SEQUENCE
from millpond.processors.verbs.verb import INSTANT, WALL_TIME, chosen, microseconds, struct_of

pc: Any = _compute


@dataclass(frozen=True)
class Rows:
    """Rows that somebody puts out.

    Attributes:
        source: the name of their owner.
        schema: the columns.
        paths: the place of each of them in what is put out.
        bounds: how much later than their time rows may come, by such places.
        present: the places of columns; where one of them is null, a row is left out.
        feed: the places of the key of the change feed that they are, if all of them are there; None if no verb has made
            them one.
        told: that feed, as its verb has noted it.
        hidden: the columns that reach no result.
    """

    source: str
    schema: pa.Schema
    paths: Mapping[str, Path]
    bounds: Mapping[Path, int]
    present: tuple[Path, ...] = ()
    feed: frozenset[Path] | None = None
    told: Feed | None = None
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        source: str,
        schema: pa.Schema,
        bounds: Mapping[Path, int | None] | None = None,
        told: Feed | None = None,
    ) -> Self:
        """Return the rows as somebody puts them out.

        Args:
            source: the name of their owner.
            schema: the columns.
            bounds: how much later than their time rows may come, by the places of the times.
            told: their change feed, as its verb has noted it; None if no verb has made them one.
        """
        known = {path: bound for path, bound in (bounds or {}).items() if bound}
        whole = told is not None and told.whole and told.op == OP
        key = frozenset((name,) for name in told.keys) if told is not None and whole else None
        return cls(source, schema, {name: (name,) for name in schema.names}, known, feed=key, told=told)

    def select(self, /, *names: str, **paths: str | Path) -> Self:
        """Return some of the columns, or fields of them, under these names."""
        chosen: dict[str, Path] = {name: (name,) for name in names}
        chosen |= {name: (path,) if isinstance(path, str) else path for name, path in paths.items()}
        fields = [pa.field(name, _type(self.schema, path), metadata=self._noted(path)) for name, path in chosen.items()]
        places = {name: (*self.paths[path[0]], *path[1:]) for name, path in chosen.items()}
        whole = {path[0]: name for name, path in chosen.items() if len(path) == 1}
        told = None if self.told is None else self.told.selected(whole)
        return replace(self, schema=pa.schema(fields), paths=places, told=told)

    def _noted(self, path: Path) -> Any:
        """Return the metadata of a column, such as that it holds months; None for a part of a column."""
        return self.schema.field(path[0]).metadata if len(path) == 1 else None

    def where_present(self, name: str) -> Self:
        """Return the rows in which a column is not null."""
        return replace(self, present=(*self.present, self.paths[name]))

    def shown(self, name: str) -> str:
        """Return the name of a column in messages: its place in what is put out."""
        return ".".join(self.paths[name])

    def in_order(self, keys: Collection[str], time: str) -> bool:
        """Return whether rows of one of these keys come in the order in which they count, by that time.

        Rows of a change feed do if one task has made them, so all columns of the feed's key must be among the keys.
        """
        if self.feed is None or self.paths[time] != (CHANGE_TIME,):
            return False
        return self.feed <= {self.paths[name] for name in keys}

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self.schema.names

    @property
    def remedy(self) -> str:
        """The code with which a user renames or drops columns."""
        return "table.rename_columns({'old': 'new'}), table.drop_columns(['old'])"

    def zoned(self, time: str) -> str:
        """Return the code that makes a column one of moments."""
        return f"a column {time!r} cast to pa.timestamp('us', 'UTC')"

    def upserts(self, op: str, added: Sequence[str] = ()) -> str:
        """Return the code that takes the upserts of a change feed as rows that stay."""
        return f"table.filter(pc.field({op!r}) == 'upsert').drop_columns({[op, *added]})"

    def as_rows(self, op: str) -> str:
        """Return the code that takes the changes of a feed as rows."""
        return f"table.drop_columns([{op!r}])"

    def column(self, name: str) -> str:
        """Return the column of that name, as a user would give it."""
        return name

    def is_column(self, given: str, name: str) -> bool:
        """Return whether what a user gave is the column of that name."""
        return isinstance(given, str) and given == name

    def directions(self, where: str, order: str | Sequence[str]) -> int:
        """Return how many directions an order may have, of a column or of several."""
        names = [order] if isinstance(order, str) else order
        only = self.schema.field(names[0]).type
        return only.num_fields if len(names) == 1 and pa.types.is_struct(only) else len(names)

    def rest(
        self,
        keys: Collection[str],
        taken: Collection[str],
        op: str | None = None,
        order: str | Sequence[str] | None = None,
    ) -> list[str]:
        """Return the columns that reach a result besides the key, as ``VerbRows`` says."""
        changes = set() if self.feed is None else {(name,) for name in CHANGE_COLUMNS}
        if isinstance(order, str) and order == SEQUENCE:
            changes.add((SEQUENCE,))
        apart = {*keys, *self.hidden, op}
        return [
            name
            for name in self.schema.names
            if name not in apart and not (name in taken and self.paths[name] in changes)
        ]

    def time(self, time: str, result: Collection[str] = ()) -> InputTime:
        """Return the bound of a column of times; ``result`` has the columns of the verb's result."""
        gone = None if self.told is None else self.told.gone(None, time)
        bounds = [self.bounds.get(self.paths[one], 0) for one in (time, *([] if gone is None else [gone.time]))]
        return InputTime(max(bounds), (time,) if time in result else None)

    def operations(self, op: str | None) -> str | None:
        """Return the column that says which rows are deletes: the given one, or else that of the change feed."""
        return op if op is not None or self.told is None else self.told.op

    def read(
        self,
        role: str,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        *,
        op: str | None = None,
        order: str | Sequence[str] | None = None,
        foreign: Sequence[str] = (),
        keyed: bool = False,
    ) -> "Selection":
        """Return the columns that a verb reads."""
        gone = None if self.told is None else self.told.gone(op, time)
        return Selection(role, self, keys, values, time, op, foreign, keyed=keyed, order=order, gone=gone)

    def aggregated(
        self,
        keys: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
        gap: str | None = None,
    ) -> "Selection":
        """Return the input of an aggregate, with the column of gaps last.

        Arguments of calls are names of columns. So are conditions: these columns must not be null.
        """
        selected = self._with_arguments({key: key for key in keys}, time, calls, order, gap)
        return replace(selected, keys=keys)

    def regrouped(
        self,
        key: Sequence[str],
        by: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        *,
        op: str,
        order: str | None,
    ) -> "Selection":
        """Return the input of an aggregate over a change feed."""
        taken = {*by, *calls}
        keys = {name if name in by or name not in taken else unused_name(f"key {name}", taken): name for name in key}
        does, went = (unused_name(name, {*taken, *keys}) for name in (OP, CHANGE_TIME))
        gone = None if self.told is None else self.told.gone(op, time)
        columns = {**{name: name for name in by}, **keys, does: op, **({} if gone is None else {went: gone.time})}
        selected = self._with_arguments(columns, time, calls, order)
        apart = None if gone is None else Gone(does, went)
        return replace(selected, keys=list(keys), foreign=by, op=does, gone=apart)

    def _with_arguments(
        self,
        columns: Mapping[str, str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
        gap: str | None = None,
    ) -> "Selection":
        """Return some columns under their new names, with time, order and the arguments of calls, and without a key."""
        conditions = {result: str(call.where) for result, call in calls.items() if call.where is not None}
        seconds = {result: str(call.second) for result, call in calls.items() if call.second is not None}
        arguments = {
            result: str(call.where if call.column is None else call.column)
            for result, call in calls.items()
            if call.takes_values
        }
        taken = {*columns, *arguments}
        moment, decides = unused_name("time", taken), None if order is None else unused_name("order", taken)
        named = {condition: unused_name(f"where {condition}", taken) for condition in conditions.values()}
        pairs = {result: unused_name(f"second {result}", taken) for result in seconds}
        chosen = {**columns, **arguments, moment: time}
        chosen |= {name: condition for condition, name in named.items()}
        chosen |= {name: seconds[result] for result, name in pairs.items()}
        if order is not None and decides is not None:
            chosen[decides] = order
        where = {result: (named[condition], calls[result].wraps) for result, condition in conditions.items()}
        gaps = {} if gap is None else {unused_name("gap", taken): gap}
        rows = self.select(**chosen, **gaps)
        values = [*arguments, *gaps]
        return Selection(INPUT, rows, [], values, moment, order=decides, where=where, pairs=pairs)

    def beside(
        self,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
    ) -> tuple["Selection", Mapping[str, str]]:
        """Return the input of a verb that shows rows beside results of calls; arguments are as in ``aggregated``."""
        columns = hidden_arguments(calls, values)
        hidden = {result: column for result, column in columns.items() if column not in values}
        named: dict[str, str | Path] = {name: name for name in self.schema.names}
        for result, column in hidden.items():
            call = calls[result]
            named[column] = str(call.where if call.column is None else call.column)
        conditions = {result: str(calls[result].where) for result in hidden if calls[result].where is not None}
        where = {hidden[result]: (condition, calls[result].wraps) for result, condition in conditions.items()}
        pairs = {column: str(calls[result].second) for result, column in hidden.items() if calls[result].second}
        packed = [*values, *hidden.values()]
        rows = self.select(**named)
        return Selection(INPUT, rows, keys, packed, time, order=order, where=where, pairs=pairs), columns


@dataclass(frozen=True)
class Selection:
    """The columns of rows that a verb reads.

    Attributes:
        role: the name of the input in messages and topics.
        rows: the rows.
        keys, values, foreign: the columns that are packed.
        time: the column with the time.
        op: the column with the operation; None if there is none.
        keyed: whether rows with a null in their key are left out before.
        order: the column that decides among rows of one key and time, or several, of which the first one decides first;
            None if there is none.
        where: for values that only some rows bring, the column that is not null in these, and whether they are wrapped.
        pairs: for values that are structs of two columns, the second one.
        stored: whether a store keeps the rows.
        grouping: the sets of columns of the key for each of which a row has a key; None if it has one key.
        gone: the columns that say when deleted rows went; None if deletes have the time column of all rows.
    """

    role: str
    rows: Rows
    keys: Sequence[str]
    values: Sequence[str]
    time: str
    op: str | None = None
    foreign: Sequence[str] = ()
    keyed: bool = False
    order: str | Sequence[str] | None = None
    where: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    stored: bool = True
    grouping: GroupingSets | None = None
    gone: Gone | None = None

    @property
    def names(self) -> Sequence[str]:
        """All columns that the rows have."""
        return self.rows.names

    @property
    def ordered(self) -> bool:
        """True if a column decides among rows of one key and time."""
        return self.order is not None

    @property
    def in_order(self) -> bool:
        """True if the order of a change feed decides among them."""
        keys = self.keys if self.grouping is None else self.grouping.common
        return self.in_turn or (self.order is None and self.rows.in_order(keys, self.time))

    @property
    def in_turn(self) -> bool:
        """True if each change of a key replaces the one before it, by the order of a change feed."""
        told = self.rows.told
        return self.order is None and told is not None and told.in_turn(self.keys, self.op)

    @property
    def times(self) -> pa.DataType:
        """``INSTANT`` or ``WALL_TIME``, whichever the times are."""
        return WALL_TIME if getattr(self.rows.schema.field(self.time).type, "tz", None) is None else INSTANT

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed."""
        return pa.schema([self._field(one) for one in chosen(self.rows.schema, names)])

    def key_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed as a key."""
        return chosen(self.rows.schema, names)

    def order_schema(self) -> pa.Schema:
        """Return the schema of the order among rows of one key and time: one column, ``order``."""
        assert self.order is not None
        if isinstance(self.order, str):
            return pa.schema([("order", self.rows.schema.field(self.order).type)])
        return pa.schema([("order", pa.struct(list(chosen(self.rows.schema, self.order))))])

    def unstored(self) -> Self:
        """Return the same input, without a store that keeps its rows."""
        return replace(self, stored=False)

    def grouped(self, grouping: GroupingSets | None) -> Self:
        """Return the same input, with a key in each row for each of some sets of columns."""
        return replace(self, grouping=grouping)

    def _field(self, column: Any) -> Any:
        second = self.pairs.get(column.name)
        if second is not None:
            pair: Any = [("first", column.type), ("second", self.rows.schema.field(second).type)]
            return pa.field(column.name, pa.struct(pair))
        _, wrapped = self.where.get(column.name, ("", False))
        return pa.field(column.name, pa.struct([("value", column.type)])) if wrapped else column

    def of(self, table: pa.Table) -> pa.Table:
        """Return the columns of the verb's ``Input`` of a table of the rows."""
        for path in self.rows.present:
            table = table.filter(pc.is_valid(_column(table, path)))
        columns = {name: _column(table, path) for name, path in self.rows.paths.items()}
        for name, second in self.pairs.items():
            columns[name] = pa.StructArray.from_arrays([columns[name], columns[second]], ["first", "second"])
        for name, (condition, wrapped) in self.where.items():
            columns[name] = _where(columns[name], pc.is_null(columns[condition]), wrapped=wrapped)

        def struct(names: Sequence[str]) -> Any:
            return struct_of({name: columns[name] for name in names}, table.num_rows)

        made = {"key": struct(self.keys), "value": struct(self.values), "timestamp": self._times(columns)}
        if self.foreign:
            made["foreign"] = struct(self.foreign)
        if self.op is not None:
            made["op"] = columns[self.op]
        if self.order is not None:
            order = columns[self.order] if isinstance(self.order, str) else struct(self.order)
            made["order"] = struct_of({"order": order}, table.num_rows)
        selected = pa.table(made)
        if not self.keyed:
            return selected
        present = [pc.is_valid(columns[name]) for name in self.keys]
        mask = present[0]
        for one in present[1:]:
            mask = pc.and_(mask, one)
        return selected.filter(mask)

    def _times(self, columns: Mapping[str, Any]) -> Any:
        """Return the times of rows, in microseconds since 1970."""
        times = microseconds(columns[self.time])
        if self.gone is None:
            return times
        deleted = pc.and_(pc.is_null(times), pc.fill_null(pc.equal(columns[self.gone.op], "delete"), False))
        return pc.if_else(deleted, microseconds(columns[self.gone.time]), times)


def _where(values: Any, left_out: Any, *, wrapped: bool) -> Any:
    """Return the values, null where rows do not count; wrapped ones are the only fields of structs."""
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

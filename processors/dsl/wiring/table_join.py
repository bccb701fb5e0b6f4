"""The wiring of table-table joins, and the table that comes out."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from millpond.errors import NoHistoryError, TopologyError
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.dsl.wiring.graph import TableProcessorMaker
from millpond.processors.dsl.wiring.table import StoredTable, TableCopies, TableHandle, keep
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.materialized import Materialized
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.join import JoinedTable, Joiner, JoinView, TableTableJoin
from millpond.processors.tables.join_history import JoinHistoryView, TableHistoryJoin
from millpond.processors.tables.table_view import TableView, ViewFactory
from millpond.processors.tables.vectorized_join import (
    JoinedColumns,
    ValueType,
    VectorizedJoinView,
    VectorizedTableTableJoin,
)
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import serde
from millpond.stores.typed.terms import Terms

History = Literal["latest", "complete"]
"""The results that an update makes: the key's latest, or all whose time it covers."""


@dataclass(frozen=True)
class TableTableResult(StoredTable):
    """The result of a table-table join; without a store it is read through its two sides.

    Attributes:
        left, right: the sides.
        joiner: called with the key, the left and the right value.
        join_type: the type of the join.
        complete: whether it has a complete history.
        vectorized: whether the joiner takes columns.
    """

    left: TableHandle
    right: TableHandle
    joiner: Joiner
    join_type: JoinType
    complete: bool
    vectorized: bool

    def joined_columns(self) -> JoinedColumns:
        """Return the object that calls a joiner of columns."""
        return JoinedColumns(self.joiner, self.join_type, _value_type(self.left), _value_type(self.right))

    def view(self) -> ViewFactory:
        if self.config.store is not None:
            return super().view()
        left, right = self.left.view(), self.right.view()
        joiner, join_type = self.joiner, self.join_type
        view = JoinHistoryView if self.complete else JoinView

        def make(context: ProcessorContext) -> TableView:
            sides = left.make(context), right.make(context)
            if self.vectorized:
                return VectorizedJoinView(*sides, self.joined_columns(), join_type, context)
            return view(*sides, joiner, join_type, context)

        return ViewFactory((*left.stores, *right.stores), make)

    def send_olds(self, *, force: bool) -> bool:
        """Make both sides send old values, of which old results are made; not for a complete history."""
        if self.complete and self.config.store is None:
            if not force:
                return False
            raise NoHistoryError(
                f"an operator below the join {self.node!r} needs the results before each update, which a complete "
                "history gives only if it is materialized: pass Materialized.versioned to the join"
            )
        if not self.complete:
            self.left.send_olds(force=True)
            self.right.send_olds(force=True)
        return super().send_olds(force=force)

    def copied(self, copies: TableCopies) -> TableHandle:
        if self.config.store is not None:
            return super().copied(copies)
        return copies.once(self, partial(self._again, copies))

    def _again(self, copies: TableCopies, name: str) -> TableHandle:
        left, right = self.left.copied(copies), self.right.copied(copies)
        serdes = Materialized.with_serdes(self.key_serde, self.value_serde)
        join_type, vectorized = self.join_type, self.vectorized
        again = join_tables(left, right, self.joiner, serdes, join_type, "latest", name, vectorized=vectorized)
        copies.graph.change_table(name, remade=True)
        return again


def join_tables(
    left: TableHandle,
    right: TableHandle,
    joiner: Joiner,
    materialized: Materialized,
    join_type: JoinType,
    history: History,
    name: str | None,
    *,
    vectorized: bool = False,
) -> TableHandle:
    """Add both sides of the join and the node where their results come together.

    Raises:
        TopologyError: the tables are not co-partitioned, or cannot have a complete history, or that is vectorized.
    """
    check_copartitioned(left, right)
    graph = left.graph
    node = name or graph.new_name("KTABLE-MERGE-")
    complete = history == "complete"
    key_serde = materialized.key_serde or left.key_serde
    value_serde = materialized.value_serde or graph.value_serde
    result = TableTableResult(graph, node, key_serde, value_serde, left, right, joiner, join_type, complete, vectorized)
    if complete:
        _check_history(result, materialized)
    else:
        for side, table in ((Side.LEFT, left), (Side.RIGHT, right)):
            if join_type.keeps(side):
                table.send_olds(force=True)
    graph.add_table(node, TableConfig(versioned=complete))
    graph.joins[node] = join_type.value
    prefixes = "KTABLE-JOINTHIS-", "KTABLE-JOINOTHER-"
    names = (f"{node}-this", f"{node}-other") if name else tuple(map(graph.new_name, prefixes))
    for side, name_of_side in zip((Side.LEFT, Side.RIGHT), names, strict=True):
        _add_side(result, name_of_side, side)
    graph.add_table_processor(node, names, JoinedTable, node)
    keep(result, materialized, join_terms(join_type))
    return result


def join_terms(join_type: JoinType) -> Terms:
    """Return the parameters on which the rows of a store with the results of a join of tables depend."""
    return Terms((("join", join_type.value),), maker="a join of tables")


def _add_side(result: TableTableResult, node: str, side: Side) -> None:
    """Add the processor that takes one side's updates."""
    this, other = (result.left, result.right) if side is Side.LEFT else (result.right, result.left)
    own, view = this.view() if result.complete else None, other.view()
    make = _side_maker(result, own, view, side, this.versioned)
    result.graph.add_table_processor(node, [this.node], make, result.node)
    result.graph.connect(node, *view.stores, *(() if own is None else own.stores))


def _side_maker(
    result: TableTableResult,
    own: ViewFactory | None,
    other: ViewFactory,
    side: Side,
    versioned: bool,
) -> TableProcessorMaker:
    joiner, join_type = result.joiner, result.join_type

    def make(config: TableConfig) -> Processor:
        if result.vectorized:
            return VectorizedTableTableJoin(
                result.joined_columns(), other=other, join_type=join_type, side=side, versioned=versioned, result=config
            )
        if own is not None:
            return TableHistoryJoin(own, other, joiner, join_type, side=side)
        return TableTableJoin(other, joiner, join_type, side=side, versioned=versioned, result=config)

    return make


def _value_type(table: TableHandle) -> ValueType:
    store = table.config.store
    named = table.value_serde if store is None else table.graph.stores[store].value_serde
    columns = None if named is None else column_serde(serde(named))
    return ValueType(None if columns is None else columns.type, kept=store is not None)


def _check_history(result: TableTableResult, materialized: Materialized) -> None:
    if result.vectorized:
        raise TopologyError(
            f"the join {result.node!r} has a complete history, which is made result by result; leave vectorized out"
        )
    for side in (result.left, result.right):
        if not side.versioned:
            raise NoHistoryError(
                f"the join {result.node!r} cannot have a complete history, because table {side.node!r} is not "
                "versioned; materialize it with Materialized.versioned"
            )
    if materialized.has_store and (materialized.kind is None or not materialized.kind.versioned):
        raise NoHistoryError(
            f"the join {result.node!r} has a complete history, which needs a versioned store, because results come out "
            "of order; use Materialized.versioned, or no store"
        )

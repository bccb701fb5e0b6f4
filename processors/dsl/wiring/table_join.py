"""How a table-table join enters the graph, and the table that comes out."""

from typing import Literal

from millpond.errors import TopologyError
from millpond.processors.dsl.ktable import KTable, add_table_store
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.options.config import Materialized
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.topology import ProcessorNode
from millpond.processors.tables.join import JoinedTable, Joiner, JoinGetter, TableJoinType, TableTableJoin
from millpond.processors.tables.join_history import JoinHistoryGetter, TableHistoryJoin
from millpond.processors.tables.source import TableConfig
from millpond.processors.tables.value_getters import ValueGetter, ValueGetterFactory
from millpond.stores.specs import StoreKind

History = Literal["latest", "complete"]
"""Which results an update makes: the key's latest, or all whose time it covers."""


class JoinedKTable(KTable):
    """The result of a table-table join; without a store it is read through its two sides."""

    def __init__(
        self,
        left: KTable,
        right: KTable,
        joiner: Joiner,
        type_: TableJoinType,
        node: str,
        materialized: Materialized,
        *,
        complete: bool,
    ) -> None:
        key_serde = materialized.key_serde or left.key_serde
        super().__init__(left.graph, node, key_serde, materialized.value_serde, TableConfig(versioned=complete))
        self.sides = left, right
        self.joiner = joiner
        self.type = type_
        self.complete = complete

    def value_getter(self) -> ValueGetterFactory:
        if self.config.store is not None:
            return super().value_getter()
        left, right = (side.value_getter() for side in self.sides)
        joiner, type_ = self.joiner, self.type
        getter = JoinHistoryGetter if self.complete else JoinGetter

        def make(context: ProcessorContext) -> ValueGetter:
            return getter(left.make(context), right.make(context), joiner, type_)

        return ValueGetterFactory((*left.stores, *right.stores), make)

    def enable_old_values(self, force: bool) -> bool:
        """Old results are computed from the sides' old values, so both sides have to send them."""
        if self.complete and self.config.store is None:
            if not force:
                return False
            raise TopologyError(
                f"an operator below the join {self.node!r} needs the results before each update, which a complete "
                "history gives only if it is materialized: pass Materialized.versioned to the join"
            )
        for side in () if self.complete else self.sides:
            side.enable_old_values(force=True)
        self.config.send_olds = True
        return True


def join_tables(
    left: KTable,
    right: KTable,
    joiner: Joiner,
    materialized: Materialized,
    type_: TableJoinType,
    history: History,
    name: str | None,
) -> KTable:
    """Add both sides of the join and the node where their results come together.

    Raises:
        TopologyError: the tables are not co-partitioned, or cannot have a complete history.
    """
    check_copartitioned(left, right)
    graph = left.graph
    node = name or graph.new_name("KTABLE-MERGE-")
    result = JoinedKTable(left, right, joiner, type_, node, materialized, complete=history == "complete")
    if result.complete:
        _check_history(result, materialized)
    elif type_ is not TableJoinType.INNER:
        left.enable_old_values(force=True)
        if type_ is TableJoinType.OUTER:
            right.enable_old_values(force=True)
    names = (
        (f"{node}-this", f"{node}-other") if name else map(graph.new_name, ("KTABLE-JOINTHIS-", "KTABLE-JOINOTHER-"))
    )
    sides = [_add_side(result, side, is_left) for side, is_left in zip(names, (True, False), strict=True)]
    config = result.config
    graph.add(ProcessorNode(node, sides, supplier=lambda: JoinedTable(config)))
    if materialized.has_store:
        add_table_store(result, materialized, f"{node}-STATE-STORE")
    return result


def _add_side(result: JoinedKTable, node: str, is_left: bool) -> str:
    """The processor that takes one side's updates."""
    this, other = result.sides if is_left else reversed(result.sides)
    joiner, type_, config, versioned = result.joiner, result.type, result.config, this.versioned
    own, getter = this.value_getter() if result.complete else None, other.value_getter()

    def make() -> Processor:
        if own is not None:
            return TableHistoryJoin(own, getter, joiner, type_, left=is_left)
        return TableTableJoin(getter, joiner, type_, left=is_left, versioned=versioned, result=config)

    result.graph.add(ProcessorNode(node, [this.node], supplier=make))
    result.graph.connect(node, *getter.stores, *(() if own is None else own.stores))
    return node


def _check_history(result: JoinedKTable, materialized: Materialized) -> None:
    for side in result.sides:
        if not side.versioned:
            raise TopologyError(
                f"the join {result.node!r} cannot have a complete history, because table {side.node!r} is not "
                "versioned; materialize it with Materialized.versioned"
            )
    if materialized.has_store and materialized.kind is not StoreKind.VERSIONED:
        raise TopologyError(
            f"the join {result.node!r} has a complete history, which needs a versioned store, because results come out "
            "of order; use Materialized.versioned, or no store"
        )

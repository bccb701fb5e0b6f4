"""How a table-table join enters the graph, and the table that comes out."""

from millpond.processors.config import Materialized
from millpond.processors.copartition import check_copartitioned
from millpond.processors.ktable import KTable, add_table_store
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.table_source import TableConfig
from millpond.processors.table_table_join import JoinedTable, Joiner, JoinGetter, TableJoinType, TableTableJoin
from millpond.processors.tables import ValueGetter, ValueGetterFactory
from millpond.processors.topology import ProcessorNode


class JoinedKTable(KTable):
    """The result of a table-table join; without a store it is read through its two sides."""

    def __init__(
        self, left: KTable, right: KTable, joiner: Joiner, type_: TableJoinType, node: str, materialized: Materialized
    ) -> None:
        super().__init__(
            left.graph, node, materialized.key_serde or left.key_serde, materialized.value_serde, TableConfig()
        )
        self._sides = left, right
        self._joiner = joiner
        self._type = type_

    def value_getter(self) -> ValueGetterFactory:
        if self.config.store is not None:
            return super().value_getter()
        left, right = (side.value_getter() for side in self._sides)
        joiner, type_ = self._joiner, self._type

        def make(context: ProcessorContext) -> ValueGetter:
            return JoinGetter(left.make(context), right.make(context), joiner, type_)

        return ValueGetterFactory((*left.stores, *right.stores), make)

    def enable_old_values(self, force: bool) -> bool:
        """Old results are computed from the sides' old values, so both sides have to send them."""
        for side in self._sides:
            side.enable_old_values(force=True)
        self.config.send_olds = True
        return True


def join_tables(
    left: KTable, right: KTable, joiner: Joiner, materialized: Materialized, type_: TableJoinType, name: str | None
) -> KTable:
    """Add both sides of the join and the node where their results come together."""
    check_copartitioned(left, right)
    graph = left.graph
    node = name or graph.new_name("KTABLE-MERGE-")
    if type_ is not TableJoinType.INNER:
        left.enable_old_values(force=True)
    if type_ is TableJoinType.OUTER:
        right.enable_old_values(force=True)
    result = JoinedKTable(left, right, joiner, type_, node, materialized)
    config = result.config
    sides: list[str] = []
    for this, other, prefix in ((left, right, "KTABLE-JOINTHIS-"), (right, left, "KTABLE-JOINOTHER-")):
        getter = other.value_getter()
        is_left = this is left and not sides
        versioned = this.versioned

        def make(
            getter: ValueGetterFactory = getter, is_left: bool = is_left, versioned: bool = versioned
        ) -> Processor:
            return TableTableJoin(getter, joiner, type_, left=is_left, versioned=versioned, result=config)

        sides.append(f"{name}-{'this' if is_left else 'other'}" if name else graph.new_name(prefix))
        graph.add(ProcessorNode(sides[-1], [this.node], supplier=make))
        graph.connect(sides[-1], *getter.stores)
    graph.add(ProcessorNode(node, sides, supplier=lambda: JoinedTable(config)))
    if materialized.has_store:
        add_table_store(result, materialized, f"{node}-STATE-STORE")
    return result

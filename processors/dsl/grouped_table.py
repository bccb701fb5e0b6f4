"""``KGroupedTable``: a table grouped by another key, on its way to an aggregation (KIP-904)."""

from collections.abc import Callable
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.fold import Update
from millpond.processors.aggregations.table_aggregate import table_aggregation, table_count, table_reduction
from millpond.processors.aggregations.table_repartition import Selector, TableRepartition
from millpond.processors.dsl.ktable import KTable
from millpond.processors.dsl.wiring.aggregations import add_key_aggregation
from millpond.processors.options.config import Grouped, Materialized, SerdeLike
from millpond.processors.runtime.topology import ProcessorNode
from millpond.stores.change import ChangeSerde, sends_separately
from millpond.stores.serdes import serde


class KGroupedTable:
    """Rows of a table grouped by a key that a selector gives them.

    A row that changes leaves its group with its old value and joins its group with the new one. If that is the same
    group, the group is updated once: subtracted, then added. The changes travel through a repartition topic.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> builder = StreamsBuilder(value_serde="string")
    >>> homes = builder.table("homes")
    >>> homes.group_by(lambda person, town: (town, person), Grouped("string", "string")).count().to("inhabitants")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe("homes", "Ada", "Aberdeen", timestamp=1)
    ...     driver.pipe("homes", "Ada", "Bath", timestamp=2)
    ...     driver.read("inhabitants")  # doctest: +NORMALIZE_WHITESPACE
    [Record(key='Aberdeen', value=1, timestamp=1), Record(key='Aberdeen', value=0, timestamp=2),
     Record(key='Bath', value=1, timestamp=2)]
    """

    def __init__(self, table: KTable, selector: Selector, grouped: Grouped) -> None:
        self._table = table
        self._selector = selector
        self._grouped = grouped
        self._source: str | None = None

    def count(self, materialized: Materialized | None = None) -> KTable:
        """The number of rows of each group, as a table of ints; a group that lost all its rows stays, with 0."""
        return self._aggregate(table_count(), materialized, "int64", "KTABLE-AGGREGATE-")

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each group: the first as it is, then ``adder(aggregate, new)``.

        Args:
            adder: takes a value in.
            subtractor: ``subtractor(aggregate, old)`` takes a value out again; None deletes the group.
            materialized: the store.
        """
        value_serde = self._grouped.value_serde or self._table.value_serde
        return self._aggregate(table_reduction(adder, subtractor), materialized, value_serde, "KTABLE-REDUCE-")

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Update,
        subtractor: Update,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each group, beginning with ``initializer()``.

        Args:
            initializer: makes the aggregate of an empty group.
            adder: ``adder(group, new, aggregate)`` takes a value in.
            subtractor: ``subtractor(group, old, aggregate)`` takes a value out again; None deletes the group.
            materialized: the store.
        """
        aggregation = table_aggregation(initializer, adder, subtractor)
        return self._aggregate(aggregation, materialized, None, "KTABLE-AGGREGATE-")

    def _aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None, prefix: str
    ) -> KTable:
        materialized = materialized or Materialized()
        graph = self._table.graph
        store = graph.new_name(f"{prefix}STATE-STORE-")
        source = self._repartitioned(materialized.name or store)
        serdes = self._grouped.key_serde or self._table.key_serde, value_serde
        return add_key_aggregation(graph, [(source, aggregation)], materialized, store, serdes, prefix)

    def _repartitioned(self, store: str) -> str:
        """The node that reads the changes back; all aggregations of this grouped table share it."""
        if self._source is None:
            from millpond.processors.dsl.kstream import KStream

            table, grouped = self._table, self._grouped
            value_serde = grouped.value_serde or table.value_serde
            if value_serde is None:
                raise TopologyError(
                    f"the changes of table {table.node!r} must travel to the tasks of their groups, but the serde of "
                    f"their values is not known; name it in Grouped(value_serde=...)"
                )
            selector, versioned = self._selector, table.versioned
            upgrade_from = table.graph.upgrade_from
            separate = sends_separately(upgrade_from)
            node = table.graph.new_name("KTABLE-SELECT-")
            table.graph.add(
                ProcessorNode(
                    node,
                    [table.node],
                    supplier=lambda: TableRepartition(selector, versioned=versioned, separate=separate),
                )
            )
            change_serde = ChangeSerde(serde(value_serde), upgrade_from)
            changes = KStream(table.graph, node, grouped.key_serde or table.key_serde, change_serde, True)
            self._source = changes.repartitioned(grouped.name or store).node
        return self._source

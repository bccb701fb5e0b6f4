"""The way of records and rows to the tasks of their groups, before they are aggregated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from millpond.errors import MissingSerdeError, TopologyError
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.column_reduce import ColumnReducer, reducing_columns
from millpond.processors.aggregations.table_repartition import Selector, TableRepartition
from millpond.processors.dsl.wiring.aggregations import (
    AnyWindows,
    add_key_aggregation,
    add_windowed_aggregation,
)
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wiring.table import StoredTable, TableHandle
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.records import Grouped
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.options.windows import EmitStrategy
from millpond.processors.runtime.change import ChangeSerde, sends_separately
from millpond.processors.runtime.processor import Processor
from millpond.processors.tables.config import TableConfig
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import serde
from millpond.stores.specs.store_spec import StoreSpec


@dataclass(frozen=True, eq=False)
class StreamGrouping:
    """A stream grouped by key. All its aggregations share one repartition topic; another grouping has its own.

    Attributes:
        stream: the stream.
        grouped: the serdes of its records once it is grouped.
    """

    stream: StreamHandle
    grouped: Grouped

    @property
    def graph(self) -> TopologyGraph:
        return self.stream.graph

    @property
    def key_serde(self) -> SerdeLike | None:
        return self.grouped.key_serde or self.stream.key_serde

    @property
    def value_serde(self) -> SerdeLike | None:
        return self.grouped.value_serde or self.stream.value_serde

    def source(self, store: str | None = None) -> str:
        """Return the node whose records have equal keys together; ``store`` may name the repartition topic."""
        name, grouped = self.grouped.name or store, self.grouped
        return self.graph.once(self, lambda: self.stream.together(name, grouped.key_serde, grouped.value_serde)).node

    def reducing_columns(self, reducer: ColumnReducer) -> Aggregation:
        """Return the reduction of whole columns of this stream's values.

        Raises:
            TopologyError: Arrow has no column for them.
        """
        named = self.value_serde or self.graph.value_serde
        columns = None if named is None else column_serde(serde(named))
        if columns is None:
            raise MissingSerdeError(
                f"a vectorized reducer takes columns, but values of the serde {named!r} have none; name the serde "
                "of the values (int64, float64, string or bytes), or leave vectorized out"
            )
        return reducing_columns(reducer, columns.type)

    def aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None
    ) -> StoredTable:
        """Return the table of aggregates by key; ``value_serde`` counts if ``materialized`` names none."""
        materialized = materialized or Materialized()
        source = self.source(materialized.name)
        store = self.graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
        serdes = self.key_serde, value_serde
        return add_key_aggregation(self.graph, [(source, aggregation)], materialized, store, serdes)


@dataclass(frozen=True)
class WindowedGrouping:
    """A grouped stream in windows.

    Attributes:
        grouping: the grouped stream.
        windows: windows of time, or sessions.
        emit: the time at which results are emitted.
    """

    grouping: StreamGrouping
    windows: AnyWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    @property
    def value_serde(self) -> SerdeLike | None:
        return self.grouping.value_serde

    def aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None
    ) -> StoredTable:
        """Return the table of aggregates by key and window; ``value_serde`` counts if ``materialized`` names none."""
        materialized, grouping = materialized or Materialized(), self.grouping
        inputs, serdes = [(grouping.source(materialized.name), aggregation)], (grouping.key_serde, value_serde)
        return add_windowed_aggregation(grouping.graph, inputs, materialized, serdes, self.windows, self.emit)


@dataclass(frozen=True, eq=False)
class TableGrouping:
    """A table grouped by another key (KIP-904). All its aggregations share one repartition topic.

    Attributes:
        table: the table, which sends the value before each update.
        selectors: each returns a group of a row, and its value there.
        grouped: the serdes of the changes.
    """

    table: TableHandle
    selectors: Sequence[Selector]
    grouped: Grouped

    @property
    def value_serde(self) -> SerdeLike | None:
        return self.grouped.value_serde or self.table.value_serde

    def aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None, prefix: str
    ) -> StoredTable:
        """Return the table of aggregates by group; ``value_serde`` counts if ``materialized`` names none.

        Raises:
            TopologyError: aggregates expire, though rows would be taken out of them afterward.
        """
        materialized = materialized or Materialized()
        if materialized.ttl is not None:
            raise TopologyError(
                f"the aggregate of the groups of table {self.table.node!r} has a ttl, but rows that leave a group are "
                "taken out of it, however old they are; give the ttl to the table that is grouped: "
                "Materialized(ttl=..., expired='delete')"
            )
        graph = self.table.graph
        store = graph.new_name(f"{prefix}STATE-STORE-")
        source = graph.once(self, lambda: self._changes(materialized.name or store)).node
        serdes = self.grouped.key_serde or self.table.key_serde, value_serde
        return add_key_aggregation(graph, [(source, aggregation)], materialized, store, serdes, prefix)

    def folded(
        self, make: Callable[[StoreSpec, TableConfig], Processor], materialized: Materialized, *stores: StoreSpec
    ) -> StoredTable:
        """Return the table of groups whose changes a processor takes, with more stores than the table's.

        Args:
            make: makes the processor.
            materialized: the store of the table, with its serdes and its name.
            stores: the other stores.
        """
        graph, node = self.table.graph, self.table.graph.new_name("KTABLE-AGGREGATE-")
        spec = materialized.spec(node, TABLE_KINDS, None, None)
        source = graph.once(self, lambda: self._changes(spec.name)).node
        graph.add_table(node, TableConfig(spec.name))
        graph.add_table_processor(node, [source], partial(make, spec), node)
        for one in (spec, *stores):
            graph.add_store(one, node)
        return StoredTable(graph, node, spec.key_serde, spec.value_serde)

    def _changes(self, store: str) -> StreamHandle:
        """Return the changes, read back by the tasks of their groups."""
        table, grouped, graph = self.table, self.grouped, self.table.graph
        if self.value_serde is None:
            raise MissingSerdeError(
                f"the changes of table {table.node!r} must travel to the tasks of their groups, but their value "
                f"serde is not known; name it in Grouped(value_serde=...)"
            )
        separate = sends_separately(graph.upgrade_from)
        node = graph.new_name("KTABLE-SELECT-")
        send = partial(TableRepartition, self.selectors, versioned=table.versioned, separate=separate)
        graph.add_processor(node, [table.node], send)
        change_serde = ChangeSerde(serde(self.value_serde), graph.upgrade_from)
        key_serde = grouped.key_serde or table.key_serde
        return StreamHandle(graph, node, key_serde, change_serde, True).together(grouped.name or store)


def group_table(table: TableHandle, selectors: Sequence[Selector], grouped: Grouped) -> TableGrouping:
    """Group ``table`` by the keys that ``selectors`` return, each of its rows by as many."""
    table.send_olds(force=True)
    return TableGrouping(table, selectors, grouped)

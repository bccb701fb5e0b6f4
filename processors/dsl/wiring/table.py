"""``TableHandle``: a table in the graph, as wiring takes and returns it; ``KTable`` wraps one.

Kinds of tables differ in how they are read and in how they learn the values before their updates; operators ask them
for nothing else. A table's configuration is kept in the graph, which alone may replace it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.errors import TopologyError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.options.functions import keyed_mapper
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.serdes import SerdeLike, resolved
from millpond.processors.runtime.batches.user_functions import ColumnFunction
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.filter import FilterTable, VectorizedFilterTable
from millpond.processors.tables.latest_changes import LatestChanges
from millpond.processors.tables.latest_only import LatestOnly
from millpond.processors.tables.map_values import MapTableValues, TransformTableValues
from millpond.processors.tables.reorder import TableReorder
from millpond.processors.tables.table_view import TableView, ViewFactory, store_view, windowed_view
from millpond.processors.tables.time_ordered_buffer import buffer_spec
from millpond.processors.tables.value_operator import OperationView, TableOperation, TableOperator
from millpond.processors.tables.writer import TableSource
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.encoding.times import Duration, to_length
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Terms
from millpond.stores.typed.windows.grids import EVERYWHERE, Grid


class TableCopies:
    """Tables for tasks other than their own: a table with a store is copied, others are made anew of the copies.

    Args:
        graph: the graph that they are added to.
        name: the name of the copy of ``table``; copies of the tables that it is made of are named after it.
        table: the table that is read.
    """

    def __init__(self, graph: TopologyGraph, name: str, table: "TableHandle") -> None:
        self.graph = graph
        self._name = name
        self._table = table
        self._made: dict[str, TableHandle] = {}

    def made(self) -> "TableHandle":
        """Return the copy of the table."""
        return self._table.copied(self)

    def once(self, table: "TableHandle", make: Callable[[str], "TableHandle"]) -> "TableHandle":
        """Return the copy of one of the tables, which ``make`` makes under a name when it is first asked for."""
        node = table.node
        if node not in self._made:
            self._made[node] = make(self._name if node == self._table.node else f"{self._name}-{node}")
        return self._made[node]


@dataclass(frozen=True)
class TableHandle(ABC):
    """A table of the latest value of each key.

    Attributes:
        graph: its graph.
        node: the node that its updates come out of.
        key_serde, value_serde: the serdes of its rows; None if not known.
    """

    graph: TopologyGraph = field(repr=False)
    node: str
    key_serde: SerdeLike | None
    value_serde: SerdeLike | None

    @property
    def config(self) -> TableConfig:
        """Its current configuration."""
        return self.graph.tables[self.node]

    @property
    def versioned(self) -> bool:
        """True if the rules for versioned tables apply downstream (KIP-914)."""
        return self.config.versioned

    @abstractmethod
    def view(self) -> ViewFactory:
        """Return the view with which other processors read this table; it gets a store if it needs one for that."""

    @abstractmethod
    def send_olds(self, *, force: bool) -> bool:
        """Make it send the value before each update; with ``force`` it gets a store if it needs one for that.

        Returns:
            Whether it does.
        """

    @abstractmethod
    def copied(self, copies: TableCopies) -> "TableHandle":
        """Return this table in other tasks, where its rows and its updates are the same."""

    def as_stream(self) -> StreamHandle:
        """Return its updates as a stream."""
        return StreamHandle(self.graph, self.node, self.key_serde, self.value_serde)


@dataclass(frozen=True)
class StoredTable(TableHandle):
    """A table that has a store."""

    def view(self) -> ViewFactory:
        store = self.config.store
        assert store is not None
        return store_view(store)

    def send_olds(self, *, force: bool) -> bool:
        self.graph.change_table(self.node, send_olds=True)
        return True

    def copied(self, copies: TableCopies) -> TableHandle:
        return copies.once(self, partial(self._kept_again, copies.graph))

    def _kept_again(self, graph: TopologyGraph, name: str) -> "SourceTable":
        """Return a copy of its latest rows, which travel by an internal topic."""
        own = None if self.config.store is None else graph.stores[self.config.store]
        kind = StoreKind.TIMESTAMPED_KEY_VALUE if own is None or own.kind is not StoreKind.KEY_VALUE else own.kind
        key_serde, value_serde = resolved(self.key_serde), resolved(self.value_serde)
        assert key_serde is not None
        assert value_serde is not None
        graph.add_processor(f"{name}-latest", [self.node], partial(LatestOnly, self.versioned))
        serdes = key_serde, value_serde
        graph.add_internal_topic(name, f"{name}-sink", f"{name}-source", [f"{name}-latest"], serdes)
        copy = stored_table(graph, name, [f"{name}-source"], StoreSpec(f"{name}-store", kind, *serdes))
        graph.change_table(name, versioned=self.versioned)
        return copy


@dataclass(frozen=True)
class WindowedTable(StoredTable):
    """The results of a windowed aggregation, by key and window.

    Attributes:
        grid: the grid of windows of time.
    """

    grid: Grid = EVERYWHERE

    def view(self) -> ViewFactory:
        store = self.config.store
        assert store is not None
        return windowed_view(store, self.grid)


@dataclass(frozen=True)
class SourceTable(StoredTable):
    """A table made of records; it gets a store if it asks for one, or when an operator needs to look it up.

    Attributes:
        spec: the store's spec.
    """

    spec: StoreSpec

    def materialize(self) -> None:
        """Give the table its store, if it has none yet."""
        if self.config.store is None:
            self.graph.add_store(self.spec, self.node)
            self.graph.change_table(self.node, store=self.spec.name)

    def view(self) -> ViewFactory:
        self.materialize()
        return super().view()

    def send_olds(self, *, force: bool) -> bool:
        if self.config.store is None and not force:
            return False
        self.materialize()
        return super().send_olds(force=force)


@dataclass(frozen=True)
class DerivedTable(StoredTable):
    """A table made of another, value by value; without a store of its own it is read through its parent.

    Attributes:
        parent: the other table.
        operation: makes its values of the parent's.
    """

    parent: TableHandle
    operation: TableOperation

    def view(self) -> ViewFactory:
        if self.config.store is not None:
            return super().view()
        parent, operation = self.parent.view(), self.operation

        def make(context: ProcessorContext) -> TableView:
            return OperationView(parent.make(context), operation, context)

        return ViewFactory(parent.stores, make)

    def send_olds(self, *, force: bool) -> bool:
        if self.config.store is not None or self.parent.send_olds(force=force):
            return super().send_olds(force=force)
        return self.config.send_olds

    def copied(self, copies: TableCopies) -> TableHandle:
        if self.config.store is not None:
            return super().copied(copies)
        return copies.once(self, partial(self._again, copies))

    def _again(self, copies: TableCopies, name: str) -> TableHandle:
        parent, serdes = self.parent.copied(copies), Materialized.with_serdes(self.key_serde, self.value_serde)
        again = _derived(parent, "", self.operation, serdes, None, name)
        copies.graph.change_table(name, remade=True)
        return again


def source_table(
    graph: TopologyGraph, node: str, parents: list[str], spec: StoreSpec, materialized: Materialized, **config: Any
) -> SourceTable:
    """Return a table of what ``parents`` send, with a store if ``materialized`` asks for one, or else on demand.

    Raises:
        TopologyError: the store cannot be cached.
    """
    check_caching(spec, materialized)
    versioned = spec.versioned
    graph.add_table(node, TableConfig(versioned=versioned, caching=materialized.caching, **config))
    graph.add_table_processor(node, parents, TableSource, node)
    table = SourceTable(graph, node, spec.key_serde, spec.value_serde, spec)
    if materialized.has_store:
        table.materialize()
    return table


def stored_table(graph: TopologyGraph, node: str, parents: list[str], spec: StoreSpec, **config: Any) -> SourceTable:
    """Return a table that puts what its parents send into a store; ``config`` are attributes of ``TableConfig``."""
    table = source_table(graph, node, parents, spec, Materialized(), **config)
    table.materialize()
    return table


def reordered(graph: TopologyGraph, node: str, within: Duration | None, spec: StoreSpec) -> str:
    """Return the node from which a table takes its records: ``node``, or one after it that puts them in order."""
    if within is None:
        return node
    wait = to_length(within, f"reorder_within of the table of {node!r}")
    reorder = graph.new_name("KTABLE-REORDER-")
    buffer = buffer_spec(f"{reorder}-Buffer", wait, spec.key_serde, spec.value_serde, f"the table of {node!r}")
    graph.add_processor(reorder, [node], lambda: TableReorder(buffer))
    graph.add_store(buffer.store_spec, reorder)
    return reorder


def filtered(
    table: TableHandle,
    predicate: Callable[[Any, Any], bool],
    wanted: bool,
    materialized: Materialized | None,
    name: str | None,
    *,
    vectorized: bool,
) -> DerivedTable:
    """Return the rows for which the predicate is ``wanted``; if it is vectorized, it takes columns of many rows."""
    operation = FilterTable(predicate, wanted)
    if vectorized:
        types = [None if one is None else column_type(serde(one)) for one in (table.key_serde, table.value_serde)]
        operation = VectorizedFilterTable(ColumnFunction(predicate, types), wanted)
    return _derived(table, "KTABLE-FILTER-", operation, materialized, table.value_serde, name)


def column_type(known: Serde[Any]) -> pa.DataType | None:
    """Return the type of a serde's values as columns; None if they have to be objects."""
    columns = column_serde(known)
    return None if columns is None else columns.type


def mapped(
    table: TableHandle,
    mapper: Callable[..., Any],
    materialized: Materialized | None,
    value_serde: SerdeLike | None,
    name: str | None,
) -> DerivedTable:
    """Return the table with each value replaced by the result of ``mapper``, which never sees a missing one."""
    operation = MapTableValues(keyed_mapper(mapper))
    return _derived(table, "KTABLE-MAPVALUES-", operation, materialized, value_serde or table.value_serde, name)


def transformed(
    table: TableHandle,
    transformer: Callable[[Any, Any], Any],
    materialized: Materialized | None,
    value_serde: SerdeLike | None,
    name: str | None,
) -> DerivedTable:
    """Return the table with each value replaced by the result of ``transformer``, which sees missing ones too."""
    operation = TransformTableValues(transformer)
    return _derived(table, "KTABLE-TRANSFORMVALUES-", operation, materialized, value_serde or table.value_serde, name)


def latest_changes(table: TableHandle) -> StreamHandle:
    """Return the updates that are their key's latest and give it another value, as a stream; the table gets a store."""
    table.send_olds(force=True)
    return table.as_stream().then("KTABLE-CHANGES-", LatestChanges)


def _derived(
    parent: TableHandle,
    prefix: str,
    operation: TableOperation,
    materialized: Materialized | None,
    value_serde: SerdeLike | None,
    name: str | None,
) -> DerivedTable:
    graph, materialized = parent.graph, materialized or Materialized()
    node = name or graph.new_name(prefix)
    graph.add_table(node, TableConfig(versioned=parent.versioned))
    make = partial(TableOperator, operation, versioned_parent=parent.versioned)
    graph.add_table_processor(node, [parent.node], make, node)
    key_serde = materialized.key_serde or parent.key_serde
    table = DerivedTable(graph, node, key_serde, materialized.value_serde or value_serde, parent, operation)
    keep(table, materialized)
    # If the old values are known without a new store, they save unnecessary tombstones.
    if operation.drops_repeated_tombstones:
        graph.change_table(node, send_olds=parent.send_olds(force=False))
    return table


def keep(table: TableHandle, materialized: Materialized, terms: Terms | None = None) -> None:
    """Give a table the store that ``materialized`` asks for, if any; the store decides whether the table is versioned.

    Args:
        table: the table.
        materialized: the store, if any.
        terms: the parameters on which its rows depend; None for none.

    Raises:
        TopologyError: the store is of a kind that cannot hold a table, or versioned and cached.
    """
    if not materialized.has_store:
        return
    name = f"{table.node}-STATE-STORE"
    spec = materialized.spec(name, TABLE_KINDS, table.key_serde, table.value_serde)
    check_caching(spec, materialized)
    table.graph.add_store(replace(spec, terms=terms), table.node)
    versioned = spec.versioned
    table.graph.change_table(table.node, store=spec.name, versioned=versioned, caching=materialized.caching)


def check_caching(spec: StoreSpec, materialized: Materialized) -> None:
    """Refuse a store that cannot be cached."""
    if materialized.caching and spec.versioned:
        raise TopologyError(
            f"store {spec.name!r} is versioned and cannot be cached: a cache drops versions; leave caching out"
        )

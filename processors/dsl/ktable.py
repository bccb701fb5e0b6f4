"""``KTable``: a table, which a stream of updates keeps current, and the operators on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.errors import TopologyError
from millpond.processors.options.config import Grouped, Materialized, Produced, SerdeLike
from millpond.processors.options.functions import keyed_joiner, keyed_mapper
from millpond.processors.options.suppressed import Suppressed
from millpond.processors.runtime.topology import ProcessorNode, TopologyGraph
from millpond.processors.tables.filter import FilterTable
from millpond.processors.tables.join import TableJoinType
from millpond.processors.tables.map_values import MapTableValues, TransformTableValues
from millpond.processors.tables.reorder import TableReorder
from millpond.processors.tables.source import TableConfig, TableSource
from millpond.processors.tables.time_ordered_buffer import buffer_spec
from millpond.processors.tables.value_getters import ValueGetterFactory, store_getter
from millpond.processors.tables.value_operator import OperationGetter, TableOperation, TableOperator
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.times import Duration

if TYPE_CHECKING:
    from millpond.processors.aggregations.table_repartition import Selector
    from millpond.processors.dsl.grouped_table import KGroupedTable
    from millpond.processors.dsl.kstream import KStream
    from millpond.processors.dsl.wiring.table_join import History


class KTable:
    """A table of the latest value of each key; made by ``StreamsBuilder.table`` and by aggregations."""

    def __init__(
        self,
        graph: TopologyGraph,
        node: str,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        config: TableConfig,
    ) -> None:
        self.graph = graph
        self.node = node
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.config = config

    @property
    def versioned(self) -> bool:
        """Whether the rules for versioned tables apply downstream (KIP-914)."""
        return self.config.versioned

    def value_getter(self) -> ValueGetterFactory:
        """How other processors read this table."""
        assert self.config.store is not None
        return store_getter(self.config.store)

    def enable_old_values(self, force: bool) -> bool:
        """Make the table send the value before each update; with ``force`` it gets a store if it needs one for that."""
        self.config.send_olds = True
        return True

    def filter(
        self,
        predicate: Callable[[Any, Any], bool],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> "KTable":
        """The rows for which ``predicate(key, value)`` is true; a row for which it turns false is deleted.

        A versioned table's repeated tombstones are kept (KIP-914); other tables' are dropped where the value before is
        known.
        """
        return self._derive("KTABLE-FILTER-", FilterTable(predicate, True), materialized, self.value_serde, name)

    def filter_not(
        self,
        predicate: Callable[[Any, Any], bool],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> "KTable":
        """The rows for which ``predicate(key, value)`` is false; otherwise as ``filter``."""
        return self._derive("KTABLE-FILTER-", FilterTable(predicate, False), materialized, self.value_serde, name)

    def map_values(
        self,
        mapper: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> "KTable":
        """Each value replaced by ``mapper(value)``, or with two parameters by ``mapper(key, value)``.

        The mapper is not called for deleted rows. A result of None deletes the row. ``value_serde`` is that of the new
        values; the same unless given here or in ``materialized``.
        """
        operation = MapTableValues(keyed_mapper(mapper))
        return self._derive("KTABLE-MAPVALUES-", operation, materialized, value_serde or self.value_serde, name)

    def transform_values(
        self,
        transformer: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> "KTable":
        """As ``map_values`` with ``transformer(key, value)``, which is called for deleted and absent rows too."""
        operation = TransformTableValues(transformer)
        return self._derive("KTABLE-TRANSFORMVALUES-", operation, materialized, value_serde or self.value_serde, name)

    def join(
        self,
        other: "KTable",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        history: "History" = "latest",
        name: str | None = None,
    ) -> "KTable":
        """A row for each key that both tables have: ``joiner(value, other_value)``, current whichever side changes.

        With versioned tables an update that is not its key's latest makes no result (KIP-914).

        Args:
            other: the table to join with. With ``foreign_key`` its keys are what that extracts, else they are this
                table's keys.
            joiner: ``joiner(value, other_value)``, or with three parameters ``joiner(key, value, other_value)``.
            materialized: a store for the result, and its serdes.
            foreign_key: ``foreign_key(value)``, or with two parameters ``foreign_key(key, value)``, gives the key of
                the other table (KIP-213). None joins nothing.
            history: ``"latest"``, or of two versioned tables ``"complete"``: then an update makes a result for every
                time at which it changes one, so that the results, taken by their timestamps, are right for all times.
                The joined table counts as versioned (KIP-914, "Attempt 2").
            name: what the join's nodes are called after.

        >>> from millpond.processors import Materialized, Produced, StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> a, b = (builder.table(t, materialized=Materialized.versioned(history_retention=60_000)) for t in "ab")
        >>> a.join(b, "{}-{}".format, history="complete").to("joined", Produced(value_serde="string"))
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("a", "k", "a0", 0)
        ...     driver.pipe("b", "k", "b2", 2)
        ...     driver.pipe("b", "k", "b4", 4)
        ...     driver.pipe("a", "k", "a1", 1)
        ...     [(value, timestamp) for _, value, timestamp in driver.read("joined")]
        [('a0-b2', 2), ('a0-b4', 4), ('a1-b2', 2), ('a1-b4', 4)]
        """
        return self._join(other, joiner, materialized, foreign_key, TableJoinType.INNER, history, name)

    def left_join(
        self,
        other: "KTable",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        history: "History" = "latest",
        name: str | None = None,
    ) -> "KTable":
        """As ``join``, but every row of this table has a result; what the other table lacks is None."""
        return self._join(other, joiner, materialized, foreign_key, TableJoinType.LEFT, history, name)

    def outer_join(
        self,
        other: "KTable",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        history: "History" = "latest",
        name: str | None = None,
    ) -> "KTable":
        """As ``join``, but every row of either table has a result; what one table lacks is None."""
        return self._join(other, joiner, materialized, None, TableJoinType.OUTER, history, name)

    def _join(
        self,
        other: "KTable",
        joiner: Callable[..., Any],
        materialized: Materialized | None,
        foreign_key: Callable[..., Any] | None,
        type_: TableJoinType,
        history: "History",
        name: str | None,
    ) -> "KTable":
        from millpond.processors.dsl.wiring.foreign_key_join import join_on_foreign_key
        from millpond.processors.dsl.wiring.table_join import join_tables

        if not isinstance(other, KTable):
            raise TopologyError(
                f"table {self.node!r} can be joined with a table, not with {other!r}; a stream can join a table, and "
                "to_table() makes a table of a stream"
            )
        if history not in ("latest", "complete"):
            raise TopologyError(f"history is {history!r}; give 'latest' or 'complete'")
        with_key = keyed_joiner(joiner)
        if foreign_key is None:
            return join_tables(self, other, with_key, materialized or Materialized(), type_, history, name)
        if history != "latest":
            raise TopologyError(f"the foreign-key join of {self.node!r} with {other.node!r} has no complete history")
        extract = keyed_mapper(foreign_key)
        return join_on_foreign_key(self, other, with_key, extract, materialized or Materialized(), type_, name)

    def _derive(
        self,
        prefix: str,
        operation: TableOperation,
        materialized: Materialized | None,
        value_serde: SerdeLike | None,
        name: str | None,
    ) -> "KTable":
        """The table behind a new operator with this table as its parent."""
        materialized = materialized or Materialized()
        node = name or self.graph.new_name(prefix)
        versioned = self.versioned
        config = TableConfig(versioned=versioned)
        self.graph.add(
            ProcessorNode(
                node,
                [self.node],
                supplier=lambda: TableOperator(operation, config, versioned_parent=versioned),
            )
        )
        return DerivedKTable(self, node, operation, config, materialized, value_serde)

    def group_by(self, selector: "Selector", grouped: Grouped | None = None) -> "KGroupedTable":
        """Group the rows by another key: ``selector(key, value)`` gives group key and grouped value (KIP-904)."""
        from millpond.processors.dsl.grouped_table import KGroupedTable

        self.enable_old_values(force=True)
        return KGroupedTable(self, selector, grouped or Grouped())

    def suppress(self, suppressed: Suppressed) -> "KTable":
        """Hold updates back, for a time or until their windows close (KIP-328).

        Raises:
            TopologyError: the table is versioned, or comes from no windowed aggregation and should wait for one.
        """
        from millpond.processors.tables.suppress import suppress

        return suppress(self, suppressed)

    def to_stream(self) -> "KStream":
        """The table's updates as a stream; a deletion is a null value."""
        from millpond.processors.dsl.kstream import KStream

        return KStream(self.graph, self.node, self.key_serde, self.value_serde)

    def to(self, topic: str, produced: Produced | None = None) -> None:
        """Write the table's updates to a sink."""
        self.to_stream().to(topic, produced)


class DerivedKTable(KTable):
    """A table made of another, value by value; without a store of its own it is read through its parent."""

    def __init__(
        self,
        parent: KTable,
        node: str,
        operation: TableOperation,
        config: TableConfig,
        materialized: Materialized,
        value_serde: SerdeLike | None,
    ) -> None:
        super().__init__(
            parent.graph,
            node,
            materialized.key_serde or parent.key_serde,
            materialized.value_serde or value_serde,
            config,
        )
        self._parent = parent
        self._operation = operation
        if materialized.has_store:
            add_table_store(self, materialized, f"{node}-STATE-STORE")
        if operation.drops_repeated_tombstones:
            # As far as the values before are known without a new store, they save unnecessary tombstones.
            self.config.send_olds = parent.enable_old_values(force=False)

    def value_getter(self) -> ValueGetterFactory:
        if self.config.store is not None:
            return super().value_getter()
        parent, operation = self._parent.value_getter(), self._operation
        return ValueGetterFactory(parent.stores, lambda context: OperationGetter(parent.make(context), operation))

    def enable_old_values(self, force: bool) -> bool:
        if self.config.store is not None or self._parent.enable_old_values(force):
            self.config.send_olds = True
        return self.config.send_olds


def add_table_store(table: KTable, materialized: Materialized, default_name: str) -> None:
    """Give a table the store that ``materialized`` asks for; it decides whether the table is versioned.

    Raises:
        TopologyError: the store is of a kind that cannot hold a table, or versioned and cached.
    """
    spec = materialized.spec(default_name, StoreKind.TIMESTAMPED_KEY_VALUE, table.key_serde, table.value_serde)
    check_table_store(spec, materialized)
    table.graph.add_store(spec, table.node)
    table.config.store = spec.name
    table.config.versioned = spec.kind is StoreKind.VERSIONED
    table.config.caching = materialized.caching


TABLE_KINDS = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED, StoreKind.KEY_VALUE)
"""The kinds of stores that can hold a table; a plain one forgets the times, so results take those of the other side."""


def check_table_store(spec: StoreSpec, materialized: Materialized) -> None:
    """Refuse a store that cannot hold a table."""
    if spec.kind not in TABLE_KINDS:
        raise TopologyError(
            f"store {spec.name!r} of kind {spec.kind.value} cannot hold a table; leave the kind out, or choose "
            f"{' or '.join(kind.value for kind in TABLE_KINDS)}"
        )
    if materialized.caching and spec.kind is StoreKind.VERSIONED:
        raise TopologyError(
            f"store {spec.name!r} is versioned and cannot be cached: a cache drops versions; leave caching out"
        )


class SourceKTable(KTable):
    """A table read from a topic; it gets a store when it asks for one, or when an operator needs to look it up."""

    def __init__(
        self,
        graph: TopologyGraph,
        node: str,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        config: TableConfig,
        spec: StoreSpec,
    ) -> None:
        super().__init__(graph, node, key_serde, value_serde, config)
        self._spec = spec

    def materialize(self) -> None:
        """Give the table its store, if it has none yet; for an operator that has to look the table up."""
        if self.config.store is None:
            self.graph.add_store(self._spec, self.node)
            self.config.store = self._spec.name

    def value_getter(self) -> ValueGetterFactory:
        self.materialize()
        return super().value_getter()

    def enable_old_values(self, force: bool) -> bool:
        if self.config.store is None and not force:
            return False
        self.materialize()
        return super().enable_old_values(force)


def table_source(config: TableConfig) -> Any:
    """The supplier of a source table's processor."""
    return lambda: TableSource(config)


def reordered(graph: TopologyGraph, node: str, grace: Duration | None, spec: StoreSpec) -> str:
    """The node from which a table takes its records: ``node``, or one behind it that brings them into order."""
    if grace is None:
        return node
    reorder = graph.new_name("KTABLE-REORDER-")
    buffer = buffer_spec(f"{reorder}-Buffer", grace, spec.key_serde, spec.value_serde, f"the table of {node!r}")
    graph.add(ProcessorNode(reorder, [node], supplier=lambda: TableReorder(buffer)))
    graph.add_store(buffer.store_spec, reorder)
    return reorder

"""``KTable``: a table, which a stream of updates keeps current, and the operators on it."""

from typing import TYPE_CHECKING, Any

from millpond.processors.config import Produced, SerdeLike
from millpond.processors.table_source import TableConfig, TableSource
from millpond.processors.tables import ValueGetterFactory, store_getter
from millpond.processors.topology import TopologyGraph
from millpond.stores.specs import StoreSpec

if TYPE_CHECKING:
    from millpond.processors.kstream import KStream


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

    def to_stream(self) -> "KStream":
        """The table's updates as a stream; a deletion is a null value."""
        from millpond.processors.kstream import KStream

        return KStream(self.graph, self.node, self.key_serde, self.value_serde)

    def to(self, topic: str, produced: Produced | None = None) -> None:
        """Write the table's updates to a sink."""
        self.to_stream().to(topic, produced)


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
        """Give the table its store, if it has none yet."""
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

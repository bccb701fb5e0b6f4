"""``KGroupedStream``: a stream grouped by key, on its way to an aggregation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.processors.aggregate import StreamAggregate, Update
from millpond.processors.config import Grouped, Materialized, SerdeLike
from millpond.processors.ktable import KTable
from millpond.processors.table_source import TableConfig
from millpond.processors.topology import ProcessorNode
from millpond.stores.specs import StoreKind

if TYPE_CHECKING:
    from millpond.processors.kstream import KStream


class KGroupedStream:
    """Records grouped by key. Records without a key or a value take no part in an aggregation."""

    def __init__(self, stream: "KStream", grouped: Grouped) -> None:
        self._stream = stream
        self._grouped = grouped

    def count(self, materialized: Materialized | None = None) -> KTable:
        """The number of records of each key, as a table of ints."""
        return self._aggregate(_count, materialized, "int64")

    def reduce(self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key: the first as it is, then ``reducer(aggregate, value)``; None deletes."""

        def update(key: Any, value: Any, aggregate: Any) -> Any:
            return value if aggregate is None else reducer(aggregate, value)

        return self._aggregate(update, materialized, self._grouped.value_serde or self._stream.value_serde)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each key: ``aggregator(key, value, aggregate)``, beginning with ``initializer()``."""

        def update(key: Any, value: Any, aggregate: Any) -> Any:
            return aggregator(key, value, initializer() if aggregate is None else aggregate)

        return self._aggregate(update, materialized, None)

    def _aggregate(self, update: Update, materialized: Materialized | None, value_serde: SerdeLike | None) -> KTable:
        stream, grouped = self._stream, self._grouped
        materialized = materialized or Materialized()
        graph = stream.graph
        source = stream.repartitioned(materialized.name or grouped.name, grouped.key_serde, grouped.value_serde)
        store = graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
        key_serde = grouped.key_serde or stream.key_serde
        spec = materialized.spec(store, StoreKind.TIMESTAMPED_KEY_VALUE, key_serde, value_serde)
        config = TableConfig(spec.name, versioned=spec.kind is StoreKind.VERSIONED)
        node = graph.new_name("KSTREAM-AGGREGATE-")
        caching = materialized.caching
        graph.add(
            ProcessorNode(node, [source.node], supplier=lambda: StreamAggregate(config, spec, update, caching=caching))
        )
        graph.add_store(spec, node)
        return KTable(graph, node, spec.key_serde, spec.value_serde, config)


def _count(key: Any, value: Any, aggregate: Any) -> int:
    return 1 if aggregate is None else aggregate + 1

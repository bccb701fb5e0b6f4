"""How an aggregation enters the graph: the processors that share its store, and the table that comes out."""

from collections.abc import Callable, Sequence
from functools import partial

from millpond.errors import TopologyError
from millpond.processors.aggregate import Aggregate, Aggregation
from millpond.processors.batch import Batch
from millpond.processors.config import Materialized, SerdeLike
from millpond.processors.ktable import KTable
from millpond.processors.processor import Processor
from millpond.processors.table_source import TableConfig
from millpond.processors.topology import ProcessorNode, TopologyGraph
from millpond.processors.update_cache import UpdateCache
from millpond.stores.serdes import Serde
from millpond.stores.specs import StoreKind, StoreSpec

Make = Callable[[TableConfig, StoreSpec, Aggregation, bool], Processor]
"""Makes the processor of an aggregation; the last argument says whether it holds updates back itself."""


class _Merge(Processor):
    """Behind several processors that share a store: passes their updates on, or with a cache the last ones only."""

    def __init__(self, key_serde: Serde[object], caching: bool) -> None:
        self._cache = UpdateCache(key_serde) if caching else None

    def process(self, batch: Batch) -> None:
        if self._cache is None:
            self.context.forward(batch)
        else:
            self._cache.add(batch)

    def flush(self) -> None:
        if self._cache is not None:
            self.context.forward(self._cache.take())


def add_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[tuple[str, Aggregation]],
    spec: StoreSpec,
    caching: bool,
    make: Make,
    result_serde: Serde[object],
    prefix: str = "KSTREAM-AGGREGATE-",
) -> tuple[str, TableConfig]:
    """Add one processor for each input, all on one store, and return the node that the updates come out of.

    Args:
        inputs: the node that the records come from, and what is computed from them.
        result_serde: how the keys of the updates become bytes.
    """
    config = TableConfig(spec.name, versioned=spec.kind is StoreKind.VERSIONED)
    alone = len(inputs) == 1
    nodes = []
    for source, aggregation in inputs:
        nodes.append(graph.new_name(prefix))
        supplier = partial(make, config, spec, aggregation, caching and alone)
        graph.add(ProcessorNode(nodes[-1], [source], supplier=supplier))
    graph.add_store(spec, *nodes)
    if alone:
        return nodes[0], config
    merge = graph.new_name("COGROUPKSTREAM-MERGE-")
    graph.add(ProcessorNode(merge, nodes, supplier=lambda: _Merge(result_serde, caching)))
    return merge, config


def add_key_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[tuple[str, Aggregation]],
    materialized: Materialized,
    store: str,
    serdes: tuple[SerdeLike | None, SerdeLike | None],
    prefix: str = "KSTREAM-AGGREGATE-",
) -> KTable:
    """Add an aggregation by key alone; ``store`` is the store's name unless ``materialized`` has one."""
    spec = materialized.spec(store, StoreKind.TIMESTAMPED_KEY_VALUE, *serdes)
    require_kind(spec, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED)

    def make(config: TableConfig, spec: StoreSpec, aggregation: Aggregation, caching: bool) -> Processor:
        return Aggregate(config, spec, aggregation, caching=caching)

    node, config = add_aggregation(graph, inputs, spec, materialized.caching, make, spec.key_serde, prefix)
    return KTable(graph, node, spec.key_serde, spec.value_serde, config)


def require_kind(spec: StoreSpec, *kinds: StoreKind) -> None:
    """Refuse a store of any other kind."""
    if spec.kind not in kinds:
        raise TopologyError(
            f"store {spec.name!r} of kind {spec.kind.value} cannot hold this aggregation; "
            f"leave the kind out, or choose {' or '.join(kind.value for kind in kinds)}"
        )

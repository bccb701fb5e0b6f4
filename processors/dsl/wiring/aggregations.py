"""How an aggregation enters the graph: the processors that share its store, and the table that comes out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.aggregations.aggregate import Aggregate, AggregateSetup, Aggregation
from millpond.processors.aggregations.session_aggregate import SessionAggregate
from millpond.processors.aggregations.sliding_window_aggregate import SlidingWindowAggregate
from millpond.processors.aggregations.windowed_aggregate import WindowedAggregate
from millpond.processors.aggregations.windowed_processor import windowed_aggregation_spec
from millpond.processors.dsl.ktable import TABLE_KINDS, KTable
from millpond.processors.dsl.windowed_table import WindowedKTable
from millpond.processors.options.config import Materialized, SerdeLike
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.options.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, Windows
from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.processor import Processor
from millpond.processors.runtime.topology import ProcessorNode, TopologyGraph
from millpond.processors.tables.source import TableConfig
from millpond.processors.tables.update_cache import UpdateCache
from millpond.stores.serdes import Serde
from millpond.stores.specs import StoreKind, StoreSpec

Input = tuple[str, Aggregation]
"""The node that records come from, equal keys together, and what is computed of them."""

Serdes = tuple[SerdeLike | None, SerdeLike | None]
"""Of keys and of results, where ``Materialized`` names none."""


class _Merge(Processor):
    """Behind several processors that share a store: passes their updates on, or with a cache the last ones only."""

    def __init__(self, key_serde: Serde[Any], caching: bool) -> None:
        self._cache = UpdateCache(key_serde) if caching else None

    def process(self, batch: Batch) -> None:
        if self._cache is None:
            self.context.forward(batch)
        else:
            self._cache.add(batch)

    def flush(self) -> None:
        if self._cache is not None:
            self.context.forward(self._cache.take())


def add_key_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    store: str,
    serdes: Serdes,
    prefix: str = "KSTREAM-AGGREGATE-",
) -> KTable:
    """Add an aggregation by key alone; ``store`` is the store's name unless ``materialized`` has one."""
    spec = materialized.spec(store, StoreKind.TIMESTAMPED_KEY_VALUE, *serdes)
    _require_kind(spec, *TABLE_KINDS)
    node, config = _add(graph, inputs, spec, materialized.caching, Aggregate, spec.key_serde, prefix)
    return KTable(graph, node, spec.key_serde, spec.value_serde, config)


def add_window_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    serdes: Serdes,
    windows: TimeWindows | SlidingWindows,
    emit: EmitStrategy,
) -> KTable:
    """Add an aggregation by key and window of time."""
    store = graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
    size = windows.size if isinstance(windows, TimeWindows) else windows.difference
    kind = StoreKind.TIMESTAMPED_WINDOW
    spec = materialized.spec(store, kind, *serdes, retention=windows.retention, window_size=size)
    _require_kind(spec, kind)
    spec = windowed_aggregation_spec(_retained(spec, windows, emit))

    def make(setup: AggregateSetup) -> Processor:
        if isinstance(windows, TimeWindows):
            return WindowedAggregate(setup, windows, emit)
        return SlidingWindowAggregate(setup, windows, emit)

    key_serde = TimeWindowedSerde(spec.key_serde, size)
    node, config = _add(graph, inputs, spec, materialized.caching, make, key_serde)
    graph.windows[node] = windows
    return WindowedKTable(graph, node, key_serde, spec.value_serde, config)


def add_session_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    serdes: Serdes,
    windows: SessionWindows,
    emit: EmitStrategy,
) -> KTable:
    """Add an aggregation by key and session."""
    store = graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
    spec = materialized.spec(store, StoreKind.SESSION, *serdes, retention=windows.retention)
    _require_kind(spec, StoreKind.SESSION)
    spec = windowed_aggregation_spec(_retained(spec, windows, emit))
    key_serde = SessionWindowedSerde(spec.key_serde)

    def make(setup: AggregateSetup) -> Processor:
        return SessionAggregate(setup, windows, emit)

    node, config = _add(graph, inputs, spec, materialized.caching, make, key_serde)
    graph.windows[node] = windows
    return WindowedKTable(graph, node, key_serde, spec.value_serde, config)


def _add(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    spec: StoreSpec,
    caching: bool,
    make: Callable[[AggregateSetup], Processor],
    result_serde: Serde[Any],
    prefix: str = "KSTREAM-AGGREGATE-",
) -> tuple[str, TableConfig]:
    """One processor for each input, all on one store, and the node that the updates come out of.

    Args:
        graph: what to add to.
        inputs: what is aggregated.
        spec: of the store.
        caching: forward only the last update of each key in a micro-batch.
        make: makes a processor.
        result_serde: how the keys of the updates become bytes.
        prefix: of the nodes' names.
    """
    config = TableConfig(spec.name, versioned=spec.kind is StoreKind.VERSIONED)
    alone = len(inputs) == 1
    nodes = []
    for number, (source, aggregation) in enumerate(inputs):
        nodes.append(graph.new_name(prefix))
        setup = AggregateSetup(config, spec, aggregation, caching and alone, number)
        graph.add(ProcessorNode(nodes[-1], [source], supplier=partial(make, setup)))
    graph.add_store(spec, *nodes)
    if alone:
        return nodes[0], config
    merge = graph.new_name("COGROUPKSTREAM-MERGE-")
    graph.add(ProcessorNode(merge, nodes, supplier=lambda: _Merge(result_serde, caching)))
    return merge, config


def _require_kind(spec: StoreSpec, *kinds: StoreKind) -> None:
    if spec.kind not in kinds:
        raise TopologyError(
            f"store {spec.name!r} of kind {spec.kind.value} cannot hold this aggregation; "
            f"leave the kind out, or choose {' or '.join(kind.value for kind in kinds)}"
        )


def _retained(spec: StoreSpec, windows: Windows, emit: EmitStrategy) -> StoreSpec:
    """The store with a retention that fits.

    Final results are read back when their windows have just expired, and a late record may join a session that has been
    emitted already with one that is still open. Neither may be forgotten then. How far back a late record reaches
    depends on how long the open session is: some gaps more are enough but for sessions that are very long.
    """
    assert spec.retention is not None
    if spec.retention < windows.retention:
        raise TopologyError(
            f"store {spec.name!r} keeps windows for {spec.retention} ms, but {windows} can still change after that; "
            f"give it a retention of at least {windows.retention} ms"
        )
    if emit is EmitStrategy.ON_WINDOW_UPDATE:
        return spec
    longer = windows.retention + 4 * windows.gap if isinstance(windows, SessionWindows) else 0
    return replace(spec, retention=spec.retention + longer + 1)

"""The wiring of aggregations: the processors that share a store, and the table that comes out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millpond.errors import NoHistoryError
from millpond.processors.aggregations.aggregate import Aggregate, AggregateSetup, Aggregation, MergedUpdates
from millpond.processors.aggregations.changed_aggregate import ChangedAggregate
from millpond.processors.aggregations.session_aggregate import SessionAggregate
from millpond.processors.aggregations.sliding_window_aggregate import SlidingWindowAggregate
from millpond.processors.aggregations.windowed_aggregate import WindowedAggregate
from millpond.processors.aggregations.windowed_processor import WindowedProcessor, windowed_aggregation_spec
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.table import StoredTable, WindowedTable
from millpond.processors.options.changed_windows import ChangedWindows
from millpond.processors.options.cumulative_windows import CumulativeWindows
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.options.windows import (
    EmitStrategy,
    GridWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
)
from millpond.processors.runtime.processor import Processor
from millpond.processors.tables.config import TableConfig
from millpond.stores.encoding.serdes import Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.calendar import Calendar
from millpond.stores.typed.windows.grids import EvenGrid

Input = tuple[str, Aggregation]
"""The node whose records have equal keys together, and what is computed from them."""

Serdes = tuple[SerdeLike | None, SerdeLike | None]
"""Of keys and results unless ``Materialized`` names them; None for results means the builder's."""

OneKind = TimeWindows | CumulativeWindows | SlidingWindows | SessionWindows

AnyWindows = OneKind | ChangedWindows


def add_key_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    store: str,
    serdes: Serdes,
    prefix: str = "KSTREAM-AGGREGATE-",
) -> StoredTable:
    """Add an aggregation by key alone; ``store`` is the store's name unless ``materialized`` has one."""
    spec = materialized.spec(store, TABLE_KINDS, *_known(graph, serdes))
    node = _add(graph, inputs, spec, materialized.caching, Aggregate, spec.key_serde, prefix)
    return StoredTable(graph, node, spec.key_serde, spec.value_serde)


def add_windowed_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    serdes: Serdes,
    windows: AnyWindows,
    emit: EmitStrategy,
) -> StoredTable:
    """Add an aggregation by key and window, or by key and session."""
    if isinstance(first_windows(windows), SessionWindows):
        return _add_session_aggregation(graph, inputs, materialized, serdes, windows, emit)
    return _add_window_aggregation(graph, inputs, materialized, serdes, windows, emit)


def _add_window_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    serdes: Serdes,
    windows: AnyWindows,
    emit: EmitStrategy,
) -> StoredTable:
    """Add an aggregation by key and window of time."""
    store = graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
    first = first_windows(windows)
    assert not isinstance(first, SessionWindows)
    size, grid = (first.length, first.grid) if isinstance(first, GridWindows) else (first.difference, None)
    kinds = (StoreKind.TIMESTAMPED_WINDOW,)
    spec = materialized.spec(
        store,
        kinds,
        *_known(graph, serdes),
        retention=windows.retention,
        window_size=size,
        calendar=grid if isinstance(grid, Calendar) else None,
    )
    additions = [one for _, aggregation in inputs for one in aggregation.additions]
    spec = windowed_aggregation_spec(_retained(spec, windows, emit), windows, emit, additions)

    key_serde = TimeWindowedSerde(spec.key_serde, size, grid)
    node = _add(graph, inputs, spec, materialized.caching, partial(_windowed, windows, emit), key_serde)
    graph.windows[node] = windows
    return WindowedTable(graph, node, key_serde, spec.value_serde, grid or EvenGrid(size))


def _add_session_aggregation(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    materialized: Materialized,
    serdes: Serdes,
    windows: AnyWindows,
    emit: EmitStrategy,
) -> StoredTable:
    """Add an aggregation by key and session."""
    store = graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
    spec = materialized.spec(store, (StoreKind.SESSION,), *_known(graph, serdes), retention=windows.retention)
    additions = [one for _, aggregation in inputs for one in aggregation.additions]
    spec = windowed_aggregation_spec(_retained(spec, windows, emit), windows, emit, additions)
    key_serde = SessionWindowedSerde(spec.key_serde)
    node = _add(graph, inputs, spec, materialized.caching, partial(_windowed, windows, emit), key_serde)
    graph.windows[node] = windows
    return WindowedTable(graph, node, key_serde, spec.value_serde)


def first_windows(windows: AnyWindows) -> OneKind:
    """Return the windows; of windows that change, the first."""
    return windows.eras[0] if isinstance(windows, ChangedWindows) else windows


def _windowed(windows: AnyWindows, emit: EmitStrategy, setup: AggregateSetup) -> WindowedProcessor | ChangedAggregate:
    """Return the processor that folds records into windows."""
    if isinstance(windows, ChangedWindows):
        eras = zip(windows.eras, windows.spans, strict=True)
        setups = (replace(setup, number=number, span=span) for number, (_, span) in enumerate(eras))
        return ChangedAggregate(
            [_of_one_era(one, emit, own, windows) for one, own in zip(windows.eras, setups, strict=True)], windows.taken
        )
    return _of_one_kind(windows, emit, setup)


def _of_one_kind(windows: OneKind, emit: EmitStrategy, setup: AggregateSetup) -> WindowedProcessor:
    if isinstance(windows, GridWindows):
        return WindowedAggregate(setup, windows, emit)
    if isinstance(windows, SlidingWindows):
        return SlidingWindowAggregate(setup, windows, emit)
    return SessionAggregate(setup, windows, emit)


def _of_one_era(
    era: TimeWindows | SessionWindows, emit: EmitStrategy, setup: AggregateSetup, windows: ChangedWindows
) -> WindowedProcessor:
    """Return the processor of windows that are others before or after, and kept no longer for that."""
    assert setup.spec.retention is not None
    retention = setup.spec.retention - windows.retention + era.retention
    return _of_one_kind(era, emit, replace(setup, spec=replace(setup.spec, retention=retention)))


def _add(
    graph: TopologyGraph,
    inputs: Sequence[Input],
    spec: StoreSpec,
    caching: bool,
    make: Callable[[AggregateSetup], Processor],
    result_serde: Serde[Any],
    prefix: str = "KSTREAM-AGGREGATE-",
) -> str:
    """Add one processor for each input, all on one store, and return the node that the updates come out of.

    Args:
        graph: the graph.
        inputs: the inputs, each with its aggregation.
        spec: the store's spec.
        caching: whether only the last update of each key in a micro-batch is forwarded.
        make: makes a processor.
        result_serde: the serde of the updates' keys.
        prefix: the beginning of the nodes' names.
    """
    alone = len(inputs) == 1
    nodes = [graph.new_name(prefix) for _ in inputs]
    table = nodes[0] if alone else graph.new_name("COGROUPKSTREAM-MERGE-")
    graph.add_table(table, TableConfig(spec.name, versioned=spec.versioned))
    for number, (node, (source, aggregation)) in enumerate(zip(nodes, inputs, strict=True)):
        setup = partial(AggregateSetup, spec=spec, aggregation=aggregation, caching=caching and alone, number=number)
        graph.add_table_processor(node, [source], partial(_made, make, setup), table)
    graph.add_store(spec, *nodes)
    if not alone:
        graph.add_processor(table, nodes, lambda: MergedUpdates(result_serde, caching=caching))
    return table


def _made(
    make: Callable[[AggregateSetup], Processor], setup: Callable[[TableConfig], AggregateSetup], config: TableConfig
) -> Processor:
    return make(setup(config))


def _known(graph: TopologyGraph, serdes: Serdes) -> Serdes:
    """Return the serdes, with the builder's for results if none was named."""
    key, value = serdes
    return key, value or graph.value_serde


def _retained(spec: StoreSpec, windows: Windows, emit: EmitStrategy) -> StoreSpec:
    """Return the store with a retention that is long enough.

    Final results are read back when their windows have just expired, and a late record may merge a session that has
    already been emitted with one that is still open. Neither may be forgotten by then. How far back a late record
    reaches depends on the length of the open session: a few more gaps suffice for all but very long sessions.
    """
    assert spec.retention is not None
    if spec.retention < windows.retention:
        raise NoHistoryError(
            f"store {spec.name!r} keeps windows for {spec.retention} ms, but {windows} can still change after that; "
            f"give it a retention of at least {windows.retention} ms"
        )
    if emit is EmitStrategy.ON_WINDOW_UPDATE:
        return spec
    eras = windows.eras if isinstance(windows, ChangedWindows) else (windows,)
    longer = max(one.retention + 4 * one.gap if isinstance(one, SessionWindows) else 0 for one in eras)
    return replace(spec, retention=spec.retention + longer + 1)

"""How streams and tables meet in the graph: a stream becomes a table, or is joined with one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.errors import TopologyError
from millpond.processors.dsl.global_table import GlobalKTable
from millpond.processors.dsl.ktable import KTable, SourceKTable, check_table_store, reordered, table_source
from millpond.processors.options.config import Joined, Materialized
from millpond.processors.runtime.topology import ProcessorNode
from millpond.processors.streams.table_join import StreamTableJoin
from millpond.processors.tables.source import TableConfig
from millpond.processors.tables.time_ordered_buffer import buffer_spec
from millpond.processors.tables.value_getters import ValueGetterFactory, store_getter
from millpond.stores.specs import StoreKind
from millpond.stores.times import Duration, to_millis

if TYPE_CHECKING:
    from millpond.processors.dsl.kstream import KStream


def stream_to_table(stream: "KStream", materialized: Materialized, grace: Duration | None, name: str | None) -> KTable:
    """Read ``stream`` as a table; equal keys are brought together first, and records into order within ``grace``."""
    graph = stream.graph
    stream = stream.repartitioned(name, materialized.key_serde, materialized.value_serde)
    node = name or graph.new_name("KSTREAM-TOTABLE-")
    spec = materialized.spec(
        f"{node}-STATE-STORE", StoreKind.TIMESTAMPED_KEY_VALUE, stream.key_serde, stream.value_serde
    )
    check_table_store(spec, materialized)
    config = TableConfig(versioned=spec.kind is StoreKind.VERSIONED, caching=materialized.caching)
    source = reordered(graph, stream.node, grace, spec)
    graph.add(ProcessorNode(node, [source], supplier=table_source(config)))
    table = SourceKTable(graph, node, spec.key_serde, spec.value_serde, config, spec)
    if materialized.has_store:
        table.materialize()
    return table


def join_stream_with_table(
    stream: "KStream", table: KTable, joiner: Callable[[Any, Any, Any], Any], joined: Joined, *, left: bool
) -> "KStream":
    """Look each record's key up in ``table``; with a grace period after the record has waited for late table records.

    Raises:
        TopologyError: a grace period on a table that is not versioned, or longer than its history retention.
    """
    graph, getter = stream.graph, table.value_getter()
    node = joined.name or graph.new_name("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    stores, buffer = getter.stores, None
    if joined.grace is not None:
        _check_grace(table, getter, to_millis(joined.grace, "grace"), node)
        key_serde, value_serde = joined.key_serde or stream.key_serde, joined.value_serde or stream.value_serde
        buffer = buffer_spec(f"{node}-Buffer", joined.grace, key_serde, value_serde, f"the join {node!r}")
        graph.add_store(buffer.store_spec)
        stores = (*stores, buffer.store)
    result = stream.then("", lambda: StreamTableJoin(getter, joiner, left=left, buffer=buffer), node, stores)
    result.value_serde = None
    return result


def _check_grace(table: KTable, getter: ValueGetterFactory, grace: int, node: str) -> None:
    if not table.versioned:
        raise TopologyError(
            f"the join {node!r} has a grace period, but its table {table.node!r} is not versioned: a record that has "
            "waited could not see the table as it was at the record's time; materialize it with Materialized.versioned"
        )
    retention = min(table.graph.stores[store].history_retention or 0 for store in getter.stores)
    if grace > retention:
        raise TopologyError(
            f"the join {node!r} has a grace period of {grace} ms, but its table {table.node!r} keeps only {retention} "
            "ms of history; make the history retention at least as long as the grace period"
        )


def join_stream_with_global_table(
    stream: "KStream",
    table: GlobalKTable,
    joiner: Callable[[Any, Any, Any], Any],
    selector: Callable[[Any, Any], Any] | None,
    joined: Joined,
    *,
    left: bool,
) -> "KStream":
    """Look ``selector(key, value)`` of each record up in ``table``, which every task holds as a whole."""
    if joined.grace is not None:
        raise TopologyError(
            f"the join of {stream.node!r} with the global table {table.node!r} cannot have a grace period: a global "
            "table has no history; join with a versioned table instead"
        )
    getter = store_getter(table.store)
    result = stream.then(
        "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-",
        lambda: StreamTableJoin(getter, joiner, left=left, selector=selector),
        joined.name,
        getter.stores,
    )
    result.value_serde = None
    return result

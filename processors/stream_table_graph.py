"""How streams and tables meet in the graph: a stream becomes a table, or is joined with one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.processors.config import Joined, Materialized
from millpond.processors.ktable import KTable, SourceKTable, check_table_store, table_source
from millpond.processors.stream_table_join import StreamTableJoin
from millpond.processors.table_source import TableConfig
from millpond.processors.topology import ProcessorNode
from millpond.stores.specs import StoreKind

if TYPE_CHECKING:
    from millpond.processors.kstream import KStream


def stream_to_table(stream: "KStream", materialized: Materialized, name: str | None) -> KTable:
    """Read ``stream`` as a table; equal keys are brought together first."""
    graph = stream.graph
    stream = stream.repartitioned(name, materialized.key_serde, materialized.value_serde)
    node = name or graph.new_name("KSTREAM-TOTABLE-")
    spec = materialized.spec(
        f"{node}-STATE-STORE", StoreKind.TIMESTAMPED_KEY_VALUE, stream.key_serde, stream.value_serde
    )
    check_table_store(spec, materialized)
    config = TableConfig(versioned=spec.kind is StoreKind.VERSIONED, caching=materialized.caching)
    graph.add(ProcessorNode(node, [stream.node], supplier=table_source(config)))
    table = SourceKTable(graph, node, spec.key_serde, spec.value_serde, config, spec)
    if materialized.has_store:
        table.materialize()
    return table


def join_stream_with_table(
    stream: "KStream", table: KTable, joiner: Callable[[Any, Any, Any], Any], joined: Joined, *, left: bool
) -> "KStream":
    """Look each record's key up in ``table``."""
    getter = table.value_getter()
    prefix = "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-"
    result = stream.then(prefix, lambda: StreamTableJoin(getter, joiner, left=left), joined.name, getter.stores)
    result.value_serde = None
    return result

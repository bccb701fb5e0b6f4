"""How a foreign-key join enters the graph: three groups of processors and the internal topics between them."""

from collections.abc import Callable
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.dsl.ktable import KTable, SourceKTable, check_table_store, table_source
from millpond.processors.options.config import Consumed, Materialized, Produced, SerdeLike
from millpond.processors.runtime.topology import ProcessorNode, SinkNode, SourceNode, TopologyGraph
from millpond.processors.tables.foreign_key_join import (
    ForeignTableJoin,
    LatestOnly,
    ResponseJoin,
    SubscriptionReceive,
    SubscriptionSend,
    UnjoinedRows,
)
from millpond.processors.tables.foreign_key_messages import left_rows_spec, subscriptions_spec
from millpond.processors.tables.join import Joiner, TableJoinType
from millpond.processors.tables.source import TableConfig
from millpond.stores.serdes import BYTES, Serde, serde
from millpond.stores.specs import StoreKind, StoreSpec


class _Serdes:
    """The serdes of the two tables, all of which the messages need."""

    def __init__(self, left: KTable, foreign: KTable) -> None:
        self.key = _known(left, left.key_serde, "key")
        self.left = _known(left, left.value_serde, "value")
        self.foreign_key = _known(foreign, foreign.key_serde, "key")
        self.foreign = _known(foreign, foreign.value_serde, "value")


def _known(table: KTable, value: SerdeLike | None, what: str) -> Serde[Any]:
    if value is None:
        raise TopologyError(
            f"table {table.node!r} cannot take part in a foreign-key join: the {what} serde of its rows on their way "
            f"is not known; name it in Consumed or Materialized({what}_serde=...)"
        )
    return serde(value)


def join_on_foreign_key(
    left: KTable,
    foreign: KTable,
    joiner: Joiner,
    extract: Callable[[Any, Any], Any],
    materialized: Materialized,
    type_: TableJoinType,
    name: str | None,
) -> KTable:
    """Add the join of ``left`` with the rows of ``foreign`` at ``extract(key, value)``; the result is stored."""
    graph = left.graph
    name = name or graph.new_name("KTABLE-FK-JOIN-")
    serdes = _Serdes(left, foreign)
    inner = type_ is TableJoinType.INNER
    left.enable_old_values(force=True)
    # A filter of the foreign table then knows which of its tombstones are unnecessary.
    foreign.enable_old_values(force=True)
    if graph.connected(left.node, foreign.node):
        foreign = _copied(foreign, serdes, f"{name}-foreign")
    subscriptions, rows = f"{name}-subscription", f"{name}-rows"
    versioned = left.versioned
    send = f"{name}-subscription-send"
    sinks = f"{subscriptions}-sink", f"{rows}-sink"
    graph.add(
        ProcessorNode(
            send,
            [left.node],
            supplier=lambda: SubscriptionSend(
                extract,
                (serdes.key, serdes.left, serdes.foreign_key),
                inner=inner,
                versioned=versioned,
                subscriptions=sinks[0],
                rows=sinks[1],
            ),
        )
    )
    subscribed = _through(graph, subscriptions, [send], serdes.foreign_key, BYTES)
    moved = _through(graph, rows, [send], serdes.key, BYTES)
    responses = _foreign_side(graph, name, subscribed, foreign, serdes)
    return _result_side(graph, name, (moved, responses), serdes, joiner, materialized, inner)


def _through(
    graph: TopologyGraph, topic: str, parents: list[str], key_serde: Serde[Any], value_serde: Serde[Any]
) -> str:
    """A sink and a source on an internal topic; the source's name."""
    sink, source = f"{topic}-sink", f"{topic}-source"
    graph.internal_topics.add(topic)
    graph.add(SinkNode(sink, parents, topic=topic, produced=Produced(key_serde, value_serde, name=sink)))
    graph.add(SourceNode(source, topic=topic, consumed=Consumed(key_serde, value_serde, name=source)))
    return source


def _copied(table: KTable, serdes: _Serdes, name: str) -> KTable:
    """The latest rows of the foreign table in tasks of their own, because its tasks are those of the left table."""
    graph, versioned = table.graph, table.versioned
    graph.add(ProcessorNode(f"{name}-latest", [table.node], supplier=lambda: LatestOnly(versioned)))
    source = _through(graph, name, [f"{name}-latest"], serdes.foreign_key, serdes.foreign)
    spec = StoreSpec(f"{name}-store", StoreKind.TIMESTAMPED_KEY_VALUE, serdes.foreign_key, serdes.foreign)
    return _stored(graph, name, [source], TableConfig(), spec)


def _stored(graph: TopologyGraph, node: str, parents: list[str], config: TableConfig, spec: StoreSpec) -> KTable:
    """A table that puts what its parents send into a store."""
    graph.add(ProcessorNode(node, parents, supplier=table_source(config)))
    table = SourceKTable(graph, node, spec.key_serde, spec.value_serde, config, spec)
    table.materialize()
    return table


def _foreign_side(graph: TopologyGraph, name: str, subscribed: str, foreign: KTable, serdes: _Serdes) -> str:
    """Keeps the subscriptions and answers them; the source of the answers."""
    store = f"{name}-subscription-store"
    graph.add_store(subscriptions_spec(store))
    getter, versioned = foreign.value_getter(), foreign.versioned
    of_messages = serdes.key, serdes.foreign_key, serdes.foreign
    receive, rejoin = f"{name}-subscription-receive", f"{name}-foreign-join"
    graph.add(ProcessorNode(receive, [subscribed], supplier=lambda: SubscriptionReceive(store, getter, of_messages)))
    graph.connect(receive, store, *getter.stores)
    graph.add(
        ProcessorNode(
            rejoin, [foreign.node], supplier=lambda: ForeignTableJoin(store, of_messages, versioned=versioned)
        )
    )
    graph.connect(rejoin, store)
    return _through(graph, f"{name}-response", [receive, rejoin], serdes.key, BYTES)


def _result_side(
    graph: TopologyGraph,
    name: str,
    sources: tuple[str, str],
    serdes: _Serdes,
    joiner: Joiner,
    materialized: Materialized,
    inner: bool,
) -> KTable:
    """Keeps the left rows, joins the answers with them, and stores the results."""
    moved, responses = sources
    spec = materialized.spec(f"{name}-store", StoreKind.TIMESTAMPED_KEY_VALUE, serdes.key, None)
    check_table_store(spec, materialized)
    rows_spec = left_rows_spec(f"{name}-rows-store", serdes.key)
    rows = _stored(graph, f"{name}-rows", [moved], TableConfig(send_olds=not inner), rows_spec)
    parents = []
    if not inner:
        parents.append(f"{name}-unjoined")
        graph.add(ProcessorNode(parents[0], [rows.node], supplier=lambda: UnjoinedRows(joiner, serdes.left)))
    resolve = f"{name}-response-join"
    graph.add(
        ProcessorNode(
            resolve,
            [responses],
            supplier=lambda: ResponseJoin(
                rows_spec.name, spec.name, joiner, (serdes.left, serdes.foreign), inner=inner
            ),
        )
    )
    graph.connect(resolve, rows_spec.name)
    config = TableConfig(versioned=spec.kind is StoreKind.VERSIONED, caching=materialized.caching)
    result = _stored(graph, f"{name}-result", [*parents, resolve], config, spec)
    graph.connect(resolve, spec.name)
    return result

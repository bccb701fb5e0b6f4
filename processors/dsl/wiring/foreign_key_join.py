"""The wiring of foreign-key joins: three groups of processors and the internal topics between them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

from millpond.errors import MissingSerdeError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.table import (
    SourceTable,
    TableCopies,
    TableHandle,
    column_type,
    source_table,
    stored_table,
)
from millpond.processors.dsl.wiring.table_join import join_terms
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.serdes import SerdeLike, same_serde
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.runtime.batches.user_functions import ColumnFunction, RowFunction
from millpond.processors.runtime.processor import Processor
from millpond.processors.tables.foreign_key.answering import ForeignTableJoin, SubscriptionReceive
from millpond.processors.tables.foreign_key.messages import left_rows_spec, subscriptions_spec
from millpond.processors.tables.foreign_key.results import ResponseJoin, UnjoinedRows
from millpond.processors.tables.foreign_key.subscribing import SubscriptionSend
from millpond.processors.tables.foreign_key.unnamed import UnnamedRows
from millpond.processors.tables.foreign_key.vectorized_results import VectorizedResponseJoin, VectorizedUnjoinedRows
from millpond.processors.tables.foreign_key.vectorized_subscribing import VectorizedSubscriptionSend
from millpond.processors.tables.join import Joiner
from millpond.stores.encoding.serdes import BYTES, Serde, serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec


class _Serdes:
    """The serdes of the two tables, all of which the messages need."""

    def __init__(self, left: TableHandle, foreign: TableHandle) -> None:
        self.key = _known(left, left.key_serde, "key")
        self.left = _known(left, left.value_serde, "value")
        self.foreign_key = _known(foreign, foreign.key_serde, "key")
        self.foreign = _known(foreign, foreign.value_serde, "value")
        self.of_answers = self.key, self.foreign_key, self.foreign


class _Processors(NamedTuple):
    """The makers of processors that call users' functions; they take all else that these need.

    Attributes:
        send: in the left task.
        unjoined, resolve: in the result task.
    """

    send: Callable[..., Processor]
    unjoined: Callable[..., Processor]
    resolve: Callable[..., Processor]

    @classmethod
    def of(cls, extract: Callable[[Any, Any], Any], joiner: Joiner, serdes: _Serdes, vectorized: bool) -> Self:
        """Return those for functions of one row, or of columns of many."""
        if not vectorized:
            by_row = RowFunction(joiner)
            send = partial(SubscriptionSend, RowFunction(extract))
            return cls(send, partial(UnjoinedRows, by_row), partial(ResponseJoin, by_row))
        key, left, foreign = map(column_type, (serdes.key, serdes.left, serdes.foreign))
        by_column = ColumnFunction(joiner, (key, left, foreign))
        return cls(
            partial(VectorizedSubscriptionSend, ColumnFunction(extract, (key, left))),
            partial(VectorizedUnjoinedRows, by_column),
            partial(VectorizedResponseJoin, by_column),
        )


def _known(table: TableHandle, value: SerdeLike | None, what: str) -> Serde[Any]:
    if value is None:
        raise MissingSerdeError(
            f"table {table.node!r} cannot take part in a foreign-key join: the {what} serde of its rows is not "
            f"known; name it in Consumed or Materialized({what}_serde=...)"
        )
    return serde(value)


def join_on_foreign_key(
    left: TableHandle,
    foreign: TableHandle,
    joiner: Joiner,
    extract: Callable[[Any, Any], Any],
    materialized: Materialized,
    join_type: JoinType,
    name: str | None,
    *,
    vectorized: bool,
) -> SourceTable:
    """Add the join of ``left`` with the rows of ``foreign`` at ``extract(key, value)``; the result is stored.

    With ``vectorized``, both functions take columns of many rows.

    Raises:
        TopologyError: a serde of either table is not known.
    """
    graph = left.graph
    name = name or graph.new_name("KTABLE-FK-JOIN-")
    serdes = _Serdes(left, foreign)
    processors = _Processors.of(extract, joiner, serdes, vectorized)
    left.send_olds(force=True)
    # A filter of the foreign table then knows which of its tombstones are unnecessary.
    foreign.send_olds(force=True)
    subscriptions, rows = f"{name}-subscription", f"{name}-rows"
    send = f"{name}-subscription-send"
    subscribe = partial(
        processors.send,
        (serdes.key, serdes.left, serdes.foreign_key),
        join_type=join_type,
        versioned=left.versioned,
        subscriptions=f"{subscriptions}-sink",
        rows=f"{rows}-sink",
    )
    graph.add_processor(send, [left.node], subscribe)
    subscribed = _through(graph, subscriptions, [send], serdes.foreign_key, BYTES)
    moved = _through(graph, rows, [send], serdes.key, BYTES)
    responses = _foreign_side(graph, name, subscribed, foreign, serdes)
    graph.at_build(partial(_part_sides, name, left, foreign, serdes))
    return _result_side(graph, name, (moved, responses), serdes, processors, materialized, join_type)


def outer_join_on_foreign_key(
    left: TableHandle,
    foreign: TableHandle,
    joiner: Joiner,
    extract: Callable[[Any, Any], Any],
    materialized: Materialized,
    name: str | None,
    *,
    vectorized: bool,
) -> tuple[SourceTable, SourceTable]:
    """Return the left join on a foreign key, and the table of the rows of ``foreign`` that no row of ``left`` names.

    Raises:
        TopologyError: a serde of either table is not known.
    """
    graph = left.graph
    name = name or graph.new_name("KTABLE-FK-JOIN-")
    joined = join_on_foreign_key(
        left, foreign, joiner, extract, materialized, JoinType.LEFT, name, vectorized=vectorized
    )
    serdes = _Serdes(left, foreign)
    node = f"{name}-unnamed"
    spec = StoreSpec(f"{node}-store", StoreKind.TIMESTAMPED_KEY_VALUE, serdes.foreign_key, serdes.foreign)
    subscriptions, view = f"{name}-subscription-store", foreign.view()
    look = partial(UnnamedRows, subscriptions, spec.name, view, serdes.foreign_key)
    graph.add_processor(node, [f"{name}-subscription-source", foreign.node], look)
    graph.connect(node, subscriptions, *view.stores)
    unnamed = stored_table(graph, f"{node}-rows", [node], spec)
    graph.connect(node, spec.name)
    return joined, unnamed


def _through(
    graph: TopologyGraph, topic: str, parents: list[str], key_serde: Serde[Any], value_serde: Serde[Any]
) -> str:
    """Add a sink and a source on an internal topic; returns the source's name."""
    source = f"{topic}-source"
    graph.add_internal_topic(topic, f"{topic}-sink", source, parents, (key_serde, value_serde))
    return source


def _foreign_side(graph: TopologyGraph, name: str, subscribed: str, foreign: TableHandle, serdes: _Serdes) -> str:
    """Add what keeps and answers the subscriptions; returns the source of the answers."""
    store = f"{name}-subscription-store"
    graph.add_store(subscriptions_spec(store, serdes.foreign_key))
    receive, rejoin = f"{name}-subscription-receive", f"{name}-foreign-join"
    view = foreign.view()
    graph.add_processor(receive, [subscribed], partial(SubscriptionReceive, store, view, serdes.of_answers))
    graph.connect(receive, store, *view.stores)
    answer_all = partial(ForeignTableJoin, store, serdes.of_answers, versioned=foreign.versioned)
    graph.add_processor(rejoin, [foreign.node], answer_all)
    graph.connect(rejoin, store)
    return _through(graph, f"{name}-response", [receive, rejoin], serdes.key, BYTES)


def _part_sides(name: str, left: TableHandle, foreign: TableHandle, serdes: _Serdes, graph: TopologyGraph) -> None:
    """Let tasks of their own answer, with a copy of the foreign table, where left tasks would ask themselves.

    Otherwise tasks of the foreign table answer, so subscriptions go where its rows are: for a windowed aggregation
    to their keys without the windows, as in Kafka Streams. The whole graph decides, whatever order it was
    added in.
    """
    if not graph.connected(left.node, foreign.node):
        if _lies_without_window(graph, foreign.node, serdes.foreign_key):
            graph.place_without_window(f"{name}-subscription-source")
        return
    with graph.before(f"{name}-subscription-send"):
        copy = TableCopies(graph, f"{name}-foreign", foreign).made()
        copy.send_olds(force=True)
    store, view = f"{name}-subscription-store", copy.view()
    receive = partial(SubscriptionReceive, store, view, serdes.of_answers)
    graph.replace_processor(f"{name}-subscription-receive", receive, store, *view.stores)
    graph.move_processor(f"{name}-foreign-join", copy.node)
    unnamed = f"{name}-unnamed"
    if unnamed in graph.nodes:
        look = partial(UnnamedRows, store, f"{unnamed}-store", view, serdes.foreign_key)
        graph.replace_processor(unnamed, look, store, f"{unnamed}-store", *view.stores)
        graph.move_processor(unnamed, f"{name}-subscription-source", copy.node)


def _lies_without_window(graph: TopologyGraph, table: str, key_serde: Serde[Any]) -> bool:
    """Return whether a table has windowed keys, but its rows are partitioned by the keys without the windows."""
    if not isinstance(key_serde, TimeWindowedSerde | SessionWindowedSerde):
        return False
    sources = [source.consumed.key_serde for source in graph.sources_of(table)]
    return any(same_serde(one, key_serde.key_serde) or not same_serde(one, key_serde) for one in sources)


def _result_side(
    graph: TopologyGraph,
    name: str,
    sources: tuple[str, str],
    serdes: _Serdes,
    processors: _Processors,
    materialized: Materialized,
    join_type: JoinType,
) -> SourceTable:
    """Add what keeps the left rows, joins the answers with them, and stores the results."""
    moved, responses = sources
    of_values = serdes.left, serdes.foreign
    unjoined = join_type.keeps(Side.LEFT)
    spec = materialized.spec(f"{name}-store", TABLE_KINDS, serdes.key, graph.value_serde)
    spec = replace(spec, terms=join_terms(join_type))
    rows_spec = left_rows_spec(f"{name}-rows-store", serdes.key)
    rows = stored_table(graph, f"{name}-rows", [moved], rows_spec, send_olds=unjoined)
    parents = []
    if unjoined:
        parents.append(f"{name}-unjoined")
        graph.add_processor(parents[0], [rows.node], partial(processors.unjoined, of_values))
    resolve = f"{name}-response-join"
    join = partial(processors.resolve, rows_spec.name, spec.name, of_values, join_type)
    graph.add_processor(resolve, [responses], join)
    graph.connect(resolve, rows_spec.name)
    result = source_table(graph, f"{name}-result", [*parents, resolve], spec, materialized)
    result.materialize()
    graph.connect(resolve, spec.name)
    return result

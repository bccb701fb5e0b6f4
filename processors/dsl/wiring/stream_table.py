"""The wiring of a stream that becomes a table, or is joined with one."""

from collections.abc import Callable
from typing import Any

from millpond.errors import NoHistoryError
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.dsl.wiring.global_table import GlobalKTable
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wiring.table import SourceTable, TableHandle, reordered, source_table
from millpond.processors.options.joins import AsofDirection, Joined, JoinType, Side, Unfit
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.streams.table_join import StreamTableJoin
from millpond.processors.streams.vectorized_table_join import VectorizedStreamTableJoin
from millpond.processors.tables.table_view import ViewFactory, store_view
from millpond.processors.tables.time_ordered_buffer import buffer_spec
from millpond.stores.encoding.times import Duration, to_millis

_PREFIXES = {JoinType.INNER: "KSTREAM-JOIN-", JoinType.LEFT: "KSTREAM-LEFTJOIN-"}


def stream_to_table(
    stream: StreamHandle, materialized: Materialized, reorder_within: Duration | None, name: str | None
) -> SourceTable:
    """Read ``stream`` as a table; equal keys are brought together first, and records put in order if wanted."""
    graph = stream.graph
    stream = stream.together(name, materialized.key_serde, materialized.value_serde)
    node = name or graph.new_name("KSTREAM-TOTABLE-")
    store = f"{node}-STATE-STORE"
    spec = materialized.spec(store, TABLE_KINDS, stream.key_serde, stream.value_serde)
    source = reordered(graph, stream.node, reorder_within, spec)
    return source_table(graph, node, [source], spec, materialized)


def join_stream_with_table(
    stream: StreamHandle,
    table: TableHandle,
    joiner: Callable[[Any, Any, Any], Any],
    joined: Joined,
    join_type: JoinType,
    *,
    vectorized: bool = False,
) -> StreamHandle:
    """Look up each record's key in ``table``; with a grace period, once it has waited for late table records.

    Raises:
        TopologyError: the inputs are not co-partitioned; or a grace period, or what looks farther back, on a table that
            is not versioned, or it, or it and the tolerance, are longer than the table's history retention.
    """
    stream = stream.together(
        joined.name, joined.key_serde, joined.value_serde, keep_null_keys=join_type.keeps(Side.LEFT)
    )
    check_copartitioned(stream, table)
    graph, view = stream.graph, table.view()
    node = joined.name or graph.new_name(_PREFIXES[join_type])
    stores, buffer = view.stores, None
    within, tolerance, direction = joined.within_history, _tolerance(joined), AsofDirection(joined.direction)
    unfit = Unfit(joined.otherwise)
    back = unfit.back(tolerance, direction)
    if unfit is Unfit.NEXT:
        _check_versions(table, node, "otherwise='next'", "was valid before the value that it has")
    if joined.grace is not None:
        ahead = direction.ahead(tolerance)
        wait = to_millis(joined.grace, "grace") + ahead
        _check_versioned(table, node)
        what = "tolerance and a grace period" if ahead or back else "grace period"
        _check_history(table, view, wait + back, what, node)
        key_serde, value_serde = joined.key_serde or stream.key_serde, joined.value_serde or stream.value_serde
        buffer = buffer_spec(f"{node}-Buffer", wait, key_serde, value_serde, f"the join {node!r}")
        graph.add_store(buffer.store_spec)
        stores = (*stores, buffer.store)
    elif back:
        _check_history(table, view, back, "tolerance", node)
    processor = _processor(vectorized)
    if not joined.exact:
        _check_versions(table, node, "exact=False", "was valid before a record")

    def made() -> StreamTableJoin:
        return processor(
            view,
            joiner,
            join_type,
            buffer=buffer,
            within_history=within,
            tolerance=tolerance,
            exact=joined.exact,
            direction=direction,
            where=joined.where,
            unfit=unfit,
        )

    return stream.then("", made, node, stores).with_new_values()


def _processor(vectorized: bool) -> type[StreamTableJoin]:
    return VectorizedStreamTableJoin if vectorized else StreamTableJoin


def _tolerance(joined: Joined) -> int | None:
    return None if joined.tolerance is None else to_millis(joined.tolerance, "tolerance")


def _check_versions(table: TableHandle, node: str, given: str, unknown: str) -> None:
    if not table.versioned:
        raise NoHistoryError(
            f"the join {node!r} has {given}, but its table {table.node!r} is not versioned, so nothing tells what "
            f"{unknown}; materialize it with Materialized.versioned"
        )


def _check_versioned(table: TableHandle, node: str) -> None:
    if not table.versioned:
        raise NoHistoryError(
            f"the join {node!r} has a grace period, but its table {table.node!r} is not versioned: a record that has "
            "waited could not see the table as it was at the record's time; materialize it with Materialized.versioned"
        )


def _check_history(table: TableHandle, view: ViewFactory, reach: int, what: str, node: str) -> None:
    retention = min(table.graph.stores[store].history_retention or 0 for store in view.stores)
    if reach > retention:
        raise NoHistoryError(
            f"the join {node!r} has a {what} of {reach} ms, but its table {table.node!r} keeps only {retention} "
            "ms of history; make the history retention at least as long as that"
        )


def join_stream_with_global_table(
    stream: StreamHandle,
    table: GlobalKTable,
    joiner: Callable[[Any, Any, Any], Any],
    selector: Callable[[Any, Any], Any] | None,
    joined: Joined,
    join_type: JoinType,
    *,
    vectorized: bool = False,
) -> StreamHandle:
    """Look up ``selector(key, value)`` of each record in ``table``, which every task holds in full.

    Raises:
        TopologyError: the join has a grace period.
    """
    if joined.grace is not None:
        raise NoHistoryError(
            f"the join of {stream.node!r} with the global table {table.node!r} cannot have a grace period: a global "
            "table has no history; join with a versioned table instead"
        )
    past = "otherwise='next'" if joined.otherwise == "next" else None if joined.exact else "exact=False"
    if past is not None:
        raise NoHistoryError(
            f"the join of {stream.node!r} with the global table {table.node!r} cannot have {past}: a global "
            "table has no history; join with a versioned table instead"
        )
    view, processor, tolerance = store_view(table.store), _processor(vectorized), _tolerance(joined)
    result = stream.then(
        _PREFIXES[join_type],
        lambda: processor(view, joiner, join_type, selector=selector, tolerance=tolerance, where=joined.where),
        joined.name,
        view.stores,
    )
    return result.with_new_values()

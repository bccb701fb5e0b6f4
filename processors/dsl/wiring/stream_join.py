"""How a join of two streams stands in the topology.

::

    left ---> this side  --\
                 [stores]   merge ---> result
    right --> other side --/

Each side keeps its records in a window store that the other side reads; a third store, where there is one, holds the
records that wait for a partner.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from millpond.errors import TopologyError
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.options.config import SerdeLike, StreamJoined
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.streams.self_join import StreamSelfJoin
from millpond.processors.streams.stream_join import StreamStreamJoin, StreamStreamJoinPlan
from millpond.processors.streams.unpaired_records import Side, unpaired_records_spec
from millpond.stores.serdes import Serde, serde
from millpond.stores.specs import StoreKind, StoreSpec

if TYPE_CHECKING:
    from millpond.processors.dsl.kstream import KStream


class JoinKind(Enum):
    """Whose records come out without a partner."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


_ALONE = {
    JoinKind.INNER: frozenset[Side](),
    JoinKind.LEFT: frozenset({Side.LEFT}),
    JoinKind.OUTER: frozenset(Side),
}


def join_streams(
    left: "KStream",
    right: "KStream",
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    joined: StreamJoined,
    kind: JoinKind,
) -> "KStream":
    """The stream of the results.

    Raises:
        TopologyError: the inputs are not co-partitioned, or a serde is not known.
    """
    left, right = _together(left, right, joined, kind)
    check_copartitioned(left, right)
    graph = left.graph
    if graph.optimize and kind is JoinKind.INNER and left.node == right.node:
        return _join_with_itself(left, joiner, windows, joined)
    names = {side: _node_name(left, joined, kind, side) for side in (Side.LEFT, Side.RIGHT)}
    specs = _specs(left, right, windows, joined, names)
    waiting = _waiting_spec(joined, names[Side.LEFT]) if kind is not JoinKind.INNER and not windows.eager else None
    plan = StreamStreamJoinPlan(
        joiner,
        windows,
        {side: spec.name for side, spec in specs.items()},
        _ALONE[kind],
        None if waiting is None else waiting.name,
    )
    sides = []
    for side, stream in ((Side.LEFT, left), (Side.RIGHT, right)):
        sides.append(stream.then("", _supplier(plan, side), names[side]))
    for spec in (*specs.values(), *([] if waiting is None else [waiting])):
        graph.add_store(spec, *names.values())
    result = sides[0].merge(sides[1], name=joined.name)
    result.key_serde, result.value_serde = specs[Side.LEFT].key_serde, None
    return result


def _join_with_itself(
    stream: "KStream", joiner: Callable[[Any, Any, Any], Any], windows: JoinWindows, joined: StreamJoined
) -> "KStream":
    node = joined.name or stream.graph.new_name("KSTREAM-SELFJOIN-")
    spec = _specs(stream, stream, windows, joined, {Side.LEFT: node, Side.RIGHT: node})[Side.LEFT]
    result = stream.then("", lambda: StreamSelfJoin(joiner, windows, spec.name), node)
    stream.graph.add_store(spec, node)
    result.key_serde, result.value_serde = spec.key_serde, None
    return result


def _together(left: "KStream", right: "KStream", joined: StreamJoined, kind: JoinKind) -> tuple["KStream", "KStream"]:
    """Both inputs with equal keys together; a stream that is joined with itself stays one stream."""
    names = [None if joined.name is None else f"{joined.name}-{side}" for side in ("left", "right")]
    moved = left.repartitioned(
        names[0], joined.key_serde, joined.value_serde, keep_null_keys=kind is not JoinKind.INNER
    )
    if right is left:
        return moved, moved
    return moved, right.repartitioned(
        names[1], joined.key_serde, joined.other_value_serde, keep_null_keys=kind is JoinKind.OUTER
    )


def _node_name(left: "KStream", joined: StreamJoined, kind: JoinKind, side: Side) -> str:
    which = "this" if side is Side.LEFT else "other"
    if joined.name is not None:
        return f"{joined.name}-{which}-join"
    alone = {JoinKind.INNER: "", JoinKind.LEFT: "LEFT" if side is Side.RIGHT else "", JoinKind.OUTER: "OUTER"}[kind]
    return left.graph.new_name(f"KSTREAM-{alone or 'JOIN'}{which.upper()}-")


def _supplier(plan: StreamStreamJoinPlan, side: Side) -> Callable[[], StreamStreamJoin]:
    return lambda: StreamStreamJoin(plan, side)


def _specs(
    left: "KStream", right: "KStream", windows: JoinWindows, joined: StreamJoined, names: dict[Side, str]
) -> dict[Side, StoreSpec]:
    where = f"the join of {left.node!r} with {right.node!r}"
    key = _known(joined.key_serde or left.key_serde or right.key_serde, "key_serde", where)
    values = {
        Side.LEFT: _known(joined.value_serde or left.value_serde, "value_serde", where),
        Side.RIGHT: _known(joined.other_value_serde or right.value_serde, "other_value_serde", where),
    }
    return {
        side: StoreSpec(
            name=f"{joined.store_name or joined.name}-{'this' if side is Side.LEFT else 'other'}-join-store"
            if joined.store_name or joined.name
            else f"{names[side]}-store",
            kind=StoreKind.WINDOW,
            key_serde=key,
            value_serde=value,
            retention=_retention(windows),
            window_size=windows.size,
            retain_duplicates=True,
            backend=joined.backend,
        )
        for side, value in values.items()
    }


def _retention(windows: JoinWindows) -> int:
    """How long a record is kept for the other side; a store shows what is younger than that.

    Where the window does not hold a record's own time, even records in order are apart by up to its far end.
    """
    apart = max(windows.before, windows.after) if min(windows.before, windows.after) < 0 else 0
    return max(windows.size + windows.grace, apart + 1)


def _waiting_spec(joined: StreamJoined, this: str) -> StoreSpec:
    name = joined.store_name or joined.name or this
    return unpaired_records_spec(f"{name}-waiting", joined.backend)


def _known(given: SerdeLike | None, what: str, where: str) -> Serde[Any]:
    if given is None:
        raise TopologyError(f"{where} keeps records, but does not know how to: give StreamJoined({what}=...)")
    return serde(given)

"""The wiring of a join of two streams.

::

    left ---> this side  --\
                 [stores]   merge ---> result
    right --> other side --/

Each side keeps its records in a window store that the other side reads; a third store, where there is one, holds the
records that wait for a partner.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millpond.errors import MissingSerdeError
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side, StreamJoined
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.streams.own_windows import OwnWindows
from millpond.processors.streams.self_join import StreamSelfJoin
from millpond.processors.streams.stream_join import StreamStreamJoin
from millpond.processors.streams.unpaired_rows import unpaired_records_spec
from millpond.processors.streams.window_join import StreamStreamJoinPlan
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Term, Terms


def join_streams(
    left: StreamHandle,
    right: StreamHandle,
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    joined: StreamJoined,
    join_type: JoinType,
    *,
    vectorized: bool = False,
    own: OwnWindows | None = None,
) -> StreamHandle:
    """Return the stream of the results; of a join that does not show the right side, left values, once each.

    With ``own``, each left record has windows of its own within ``windows``; the joiner then takes columns, and neither
    records nor the ends of windows are further off than ``FARTHEST``.

    Raises:
        TopologyError: the inputs are not co-partitioned, a serde is not known, or the joiner takes columns and a serde
            has none.
    """
    left, right = _together(left, right, joined, join_type)
    check_copartitioned(left, right)
    graph = left.graph
    plain = not vectorized and not windows.drop_late
    if graph.optimize and plain and join_type is JoinType.INNER and left.node == right.node:
        return _join_with_itself(left, joiner, windows, joined)
    names = {side: _node_name(left, joined, join_type, side) for side in (Side.LEFT, Side.RIGHT)}
    terms = {} if own is None else own.terms
    specs = _specs(left, right, windows, joined, names, terms)
    if vectorized:
        _check_columns(specs, f"the join of {left.node!r} with {right.node!r}")
    waiting = (
        _waiting_spec(joined, names[Side.LEFT], specs[Side.LEFT].key_serde, windows, join_type, terms)
        if any(map(join_type.keeps, Side)) and not windows.eager
        else None
    )
    plan = StreamStreamJoinPlan(
        joiner,
        windows,
        {side: spec.name for side, spec in specs.items()},
        join_type,
        None if waiting is None else waiting.name,
        own,
    )
    sides = []
    for side, stream in ((Side.LEFT, left), (Side.RIGHT, right)):
        sides.append(stream.then("", _supplier(plan, side, vectorized), names[side]))
    for spec in (*specs.values(), *([] if waiting is None else [waiting])):
        graph.add_store(spec, *names.values())
    result = sides[0].merged((sides[1],), joined.name)
    return result.retyped(specs[Side.LEFT].key_serde).with_new_values()


def _join_with_itself(
    stream: StreamHandle, joiner: Callable[[Any, Any, Any], Any], windows: JoinWindows, joined: StreamJoined
) -> StreamHandle:
    node = joined.name or stream.graph.new_name("KSTREAM-SELFJOIN-")
    spec = _specs(stream, stream, windows, joined, {Side.LEFT: node, Side.RIGHT: node}, {})[Side.LEFT]
    result = stream.then("", lambda: StreamSelfJoin(joiner, windows, spec.name), node)
    stream.graph.add_store(spec, node)
    return result.retyped(spec.key_serde).with_new_values()


def _together(
    left: StreamHandle, right: StreamHandle, joined: StreamJoined, join_type: JoinType
) -> tuple[StreamHandle, StreamHandle]:
    """Return both inputs with equal keys together; a stream that is joined with itself stays one stream."""
    names = [None if joined.name is None else f"{joined.name}-{side}" for side in ("left", "right")]
    moved = left.together(names[0], joined.key_serde, joined.value_serde, keep_null_keys=join_type.keeps(Side.LEFT))
    if right is left:
        return moved, moved
    return moved, right.together(
        names[1], joined.key_serde, joined.other_value_serde, keep_null_keys=join_type.keeps(Side.RIGHT)
    )


def _node_name(left: StreamHandle, joined: StreamJoined, join_type: JoinType, side: Side) -> str:
    which = "this" if side is Side.LEFT else "other"
    if joined.name is not None:
        return f"{joined.name}-{which}-join"
    plain = join_type is JoinType.INNER or join_type.value == side.value
    return left.graph.new_name(f"KSTREAM-{'JOIN' if plain else join_type.name}{which.upper()}-")


def _supplier(plan: StreamStreamJoinPlan, side: Side, vectorized: bool) -> Callable[[], StreamStreamJoin]:
    return lambda: StreamStreamJoin(plan, side, vectorized=vectorized)


def _check_columns(specs: Mapping[Side, StoreSpec], where: str) -> None:
    for spec in specs.values():
        for what, used in (("keys", spec.key_serde), ("values", spec.value_serde)):
            if column_serde(used) is None:
                raise MissingSerdeError(
                    f"{where} has a joiner of columns, but {what} of the serde {used.name!r} have none; name a serde "
                    "that has (string, int64, float64, bytes or a struct<...>), or leave vectorized out"
                )


def _specs(
    left: StreamHandle,
    right: StreamHandle,
    windows: JoinWindows,
    joined: StreamJoined,
    names: dict[Side, str],
    own_terms: Mapping[str, Term],
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
            checksums=joined.checksums,
            terms=_terms(windows, **own_terms),
        )
        for side, value in values.items()
    }


def _retention(windows: JoinWindows) -> int:
    """Return how long a record is kept for the other side, in milliseconds; a store shows only younger records.

    If the window does not include a record's own time, even records in order are apart by up to its far end. Where late
    records are dropped, all others meet whatever of the other side was in time.
    """
    if windows.drop_late:
        return max(windows.size, windows.before, windows.after) + windows.grace + 1
    apart = max(windows.before, windows.after) if min(windows.before, windows.after) < 0 else 0
    return max(windows.size + windows.grace, apart + 1)


def _waiting_spec(
    joined: StreamJoined,
    this: str,
    key_serde: Serde[Any],
    windows: JoinWindows,
    join_type: JoinType,
    own_terms: Mapping[str, Term],
) -> StoreSpec:
    name = joined.store_name or joined.name or this
    spec = unpaired_records_spec(f"{name}-waiting", key_serde, joined.backend)
    # Records lie by the time at which they come out, and those of which side do.
    terms = _terms(windows, **own_terms, grace=windows.grace, join=join_type.value)
    return replace(spec, checksums=joined.checksums, terms=terms)


def _terms(windows: JoinWindows, **others: Term) -> Terms:
    """Return the parameters on which the rows of a join's store depend."""
    fixed: dict[str, Term] = {"before": windows.before, "after": windows.after, **others}
    return Terms(tuple(fixed.items()), maker="a join of streams")


def _known(given: SerdeLike | None, what: str, where: str) -> Serde[Any]:
    if given is None:
        raise MissingSerdeError(f"{where} keeps records, but has no {what} for them: give StreamJoined({what}=...)")
    return serde(given)

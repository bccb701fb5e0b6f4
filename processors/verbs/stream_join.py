"""``stream_join``: the rows of two streams that are close in time (KIP-77)."""

from collections.abc import Mapping, Sequence
from typing import Any

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream
from millpond.processors.dsl.wiring.stream_join import join_streams
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, StreamJoined
from millpond.processors.verbs.projections import JoinedRows, Rows, pairs
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, null_safety
from millpond.stores.encoding.serdes import BYTES


def stream_join(
    name: str,
    left: PackedRows,
    right: PackedRows,
    join_type: JoinType,
    windows: JoinWindows,
    *,
    columns: Sequence[str],
    shared: Mapping[str, str],
    null_safe: bool = False,
) -> Verb:
    """The verb.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``.
        join_type: which rows have a result, and whether with those of the right side.
        windows: which rows belong together, in microseconds.
        columns: the right side's columns in the result, if it has any; the left side has all.
        shared: by the left name, the right side's column that is shown where there is no left row.
        null_safe: whether null keys are equal.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    one, other = (builder.stream(side.topic).handle for side in (left, right))
    joiner = _pairs if join_type.shows_right else _lefts
    KStream(join_streams(one, other, joiner, windows, StreamJoined(), join_type, vectorized=True)).to(name)
    names = left.rows.schemas.current.names
    rows: Projection = Rows(left.rows, names)
    if join_type.shows_right:
        rows = JoinedRows(left.rows, right.rows, names, columns, shared)
    return Verb(builder.build(), {left.topic: left, right.topic: right}, (rows,), terms=null_safety(null_safe))


def _pairs(keys: Any, left: Any, right: Any) -> Any:
    return pairs(left, right)


def _lefts(keys: Any, left: Any, right: Any) -> Any:
    return left

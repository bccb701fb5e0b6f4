"""``stream_join``: the rows of two streams that are close in time (KIP-77)."""

from collections.abc import Mapping, Sequence

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs.projections import JoinedRows, pairs
from millpond.processors.verbs.verb import PackedRows, Verb
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
) -> Verb:
    """The verb.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``.
        join_type: inner, left or outer.
        windows: which rows belong together, in microseconds.
        columns: the right side's columns in the result; the left side has all.
        shared: by the left name, the right side's column that is shown where there is no left row.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    one, other = builder.stream(left.topic), builder.stream(right.topic)
    if join_type is JoinType.OUTER:
        joined = one.outer_join(other, pairs, windows=windows, vectorized=True)
    elif join_type is JoinType.LEFT:
        joined = one.left_join(other, pairs, windows=windows, vectorized=True)
    else:
        joined = one.join(other, pairs, windows=windows, vectorized=True)
    joined.to(name)
    rows = JoinedRows(left.rows, right.rows, left.rows.schemas.current.names, columns, shared)
    return Verb(builder.build(), {left.topic: left, right.topic: right}, (rows,))

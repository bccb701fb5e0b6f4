"""``stream_join``: the rows of two streams that are close in time (KIP-77).

How close may be up to each left row: then it has ``BOUNDS`` among its columns, which no result shows.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream
from millpond.processors.dsl.wiring.stream_join import join_streams
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, StreamJoined
from millpond.processors.streams.own_windows import OwnWindows, Reach
from millpond.processors.verbs.joins.stream_match import StreamMatching
from millpond.processors.verbs.projections import JoinedRows, Rows, pairs
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, null_safety
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.typed.terms import Term

BOUNDS: Final[Mapping[str, str]] = {"before": "millpond_before", "after": "millpond_after"}
"""By parameter, the column of left rows that says how much older, and how much newer, than each the right one may be.

In microseconds. A row of which one of the two is null joins with nothing.
"""


class OwnBounds(NamedTuple):
    """The bounds of single left rows.

    Attributes:
        at_most: the greatest one, in microseconds.
        columns: the parameters for which the user gave a column; the others are the same for all rows.
    """

    at_most: int
    columns: Collection[str]


def stream_join(
    name: str,
    left: PackedRows,
    right: PackedRows,
    join_type: JoinType,
    windows: JoinWindows,
    *,
    columns: Sequence[str],
    shared: Mapping[str, str],
    bounds: OwnBounds | None = None,
    null_safe: bool = False,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``.
        join_type: says which rows have a result, and whether with those of the right side.
        windows: the windows within which rows belong together, in microseconds; with ``bounds``, a row's greatest one.
        columns: the right side's columns in the result, if it has any; the left side has all.
        shared: by the left name, the right side's column that is shown where there is no left row.
        bounds: the bounds in the columns ``BOUNDS`` of left rows, none beyond ``windows``; None without such columns.
        null_safe: whether null keys are equal.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    one, other = (builder.stream(side.topic).handle for side in (left, right))
    joiner = _pairs if join_type.shows_right else _lefts
    own = None if bounds is None else OwnWindows(partial(_reach, left.rows), _terms(bounds))
    joined = join_streams(one, other, joiner, windows, StreamJoined(), join_type, vectorized=True, own=own)
    KStream(joined).to(name)
    hidden = () if bounds is None else BOUNDS.values()
    names = [one for one in left.rows.schemas.current.names if one not in hidden]
    rows: Projection = Rows(left.rows, names)
    if join_type.shows_right:
        rows = JoinedRows(left.rows, right.rows, names, columns, shared)
    topology, inputs = builder.build(), {left.topic: left, right.topic: right}
    # A join adds the stores of its sides in their order, and then others.
    stores = dict(zip(("left", "right"), topology.stores, strict=False))
    shown = {"left": names, "right": columns if join_type.shows_right else right.rows.schemas.current.names}
    matching = StreamMatching(
        {"left": left, "right": right},
        stores,
        shown,
        join_type,
        windows.before,
        windows.after,
        None if own is None else own.read,
    )
    return Verb(topology, inputs, (rows,), terms=null_safety(null_safe), matching=matching)


def _pairs(keys: Any, left: Any, right: Any) -> Any:
    return pairs(left, right)


def _lefts(keys: Any, left: Any, right: Any) -> Any:
    return left


def _terms(bounds: OwnBounds) -> dict[str, Term]:
    """Return the terms of the stores' rows: a column may be another one later, since rows keep their own bounds."""
    return {**dict.fromkeys(bounds.columns, "a column"), "at_most": bounds.at_most}


def _reach(codec: RowCodec, values: Any) -> Reach:
    """Return how far the partners of packed left rows may be."""
    rows = codec.unpack(values.cast(pa.binary()))
    before, after = (rows[column].combine_chunks() for column in BOUNDS.values())
    there = np.logical_and(*(one.is_valid().to_numpy(zero_copy_only=False) for one in (before, after)))
    back, ahead = (one.fill_null(0).to_numpy(zero_copy_only=False) for one in (before, after))
    return Reach(np.where(there, back, 0), np.where(there, ahead, -1))

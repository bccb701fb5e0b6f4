"""The joins of a stream: with another stream, a table or a global table, each with options of its own."""

from collections.abc import Callable
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.dsl.wiring.global_table import GlobalKTable
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wiring.stream_join import join_streams
from millpond.processors.dsl.wiring.stream_table import join_stream_with_global_table, join_stream_with_table
from millpond.processors.dsl.wiring.table import TableHandle
from millpond.processors.options.functions import keyed_joiner
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import Joined, JoinType, StreamJoined


def join_stream(
    stream: StreamHandle,
    other: StreamHandle | TableHandle | GlobalKTable,
    joiner: Callable[..., Any],
    joined: Joined | StreamJoined | None,
    windows: JoinWindows | None,
    join_type: JoinType,
    selector: Callable[[Any, Any], Any] | None,
    vectorized: bool,
) -> StreamHandle:
    """Return the stream of the results.

    Raises:
        TopologyError: an option does not fit ``other``, the inputs are not co-partitioned, or a serde is not known.
    """
    where = f"the join of {stream.node!r} with {other.node!r}"
    if selector is not None and not isinstance(other, GlobalKTable):
        raise TopologyError(f"{where} looks up the record's key: a selector needs a global table")
    with_key = keyed_joiner(joiner)
    if isinstance(other, StreamHandle):
        if windows is None or isinstance(joined, Joined):
            raise TopologyError(
                f"{where} is between streams: it needs windows=JoinWindows(...), and StreamJoined for serdes"
            )
        return join_streams(
            stream, other, with_key, windows, joined or StreamJoined(), join_type, vectorized=vectorized
        )
    if windows is not None or isinstance(joined, StreamJoined) or join_type is JoinType.OUTER:
        raise TopologyError(
            f"{where} is with a table: it has no windows, takes Joined instead of StreamJoined, and is inner "
            "or left, because only a record of the stream can make a result"
        )
    joined = joined or Joined()
    if isinstance(other, GlobalKTable):
        return join_stream_with_global_table(
            stream, other, with_key, selector, joined, join_type, vectorized=vectorized
        )
    return join_stream_with_table(stream, other, with_key, joined, join_type, vectorized=vectorized)

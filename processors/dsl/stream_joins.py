"""Joins of a stream with another one, or with a table: the result is a stream of the same class.

Rule of this module: nothing is changed once it is made. A join adds to the graph and wraps the new handle.
"""

from collections.abc import Callable
from typing import Any, Self

from millpond.errors import TopologyError
from millpond.processors.dsl.stream_operators import StreamOperators
from millpond.processors.dsl.table_operators import TableOperators
from millpond.processors.dsl.wiring.global_table import GlobalKTable
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wiring.stream_join import join_streams
from millpond.processors.dsl.wiring.stream_table import join_stream_with_global_table, join_stream_with_table
from millpond.processors.options.functions import keyed_joiner
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import Joined, JoinType, StreamJoined


class StreamJoins(StreamOperators):
    """A stream that can be joined."""

    def join(
        self,
        other: StreamOperators | TableOperators | GlobalKTable,
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None = None,
        *,
        windows: JoinWindows | None = None,
        selector: Callable[[Any, Any], Any] | None = None,
        vectorized: bool = False,
    ) -> Self:
        """Join with another stream, record by record within ``windows``, or with a table.

        With a stream, each pair of records with the same key whose times are close enough comes out once, at the later
        of the two times (KIP-77). With a table, each record is joined with the table's value for its key, or dropped if
        there is none; a versioned table gives the value that was valid at the record's time (KIP-914).

        With ``Joined(grace=...)``, a record waits until stream time is that far past its own timestamp, and so sees the
        table's late records too (KIP-923). A record that is later than that is joined at once. The table must be
        versioned.

        Args:
            other: the right side.
            joiner: ``joiner(value, other_value)``, or with three parameters ``joiner(key, value, other_value)``.
            joined: serdes and names; ``Joined`` for a table, ``StreamJoined`` for a stream.
            windows: the windows within which records of two streams belong together.
            selector: ``selector(key, value)`` returns the key to look up in a global table; the record's own unless
                given.
            vectorized: whether the joiner takes columns: it gets Arrow arrays of many records, where there is no other
                value null, and returns an array of as many results. Two streams then need serdes that have columns:
                ``string``, ``int64``, ``float64``, ``bytes`` or a ``struct<...>``.

        Raises:
            TopologyError: the inputs are not co-partitioned, a serde is not known, or an option does not fit ``other``.

        >>> from millpond.processors import Joined, Materialized, Produced, StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> prices = builder.table("prices", materialized=Materialized.versioned(history_retention=60_000))
        >>> orders = builder.stream("orders")
        >>> priced = orders.join(prices, lambda order, price: f"{order} at {price}", Joined(grace=10))
        >>> priced.to("priced", Produced(value_serde="string"))
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("prices", "tea", "3.10", 0)
        ...     driver.pipe("orders", "tea", "one", 100)
        ...     driver.pipe("prices", "tea", "2.90", 95)
        ...     driver.pipe("orders", "tea", "two", 110)
        ...     driver.read("priced")
        [Record(key='tea', value='one at 2.90', timestamp=100)]
        """
        return self._join(other, joiner, joined, windows, JoinType.INNER, selector, vectorized)

    def left_join(
        self,
        other: StreamOperators | TableOperators | GlobalKTable,
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None = None,
        *,
        windows: JoinWindows | None = None,
        selector: Callable[[Any, Any], Any] | None = None,
        vectorized: bool = False,
    ) -> Self:
        """Join as ``join`` does, but a record without a match comes out too, joined with None.

        With a stream, that happens when its window and grace have passed, or at once with ``JoinWindows(eager=True)``.
        """
        return self._join(other, joiner, joined, windows, JoinType.LEFT, selector, vectorized)

    def outer_join(
        self,
        other: StreamOperators,
        joiner: Callable[..., Any],
        joined: StreamJoined | None = None,
        *,
        windows: JoinWindows,
        vectorized: bool = False,
    ) -> Self:
        """Join as ``left_join`` with a stream does, for the records of both sides."""
        return self._join(other, joiner, joined, windows, JoinType.OUTER, None, vectorized)

    def _join(
        self,
        other: StreamOperators | TableOperators | GlobalKTable,
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None,
        windows: JoinWindows | None,
        join_type: JoinType,
        selector: Callable[[Any, Any], Any] | None,
        vectorized: bool,
    ) -> Self:
        stream, right = self._handle, other if isinstance(other, GlobalKTable) else other.handle
        where = f"the join of {stream.node!r} with {right.node!r}"
        if selector is not None and not isinstance(right, GlobalKTable):
            raise TopologyError(f"{where} looks up the record's key: a selector needs a global table")
        with_key = keyed_joiner(joiner)
        if isinstance(right, StreamHandle):
            if windows is None or isinstance(joined, Joined):
                raise TopologyError(
                    f"{where} is between streams: it needs windows=JoinWindows(...), and StreamJoined for serdes"
                )
            options = joined or StreamJoined()
            return self._on(join_streams(stream, right, with_key, windows, options, join_type, vectorized=vectorized))
        if windows is not None or isinstance(joined, StreamJoined) or join_type is JoinType.OUTER:
            raise TopologyError(
                f"{where} is with a table: it has no windows, takes Joined instead of StreamJoined, and is inner "
                "or left, because only a record of the stream can make a result"
            )
        joined = joined or Joined()
        if isinstance(right, GlobalKTable):
            made = join_stream_with_global_table(
                stream, right, with_key, selector, joined, join_type, vectorized=vectorized
            )
        else:
            made = join_stream_with_table(stream, right, with_key, joined, join_type, vectorized=vectorized)
        return self._on(made)

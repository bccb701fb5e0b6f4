"""Cogrouped streams: several grouped streams, each with its own aggregator, in one aggregate (KIP-150).

Each input has its own processor and sees its own stream time; all share the store, and their updates one table.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from millpond.errors import TopologyError
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.fold import Update
from millpond.processors.dsl.ktable import KTable
from millpond.processors.dsl.wiring.aggregations import (
    Input,
    add_key_aggregation,
    add_session_aggregation,
    add_window_aggregation,
)
from millpond.processors.options.config import Materialized
from millpond.processors.options.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows

if TYPE_CHECKING:
    from millpond.processors.dsl.grouped import KGroupedStream

Members = tuple[tuple["KGroupedStream", Update], ...]


class CogroupedKStream:
    """Grouped streams that are aggregated together; made by ``KGroupedStream.cogroup``."""

    def __init__(self, members: Members) -> None:
        first = members[0][0]
        for grouped, _ in members:
            if grouped.graph is not first.graph:
                raise TopologyError("streams of different builders cannot be cogrouped; build them with one builder")
        self.members = members

    def cogroup(self, grouped: "KGroupedStream", aggregator: Update) -> "CogroupedKStream":
        """The same with one more stream, whose values ``aggregator(key, value, aggregate)`` takes in."""
        return CogroupedKStream((*self.members, (grouped, aggregator)))

    def aggregate(self, initializer: Callable[[], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key, beginning with ``initializer()``."""
        inputs = self.inputs(initializer)
        graph, serdes = self.members[0][0].graph, (self.members[0][0].key_serde, None)
        store = graph.new_name("COGROUPKSTREAM-AGGREGATE-STATE-STORE-")
        return add_key_aggregation(
            graph, inputs, materialized or Materialized(), store, serdes, "COGROUPKSTREAM-AGGREGATE-"
        )

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> "TimeWindowedCogroupedKStream": ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> "SessionWindowedCogroupedKStream": ...
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> "TimeWindowedCogroupedKStream | SessionWindowedCogroupedKStream":
        """Group by windows of time, or by sessions, as well."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        return TimeWindowedCogroupedKStream(self, windows)

    def inputs(self, initializer: Callable[[], Any], merger: Update | None = None) -> list[Input]:
        """The node and the aggregation of each member."""
        return [
            (grouped.source(), Aggregation(aggregator, initializer, merger)) for grouped, aggregator in self.members
        ]


class TimeWindowedCogroupedKStream:
    """Cogrouped streams in windows of time."""

    def __init__(self, cogrouped: CogroupedKStream, windows: TimeWindows | SlidingWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(self, initializer: Callable[[], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key and window, beginning with ``initializer()``."""
        inputs = self._cogrouped.inputs(initializer)
        grouped = self._cogrouped.members[0][0]
        serdes = grouped.key_serde, None
        return add_window_aggregation(
            grouped.graph,
            inputs,
            materialized or Materialized(),
            serdes,
            self._windows,
            EmitStrategy.ON_WINDOW_UPDATE,
        )


class SessionWindowedCogroupedKStream:
    """Cogrouped streams in sessions."""

    def __init__(self, cogrouped: CogroupedKStream, windows: SessionWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self, initializer: Callable[[], Any], merger: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values of each session; ``merger(key, left, right)`` joins the aggregates of two."""
        inputs = self._cogrouped.inputs(initializer, merger)
        grouped = self._cogrouped.members[0][0]
        serdes = grouped.key_serde, None
        return add_session_aggregation(
            grouped.graph,
            inputs,
            materialized or Materialized(),
            serdes,
            self._windows,
            EmitStrategy.ON_WINDOW_UPDATE,
        )

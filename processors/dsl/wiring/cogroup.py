"""The wiring of several grouped streams that are aggregated together (KIP-150).

Each input has its own processor and sees its own stream time; all share the store, and their updates make one table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.fold import Update
from millpond.processors.dsl.wiring.aggregations import (
    AnyWindows,
    Input,
    Serdes,
    add_key_aggregation,
    add_windowed_aggregation,
)
from millpond.processors.dsl.wiring.grouping import StreamGrouping
from millpond.processors.dsl.wiring.table import StoredTable
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.windows import EmitStrategy


@dataclass(frozen=True)
class Cogroup:
    """Grouped streams, each with its own aggregator.

    Attributes:
        members: the groups and their aggregators, at least one.

    Raises:
        TopologyError: the streams come from different builders.
    """

    members: tuple[tuple[StreamGrouping, Update], ...]

    def __post_init__(self) -> None:
        if any(grouping.graph is not self._first.graph for grouping, _ in self.members):
            raise TopologyError("streams of different builders cannot be cogrouped; build them with one builder")

    @property
    def _first(self) -> StreamGrouping:
        return self.members[0][0]

    @property
    def _serdes(self) -> Serdes:
        return self._first.key_serde, None

    def with_member(self, grouping: StreamGrouping, aggregator: Update) -> "Cogroup":
        """Return the same with one more stream."""
        return Cogroup((*self.members, (grouping, aggregator)))

    def aggregate(self, initializer: Callable[[], Any], materialized: Materialized | None) -> StoredTable:
        """Return the aggregate of each key."""
        inputs, graph = self._inputs(initializer), self._first.graph
        prefix = "COGROUPKSTREAM-AGGREGATE-"
        store = graph.new_name(f"{prefix}STATE-STORE-")
        return add_key_aggregation(graph, inputs, materialized or Materialized(), store, self._serdes, prefix)

    def aggregate_windows(
        self,
        initializer: Callable[[], Any],
        merger: Update | None,
        materialized: Materialized | None,
        windows: AnyWindows,
    ) -> StoredTable:
        """Return the aggregate of each key and window; ``merger`` merges the aggregates of two sessions."""
        inputs, emit = self._inputs(initializer, merger), EmitStrategy.ON_WINDOW_UPDATE
        materialized = materialized or Materialized()
        return add_windowed_aggregation(self._first.graph, inputs, materialized, self._serdes, windows, emit)

    def _inputs(self, initializer: Callable[[], Any], merger: Update | None = None) -> list[Input]:
        """Return the node and the aggregation of each member."""
        return [
            (grouping.source(), Aggregation(aggregator, initializer, merger)) for grouping, aggregator in self.members
        ]

"""``TimeWindowedKStream`` and ``SessionWindowedKStream``: grouped records in windows, to be aggregated."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.processors.aggregations.aggregate import Aggregation, counting, reducing
from millpond.processors.aggregations.fold import Update
from millpond.processors.dsl.ktable import KTable
from millpond.processors.dsl.wiring.aggregations import add_session_aggregation, add_window_aggregation
from millpond.processors.options.config import Materialized, SerdeLike
from millpond.processors.options.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows

if TYPE_CHECKING:
    from millpond.processors.dsl.grouped import KGroupedStream


class TimeWindowedKStream:
    """Records grouped by key and by windows of time; the keys of the results are ``Windowed``.

    Records that come after their window has closed are dropped and counted.
    """

    def __init__(
        self,
        grouped: "KGroupedStream",
        windows: TimeWindows | SlidingWindows,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        self._grouped = grouped
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, emit: EmitStrategy) -> "TimeWindowedKStream":
        """The same, with results emitted as ``emit`` says (KIP-825).

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder()
        >>> windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5))
        >>> windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("in", [("a", "x", 1), ("a", "y", 12), ("a", "z", 9), ("b", "x", 15)])
        ...     driver.read("out")
        [Record(key=Windowed(key='a', start=0, end=10), value=2, timestamp=9)]
        """
        return TimeWindowedKStream(self._grouped, self._windows, emit)

    def count(self, materialized: Materialized | None = None) -> KTable:
        """The number of records of each key in each window."""
        return self._aggregate(counting(), materialized, "int64")

    def reduce(self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key and window: the first as it is, then ``reducer(aggregate, value)``."""
        return self._aggregate(reducing(reducer), materialized, self._grouped.value_serde)

    def aggregate(
        self, initializer: Callable[[], Any], aggregator: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values: ``aggregator(key, value, aggregate)``, each window beginning with ``initializer()``."""
        return self._aggregate(Aggregation(aggregator, initializer), materialized, None)

    def _aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None
    ) -> KTable:
        materialized = materialized or Materialized()
        grouped = self._grouped
        source = grouped.source(materialized.name)
        serdes = grouped.key_serde, value_serde
        return add_window_aggregation(
            grouped.graph, [(source, aggregation)], materialized, serdes, self._windows, self._emit
        )


class SessionWindowedKStream:
    """Records grouped by key and by sessions of activity; the keys of the results are ``Windowed``, ends included.

    A record that touches several sessions merges them: each of them is deleted, and the new one comes instead.
    """

    def __init__(
        self,
        grouped: "KGroupedStream",
        windows: SessionWindows,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        self._grouped = grouped
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, emit: EmitStrategy) -> "SessionWindowedKStream":
        """The same, with results emitted as ``emit`` says (KIP-825)."""
        return SessionWindowedKStream(self._grouped, self._windows, emit)

    def count(self, materialized: Materialized | None = None) -> KTable:
        """The number of records of each session."""
        return self._aggregate(counting(), materialized, "int64")

    def reduce(self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each session; ``reducer(left, right)`` also joins the results of merged sessions."""
        return self._aggregate(reducing(reducer), materialized, self._grouped.value_serde)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Update,
        merger: Update,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each session.

        Args:
            initializer: makes the aggregate of a new session.
            aggregator: ``aggregator(key, value, aggregate)`` takes a value in.
            merger: ``merger(key, left, right)`` joins the aggregates of two sessions, ``left`` the earlier.
            materialized: the store.
        """
        return self._aggregate(Aggregation(aggregator, initializer, merger), materialized, None)

    def _aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None
    ) -> KTable:
        materialized = materialized or Materialized()
        grouped = self._grouped
        source = grouped.source(materialized.name)
        serdes = grouped.key_serde, value_serde
        return add_session_aggregation(
            grouped.graph, [(source, aggregation)], materialized, serdes, self._windows, self._emit
        )

"""``KGroupedStream``: a stream grouped by key, on its way to an aggregation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from millpond.processors.aggregations.aggregate import Aggregation, counting, reducing
from millpond.processors.aggregations.fold import Update
from millpond.processors.dsl.cogroup import CogroupedKStream
from millpond.processors.dsl.ktable import KTable
from millpond.processors.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
from millpond.processors.dsl.wiring.aggregations import add_key_aggregation
from millpond.processors.options.config import Grouped, Materialized, SerdeLike
from millpond.processors.options.windows import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.runtime.topology import TopologyGraph

if TYPE_CHECKING:
    from millpond.processors.dsl.kstream import KStream


class KGroupedStream:
    """Records grouped by key. Records without a key or a value take no part in an aggregation."""

    def __init__(self, stream: "KStream", grouped: Grouped) -> None:
        self._stream = stream
        self._grouped = grouped
        self._together: KStream | None = None

    @property
    def graph(self) -> TopologyGraph:
        return self._stream.graph

    @property
    def key_serde(self) -> SerdeLike | None:
        return self._grouped.key_serde or self._stream.key_serde

    @property
    def value_serde(self) -> SerdeLike | None:
        return self._grouped.value_serde or self._stream.value_serde

    def source(self, store: str | None = None) -> str:
        """The node whose records have equal keys together; ``store`` may name the repartition topic.

        All aggregations of this grouped stream share one repartition topic.
        """
        if self._together is None:
            name = self._grouped.name or store
            self._together = self._stream.repartitioned(name, self._grouped.key_serde, self._grouped.value_serde)
        return self._together.node

    def count(self, materialized: Materialized | None = None) -> KTable:
        """The number of records of each key, as a table of ints."""
        return self._aggregate(counting(), materialized, "int64")

    def reduce(self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key: the first as it is, then ``reducer(aggregate, value)``; None deletes."""
        return self._aggregate(reducing(reducer), materialized, self.value_serde)

    def aggregate(
        self, initializer: Callable[[], Any], aggregator: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values of each key: ``aggregator(key, value, aggregate)``, beginning with ``initializer()``."""
        return self._aggregate(Aggregation(aggregator, initializer), materialized, None)

    def cogroup(self, aggregator: Update) -> CogroupedKStream:
        """Begin an aggregate of several streams; ``aggregator(key, value, aggregate)`` takes this one's values in.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder()
        >>> paid = builder.stream("paid").group_by_key().cogroup(lambda key, value, total: total + value)
        >>> refunded = builder.stream("refunded").group_by_key()
        >>> both = paid.cogroup(refunded, lambda key, value, total: total - value)
        >>> both.aggregate(int, Materialized(value_serde="int64")).to("balance")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("paid", "a", 5, timestamp=1)
        ...     driver.pipe("refunded", "a", 2, timestamp=2)
        ...     driver.read("balance")
        [Record(key='a', value=5, timestamp=1), Record(key='a', value=3, timestamp=2)]
        """
        return CogroupedKStream(((self, aggregator),))

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream | SessionWindowedKStream:
        """Group by windows of time, or by sessions, as well.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5)).count().to("out")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("in", [("a", "x", 1), ("a", "y", 12), ("a", "z", 9)])
        ...     for record in driver.read("out"):
        ...         print(*record)
        Windowed(key='a', start=0, end=10) 1 1
        Windowed(key='a', start=10, end=20) 1 12
        Windowed(key='a', start=0, end=10) 2 9
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return TimeWindowedKStream(self, windows)

    def _aggregate(
        self, aggregation: Aggregation, materialized: Materialized | None, value_serde: SerdeLike | None
    ) -> KTable:
        materialized = materialized or Materialized()
        source = self.source(materialized.name)
        store = self.graph.new_name("KSTREAM-AGGREGATE-STATE-STORE-")
        serdes = self.key_serde, value_serde
        return add_key_aggregation(self.graph, [(source, aggregation)], materialized, store, serdes)

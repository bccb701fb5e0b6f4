"""``KStream``, ``KTable`` and what lies between them: groups, windows and cogroups.

These classes make one another: a stream is grouped, a group is aggregated into a table, a table's updates are a stream.
So they live in one module. Operators of a stream or a table alone are in ``stream_operators`` and ``table_operators``,
joins of streams in ``stream_joins``.

Rule of this module: nothing is changed once it is made. Each object wraps a frozen handle of ``dsl.wiring``, and each
method is one call of wiring.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Self, overload

from millpond.processors.aggregations.aggregate import (
    Aggregation,
    counting,
    reducing,
    table_aggregation,
    table_count,
    table_reduction,
)
from millpond.processors.aggregations.fold import Update
from millpond.processors.aggregations.table_repartition import Selector
from millpond.processors.dsl.stream_joins import StreamJoins
from millpond.processors.dsl.table_operators import TableOperators
from millpond.processors.dsl.wiring.cogroup import Cogroup
from millpond.processors.dsl.wiring.grouping import StreamGrouping, TableGrouping, WindowedGrouping, group_table
from millpond.processors.dsl.wiring.sinks import TopicExtractor
from millpond.processors.dsl.wiring.stream_table import stream_to_table
from millpond.processors.dsl.wiring.table import latest_changes
from millpond.processors.options.cumulative_windows import CumulativeWindows
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.records import Grouped, Produced
from millpond.processors.options.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, of_topology
from millpond.stores.encoding.times import Duration


class KStream(StreamJoins):
    """A stream of records with keys, values and timestamps; made by ``StreamsBuilder.stream`` and by operators."""

    def to_table(
        self,
        materialized: Materialized | None = None,
        *,
        reorder_within: Duration | None = None,
        name: str | None = None,
    ) -> "KTable":
        """Return the stream read as a table: each record sets the value of its key, a null value deletes it.

        The table gets a store if ``materialized`` asks for one, or else when an operator needs to look it up. A table
        that was turned into a stream and back is versioned only if it is materialized as such here (KIP-914).
        ``reorder_within`` brings records into order first, as in ``StreamsBuilder.table``.
        """
        return KTable(stream_to_table(self.handle, materialized or Materialized(), reorder_within, name))

    def group_by(self, selector: Callable[[Any, Any], Any], grouped: Grouped | None = None) -> "KGroupedStream":
        """Group by ``selector(key, value)``: the same as ``select_key``, then ``group_by_key``."""
        grouped = grouped or Grouped()
        return self.select_key(selector, key_serde=grouped.key_serde).group_by_key(grouped)

    def group_by_key(self, grouped: Grouped | None = None) -> "KGroupedStream":
        """Group by the records' own keys, for an aggregation."""
        return KGroupedStream(StreamGrouping(self.handle, grouped or Grouped()))


class KTable(TableOperators):
    """A table of the latest value of each key; made by ``StreamsBuilder.table`` and by aggregations."""

    def group_by(self, selector: Selector, grouped: Grouped | None = None) -> "KGroupedTable":
        """Group the rows by another key: ``selector(key, value)`` returns group key and grouped value (KIP-904)."""
        return KGroupedTable(group_table(self.handle, [selector], grouped or Grouped()))

    def to_stream(self, *, changes_only: bool = False) -> "KStream":
        """Return the table's updates as a stream; a deletion is a null value.

        With ``changes_only``, only updates that change what the table shows: none that repeats the value, and none
        of a versioned table that comes too late to be its key's latest (KIP-914). The table gets a store for that.

        >>> from millpond.processors import Materialized, StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> prices = builder.table("prices", materialized=Materialized.versioned(history_retention=60_000))
        >>> prices.to_stream(changes_only=True).to("changes")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("prices", "tea", "3.10", 20)
        ...     driver.pipe("prices", "tea", "2.90", 10)
        ...     driver.pipe("prices", "tea", "3.10", 30)
        ...     driver.read("changes")
        [Record(key='tea', value='3.10', timestamp=20)]
        """
        return KStream(latest_changes(self.handle) if changes_only else self.handle.as_stream())

    def to(
        self, topic: str | TopicExtractor, produced: Produced | None = None, *, topics: Collection[str] = ()
    ) -> None:
        """Write the table's updates to a sink, or each to a sink that a function chooses, as ``KStream.to`` does."""
        self.to_stream().to(topic, produced, topics=topics)


class KGroupedStream:
    """Records grouped by key; aggregations drop and count records without a key or a value."""

    def __init__(self, grouping: StreamGrouping) -> None:
        self._grouping = grouping

    @property
    def grouping(self) -> StreamGrouping:
        """The group in the graph."""
        return self._grouping

    def count(self, materialized: Materialized | None = None) -> KTable:
        """Return the number of records of each key, as a table of ints."""
        return KTable(self._grouping.aggregate(counting(), materialized, "int64"))

    def reduce(
        self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None, *, vectorized: bool = False
    ) -> KTable:
        """Fold the values of each key: the first as it is, then ``reducer(aggregate, value)``; None deletes.

        Args:
            reducer: the reducer.
            materialized: the store of the result.
            vectorized: whether it takes columns: ``reducer(aggregates, values)`` gets two Arrow arrays and returns an
                array of as many results, such as ``pyarrow.compute.add``. It must be associative: values that follow
                each other may be reduced before they are folded in. (So a sum of floats may be rounded otherwise.)

        Raises:
            TopologyError: a vectorized reducer gets values of a serde that Arrow has no column for.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> import pyarrow.compute as pc
        >>> builder = StreamsBuilder(key_serde="string", value_serde="int64")
        >>> builder.stream("bids").group_by_key().reduce(pc.max_element_wise, vectorized=True).to("highest")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("bids", [("lamp", 5, 1), ("lamp", 3, 2), ("lamp", 9, 3)])
        ...     [record.value for record in driver.read("highest")]
        [5, 5, 9]
        """
        grouping = self._grouping
        aggregation = grouping.reducing_columns(reducer) if vectorized else reducing(reducer)
        return KTable(grouping.aggregate(aggregation, materialized, grouping.value_serde))

    def aggregate(
        self, initializer: Callable[[], Any], aggregator: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values of each key: ``aggregator(key, value, aggregate)``, beginning with ``initializer()``."""
        return KTable(self._grouping.aggregate(Aggregation(aggregator, initializer), materialized, None))

    def cogroup(self, aggregator: Update) -> "CogroupedKStream":
        """Begin an aggregate of several streams; ``aggregator(key, value, aggregate)`` folds in this one's values.

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
        return CogroupedKStream(Cogroup(((self._grouping, aggregator),)))

    @overload
    def windowed_by(self, windows: TimeWindows | CumulativeWindows | SlidingWindows) -> "TimeWindowedKStream": ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> "SessionWindowedKStream": ...
    def windowed_by(
        self, windows: TimeWindows | CumulativeWindows | SlidingWindows | SessionWindows
    ) -> "TimeWindowedKStream | SessionWindowedKStream":
        """Group by windows of time, or by sessions, as well.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5)).count().to("out")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("in", "a", "x", 1)
        ...     driver.pipe("in", "a", "y", 12)
        ...     driver.pipe("in", "a", "z", 9)
        ...     for record in driver.read("out"):
        ...         print(*record)
        Windowed(key='a', start=0, end=10) 1 1
        Windowed(key='a', start=10, end=20) 1 12
        Windowed(key='a', start=0, end=10) 2 9
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(WindowedGrouping(self._grouping, of_topology(windows)))
        return TimeWindowedKStream(WindowedGrouping(self._grouping, of_topology(windows)))


class WindowedKStream:
    """Records grouped by key and by windows; the keys of the results are ``Windowed``."""

    def __init__(self, windowed: WindowedGrouping) -> None:
        self._windowed = windowed

    def emit_strategy(self, emit: EmitStrategy) -> Self:
        """Return the same, with results emitted as ``emit`` says (KIP-825).

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder()
        >>> windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5))
        >>> windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("in", [("a", "x", 1), ("a", "y", 12), ("a", "z", 9), ("b", "x", 15)])
        ...     driver.read("out")
        [Record(key=Windowed(key='a', start=0, end=10), value=2, timestamp=9)]
        """
        return type(self)(replace(self._windowed, emit=emit))

    def count(self, materialized: Materialized | None = None) -> KTable:
        """Return the number of records of each key in each window."""
        return KTable(self._windowed.aggregate(counting(), materialized, "int64"))

    def reduce(self, reducer: Callable[[Any, Any], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key and window: the first as it is, then ``reducer(aggregate, value)``.

        Of two sessions that become one, ``reducer(left, right)`` merges the results.
        """
        return KTable(self._windowed.aggregate(reducing(reducer), materialized, self._windowed.value_serde))


class TimeWindowedKStream(WindowedKStream):
    """Records grouped by key and by windows of time; the keys of the results are ``Windowed``.

    Records that come after their window has closed are dropped and counted.
    """

    def aggregate(
        self, initializer: Callable[[], Any], aggregator: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values: ``aggregator(key, value, aggregate)``, each window beginning with ``initializer()``."""
        return KTable(self._windowed.aggregate(Aggregation(aggregator, initializer), materialized, None))


class SessionWindowedKStream(WindowedKStream):
    """Records grouped by key and by sessions of activity; the keys of the results are ``Windowed``, ends included.

    A record that touches several sessions merges them: each is deleted, and the merged session takes their place.
    Where records have gaps of their own, a session ends when the last of these is over.
    """

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
            aggregator: ``aggregator(key, value, aggregate)`` folds in a value.
            merger: ``merger(key, left, right)`` merges the aggregates of two sessions, ``left`` the earlier.
            materialized: the store.
        """
        return KTable(self._windowed.aggregate(Aggregation(aggregator, initializer, merger), materialized, None))


class CogroupedKStream:
    """Grouped streams that are aggregated together; made by ``KGroupedStream.cogroup``."""

    def __init__(self, cogroup: Cogroup) -> None:
        self._cogroup = cogroup

    def cogroup(self, grouped: KGroupedStream, aggregator: Update) -> "CogroupedKStream":
        """Return the same with one more stream, whose values ``aggregator(key, value, aggregate)`` folds in."""
        return CogroupedKStream(self._cogroup.with_member(grouped.grouping, aggregator))

    def aggregate(self, initializer: Callable[[], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key, beginning with ``initializer()``."""
        return KTable(self._cogroup.aggregate(initializer, materialized))

    @overload
    def windowed_by(
        self, windows: TimeWindows | CumulativeWindows | SlidingWindows
    ) -> "TimeWindowedCogroupedKStream": ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> "SessionWindowedCogroupedKStream": ...
    def windowed_by(
        self, windows: TimeWindows | CumulativeWindows | SlidingWindows | SessionWindows
    ) -> "TimeWindowedCogroupedKStream | SessionWindowedCogroupedKStream":
        """Group by windows of time, or by sessions, as well."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._cogroup, of_topology(windows))
        return TimeWindowedCogroupedKStream(self._cogroup, of_topology(windows))


class TimeWindowedCogroupedKStream:
    """Cogrouped streams in windows of time."""

    def __init__(self, cogroup: Cogroup, windows: TimeWindows | CumulativeWindows | SlidingWindows) -> None:
        self._cogroup = cogroup
        self._windows = windows

    def aggregate(self, initializer: Callable[[], Any], materialized: Materialized | None = None) -> KTable:
        """Fold the values of each key and window, beginning with ``initializer()``."""
        return KTable(self._cogroup.aggregate_windows(initializer, None, materialized, self._windows))


class SessionWindowedCogroupedKStream:
    """Cogrouped streams in sessions."""

    def __init__(self, cogroup: Cogroup, windows: SessionWindows) -> None:
        self._cogroup = cogroup
        self._windows = windows

    def aggregate(
        self, initializer: Callable[[], Any], merger: Update, materialized: Materialized | None = None
    ) -> KTable:
        """Fold the values of each session; ``merger(key, left, right)`` merges the aggregates of two."""
        return KTable(self._cogroup.aggregate_windows(initializer, merger, materialized, self._windows))


class KGroupedTable:
    """Rows of a table grouped by the key that a selector gives them (KIP-904).

    When a row changes, its old value leaves its group and its new value joins its group. If that is the same group, it
    is updated once: subtracted, then added. The changes travel through a repartition topic.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> builder = StreamsBuilder(value_serde="string")
    >>> homes = builder.table("homes")
    >>> homes.group_by(lambda person, town: (town, person), Grouped("string", "string")).count().to("inhabitants")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe("homes", "Ada", "Aberdeen", timestamp=1)
    ...     driver.pipe("homes", "Ada", "Bath", timestamp=2)
    ...     driver.read("inhabitants")  # doctest: +NORMALIZE_WHITESPACE
    [Record(key='Aberdeen', value=1, timestamp=1), Record(key='Aberdeen', value=0, timestamp=2),
     Record(key='Bath', value=1, timestamp=2)]
    """

    def __init__(self, grouping: TableGrouping) -> None:
        self._grouping = grouping

    def count(self, materialized: Materialized | None = None) -> KTable:
        """Return the number of rows of each group, as a table of ints; a group that lost all its rows stays, with 0."""
        return KTable(self._grouping.aggregate(table_count(), materialized, "int64", "KTABLE-AGGREGATE-"))

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each group: the first as it is, then ``adder(aggregate, new)``.

        Args:
            adder: adds a value.
            subtractor: ``subtractor(aggregate, old)`` subtracts a value; None deletes the group.
            materialized: the store.
        """
        reduction, serde = table_reduction(adder, subtractor), self._grouping.value_serde
        return KTable(self._grouping.aggregate(reduction, materialized, serde, "KTABLE-REDUCE-"))

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Update,
        subtractor: Update,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the values of each group, beginning with ``initializer()``.

        Args:
            initializer: makes the aggregate of an empty group.
            adder: ``adder(group, new, aggregate)`` adds a value.
            subtractor: ``subtractor(group, old, aggregate)`` subtracts a value; None deletes the group.
            materialized: the store.
        """
        aggregation = table_aggregation(initializer, adder, subtractor)
        return KTable(self._grouping.aggregate(aggregation, materialized, None, "KTABLE-AGGREGATE-"))

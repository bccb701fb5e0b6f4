"""``KStream``: a stream of records, each a fact of its own, and the operators on it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.dsl.branched import BranchedKStream
from millpond.processors.dsl.global_table import GlobalKTable
from millpond.processors.dsl.grouped import KGroupedStream
from millpond.processors.dsl.ktable import KTable
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.dsl.wiring.repartition import send_through_topic
from millpond.processors.dsl.wiring.stream_join import JoinKind, join_streams
from millpond.processors.dsl.wiring.stream_table import (
    join_stream_with_global_table,
    join_stream_with_table,
    stream_to_table,
)
from millpond.processors.options.config import (
    Grouped,
    Joined,
    Materialized,
    Produced,
    Repartitioned,
    SerdeLike,
    StreamJoined,
    same_serde,
)
from millpond.processors.options.functions import keyed_joiner
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.runtime.processor import Processor
from millpond.processors.runtime.topology import ProcessorNode, SinkNode, TopologyGraph
from millpond.processors.streams.stateless import (
    Predicate,
    StreamFilter,
    StreamFlatMap,
    StreamFlatMapValues,
    StreamMap,
    StreamMapValues,
    StreamPass,
    StreamPeek,
    StreamSelectKey,
)
from millpond.stores.specs import StoreSpec
from millpond.stores.times import Duration


class KStream:
    """A stream of records with keys, values and timestamps; made by ``StreamsBuilder.stream`` and by other operators.

    Attributes:
        repartition_required: whether the key has changed since the records last had the partition of their key. The
            next operator that needs equal keys together sends them through a repartition topic.
    """

    def __init__(
        self,
        graph: TopologyGraph,
        node: str,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        repartition_required: bool = False,
    ) -> None:
        self.graph = graph
        self.node = node
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.repartition_required = repartition_required

    def filter(self, predicate: Predicate, *, name: str | None = None) -> "KStream":
        """Keep the records for which ``predicate(key, value)`` is true."""
        return self.then("KSTREAM-FILTER-", lambda: StreamFilter(predicate), name)

    def filter_not(self, predicate: Predicate, *, name: str | None = None) -> "KStream":
        """Drop the records for which ``predicate(key, value)`` is true."""
        return self.then("KSTREAM-FILTER-", lambda: StreamFilter(predicate, wanted=False), name)

    def map(
        self,
        mapper: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> "KStream":
        """Replace each record by the pair ``mapper(key, value)``. Serdes are the same unless given."""
        stream = self.then("KSTREAM-MAP-", lambda: StreamMap(mapper), name)
        return stream._retyped(key_serde, value_serde, rekeyed=True)

    def map_values(
        self, mapper: Callable[..., Any], *, value_serde: SerdeLike | None = None, name: str | None = None
    ) -> "KStream":
        """Replace each value by ``mapper(value)``, or with two parameters by ``mapper(key, value)``.

        ``value_serde`` is that of the new values; the same unless given.
        """
        stream = self.then("KSTREAM-MAPVALUES-", lambda: StreamMapValues(mapper), name)
        return stream._retyped(None, value_serde)

    def flat_map(
        self,
        mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> "KStream":
        """Replace each record by the pairs that ``mapper(key, value)`` makes. Serdes are the same unless given."""
        stream = self.then("KSTREAM-FLATMAP-", lambda: StreamFlatMap(mapper), name)
        return stream._retyped(key_serde, value_serde, rekeyed=True)

    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, value_serde: SerdeLike | None = None, name: str | None = None
    ) -> "KStream":
        """Replace each record by one for each value of ``mapper(value)``, or of ``mapper(key, value)``."""
        stream = self.then("KSTREAM-FLATMAPVALUES-", lambda: StreamFlatMapValues(mapper), name)
        return stream._retyped(None, value_serde)

    def select_key(
        self, selector: Callable[[Any, Any], Any], *, key_serde: SerdeLike | None = None, name: str | None = None
    ) -> "KStream":
        """Replace each key by ``selector(key, value)``; equal keys come together again where an operator needs it."""
        stream = self.then("KSTREAM-KEY-SELECT-", lambda: StreamSelectKey(selector), name)
        return stream._retyped(key_serde, None, rekeyed=True)

    def peek(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> "KStream":
        """Show each record to ``action(key, value)`` on its way. After a failure it may see a record again."""
        return self.then("KSTREAM-PEEK-", lambda: StreamPeek(action), name)

    def merge(self, *others: "KStream", name: str | None = None) -> "KStream":
        """All records of this stream and of ``others`` as one stream; there is no order between the streams."""
        streams = (self, *others)
        node = name or self.graph.new_name("KSTREAM-MERGE-")
        parents = list(dict.fromkeys(stream.node for stream in streams))
        self.graph.add(ProcessorNode(node, parents, supplier=StreamPass))
        return KStream(
            self.graph,
            node,
            self.key_serde if all(same_serde(stream.key_serde, self.key_serde) for stream in others) else None,
            self.value_serde if all(same_serde(stream.value_serde, self.value_serde) for stream in others) else None,
            any(stream.repartition_required for stream in streams),
        )

    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Begin to split the stream: each record goes to the first branch that wants it.

        >>> from millpond.processors import StreamsBuilder
        >>> numbers = StreamsBuilder().stream("numbers")
        >>> parts = (
        ...     numbers.split(name="sign-")
        ...     .branch(lambda key, value: value < 0, name="negative")
        ...     .default_branch(name="positive")
        ... )
        >>> sorted(parts)
        ['sign-negative', 'sign-positive']
        """
        return BranchedKStream(self, name)

    def process(
        self,
        supplier: Callable[[], Processor],
        *,
        stores: Sequence[str | StoreSpec] = (),
        name: str | None = None,
        keeps_key: bool = False,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
    ) -> "KStream":
        """Send the records through a processor of your own (``RecordProcessor``, or ``Processor`` for whole batches).

        Args:
            supplier: makes the processor, one for each task; a class will do.
            stores: what it may use: names of stores that are in the topology (``StreamsBuilder.add_state_store``, or a
                table's), or descriptions of new ones.
            name: the node's name.
            keeps_key: promise that no record gets another key, so that nothing has to be repartitioned later.
            key_serde, value_serde: of what it forwards; the same unless given.
        """
        node = name or self.graph.new_name("KSTREAM-PROCESSOR-")
        stream = self.then("KSTREAM-PROCESSOR-", supplier, node)
        for store in stores:
            if isinstance(store, StoreSpec):
                self.graph.add_store(store, node)
            else:
                self.graph.connect(node, store)
        return stream._retyped(key_serde, value_serde, rekeyed=not keeps_key)

    def repartition(self, repartitioned: Repartitioned | None = None) -> "KStream":
        """Send the records through a repartition topic in any case, so that all of a key come to the key's task."""
        options = repartitioned or Repartitioned()
        return send_through_topic(self, options.name, options.key_serde, options.value_serde)

    def join(
        self,
        other: "KStream | KTable | GlobalKTable",
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None = None,
        *,
        windows: JoinWindows | None = None,
        selector: Callable[[Any, Any], Any] | None = None,
    ) -> "KStream":
        """Join with another stream, record by record within ``windows``, or with a table.

        A stream: each pair of records with the same key whose times are close enough comes out once, at the later of
        the two times (KIP-77). A table: each record is joined with the table's value of its key, without one it is
        dropped; against a versioned table the value is the one that was valid at the record's time (KIP-914).

        Args:
            other: the right side.
            joiner: ``joiner(value, other_value)``, or with three parameters ``joiner(key, value, other_value)``.
            joined: serdes and names; ``Joined`` for a table, ``StreamJoined`` for a stream.
            windows: which records of two streams belong together.
            selector: ``selector(key, value)`` gives the key to look up in a global table; without it the record's own.

        With ``Joined(grace=...)`` a record waits until stream time has passed its own by that much, and so sees the
        table's late records too (KIP-923). What is later than that is joined at once. The table must be versioned.

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
        return self._join(other, joiner, joined, windows, JoinKind.INNER, selector)

    def left_join(
        self,
        other: "KStream | KTable | GlobalKTable",
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None = None,
        *,
        windows: JoinWindows | None = None,
        selector: Callable[[Any, Any], Any] | None = None,
    ) -> "KStream":
        """As ``join``, but a record without a match comes out too, joined with None.

        With a stream that happens when its window and grace are over, or at once with ``JoinWindows(eager=True)``.
        """
        return self._join(other, joiner, joined, windows, JoinKind.LEFT, selector)

    def outer_join(
        self,
        other: "KStream",
        joiner: Callable[..., Any],
        joined: StreamJoined | None = None,
        *,
        windows: JoinWindows,
    ) -> "KStream":
        """As ``left_join`` with a stream, for the records of both sides."""
        return self._join(other, joiner, joined, windows, JoinKind.OUTER, None)

    def _join(
        self,
        other: "KStream | KTable | GlobalKTable",
        joiner: Callable[..., Any],
        joined: Joined | StreamJoined | None,
        windows: JoinWindows | None,
        kind: JoinKind,
        selector: Callable[[Any, Any], Any] | None,
    ) -> "KStream":
        where = f"the join of {self.node!r} with {other.node!r}"
        if selector is not None and not isinstance(other, GlobalKTable):
            raise TopologyError(f"{where} is not one with a global table, so it looks up the record's key: no selector")
        if isinstance(other, KStream):
            if windows is None or isinstance(joined, Joined):
                raise TopologyError(
                    f"{where} is one of two streams: it needs windows=JoinWindows(...) and StreamJoined"
                )
            return join_streams(self, other, keyed_joiner(joiner), windows, joined or StreamJoined(), kind)
        if windows is not None or isinstance(joined, StreamJoined) or kind is JoinKind.OUTER:
            raise TopologyError(
                f"{where} is one with a table: it has no windows, takes Joined instead of StreamJoined, and is inner "
                "or left, because only a record of the stream can make a result"
            )
        if isinstance(other, GlobalKTable):
            left, with_key = kind is JoinKind.LEFT, keyed_joiner(joiner)
            return join_stream_with_global_table(self, other, with_key, selector, joined or Joined(), left=left)
        return self._join_table(other, joiner, joined or Joined(), left=kind is JoinKind.LEFT)

    def _join_table(self, table: KTable, joiner: Callable[..., Any], joined: Joined, *, left: bool) -> "KStream":
        stream = self.repartitioned(joined.name, joined.key_serde, joined.value_serde, keep_null_keys=left)
        check_copartitioned(stream, table)
        return join_stream_with_table(stream, table, keyed_joiner(joiner), joined, left=left)

    def to_table(
        self, materialized: Materialized | None = None, *, grace: Duration | None = None, name: str | None = None
    ) -> KTable:
        """The stream read as a table: each record sets the value of its key, a null value deletes it.

        The table gets a store if ``materialized`` asks for one, or else when an operator has to look it up. A table
        that was turned into a stream and back is versioned only if it is materialized so here (KIP-914). ``grace``
        brings records into order first, as in ``StreamsBuilder.table``.
        """
        return stream_to_table(self, materialized or Materialized(), grace, name)

    def group_by(self, selector: Callable[[Any, Any], Any], grouped: Grouped | None = None) -> KGroupedStream:
        """Group by ``selector(key, value)``: the same as ``select_key`` and ``group_by_key``."""
        grouped = grouped or Grouped()
        return self.select_key(selector, key_serde=grouped.key_serde).group_by_key(grouped)

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream:
        """Group by the records' own keys, for an aggregation."""
        return KGroupedStream(self, grouped or Grouped())

    def to(self, topic: str, produced: Produced | None = None) -> None:
        """Write the records to a sink.

        Raises:
            TopologyError: neither the stream nor ``produced`` says how keys and values become bytes or columns.
        """
        produced = produced or Produced()
        key_serde, value_serde = produced.key_serde or self.key_serde, produced.value_serde or self.value_serde
        if produced.schema is None and (key_serde is None or value_serde is None):
            missing = "key" if key_serde is None else "value"
            raise TopologyError(
                f"sink {topic!r} has no {missing} serde: give Produced({missing}_serde=...), or a DataFrame schema"
            )
        name = produced.name or self.graph.new_name("KSTREAM-SINK-")
        described = Produced(key_serde, value_serde, produced.schema, name)
        self.graph.add(SinkNode(name, [self.node], topic=topic, produced=described))

    def repartitioned(
        self,
        name: str | None = None,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        *,
        keep_null_keys: bool = False,
    ) -> "KStream":
        """This stream with equal keys together: itself, or read back from a repartition topic if the key changed.

        A record without a key is dropped on the way unless ``keep_null_keys``, for operators that want it (KIP-962).
        """
        if not self.repartition_required:
            return self
        return send_through_topic(self, name, key_serde, value_serde, keep_null_keys=keep_null_keys)

    def then(
        self, prefix: str, supplier: Callable[[], Processor], name: str | None, stores: tuple[str, ...] = ()
    ) -> "KStream":
        """The stream behind a new processor with this stream as its only parent."""
        node = name or self.graph.new_name(prefix)
        self.graph.add(ProcessorNode(node, [self.node], supplier=supplier))
        self.graph.connect(node, *stores)
        return KStream(self.graph, node, self.key_serde, self.value_serde, self.repartition_required)

    def _retyped(
        self, key_serde: SerdeLike | None, value_serde: SerdeLike | None, *, rekeyed: bool = False
    ) -> "KStream":
        """This stream with other serdes where they are given; ``rekeyed`` if the key may have changed."""
        self.key_serde = key_serde or self.key_serde
        self.value_serde = value_serde or self.value_serde
        self.repartition_required = self.repartition_required or rekeyed
        return self

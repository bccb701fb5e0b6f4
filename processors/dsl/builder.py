"""``StreamsBuilder``: the beginning of a topology."""

from millpond.processors.dsl.graph_builder import GraphBuilder
from millpond.processors.dsl.streams_and_tables import KStream, KTable
from millpond.processors.dsl.wiring.global_table import GlobalKTable, add_global_table
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wiring.table import reordered, source_table
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.order import Order
from millpond.processors.options.records import Consumed
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.runtime.nodes import SourceNode
from millpond.stores.encoding.times import Duration


class StreamsBuilder(GraphBuilder):
    """Builds a topology from streams and tables.

    Args:
        key_serde, value_serde: the default wherever no other serde is known: for sources that name none, and for the
            results of joins and aggregations. None for no default: then each must be named.
        upgrade_from: during an upgrade, the older release of Kafka Streams whose formats internal topics are still
            written in (KIP-904: ``"3.4"`` or older sends changes one by one).
        optimize: keep the records of a stream that is joined with itself once instead of twice. This changes the
            stores, so a job must keep the setting it began with.
        order: the order in which a task takes the records of a micro-batch: of event ``"time"``, or of
            ``"arrival"``, as Kafka Streams does within a Kafka partition. With the order of arrival, what is late and
            what joins depends on how a micro-batch was packed into files and partitions.

    Raises:
        ConfigurationError: there is no such order.
    """

    def __init__(
        self,
        *,
        key_serde: SerdeLike | None = "string",
        value_serde: SerdeLike | None = "msgpack",
        upgrade_from: str | None = None,
        optimize: bool = False,
        order: str | Order = Order.TIME,
    ) -> None:
        super().__init__(
            TopologyGraph(
                key_serde=key_serde,
                value_serde=value_serde,
                upgrade_from=upgrade_from,
                optimize=optimize,
                order=Order.of(order),
            )
        )

    def stream(self, topic: str, consumed: Consumed | None = None) -> KStream:
        """Return the records of ``topic`` as a stream; the same topic may be read again with equal options.

        Raises:
            TopologyError: the topic is already read in another way.
        """
        consumed = self._complete(consumed)
        same = self._graph.reader(topic)
        if same is not None and same.consumed == consumed and same.stream:
            return KStream(StreamHandle(self._graph, same.name, consumed.key_serde, consumed.value_serde))
        node = consumed.name or self._graph.new_name("KSTREAM-SOURCE-")
        self._graph.add(SourceNode(node, topic=topic, consumed=consumed, stream=True))
        return KStream(StreamHandle(self._graph, node, consumed.key_serde, consumed.value_serde))

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        reorder_within: Duration | None = None,
    ) -> KTable:
        """Return the records of ``topic`` as a table: each sets the value of its key, a null value deletes it.

        The table gets a store if ``materialized`` asks for one, or else when an operator needs to look it up. With
        ``Materialized.versioned`` it keeps a history of each key (KIP-889, KIP-914).

        With ``reorder_within``, records wait until stream time, the greatest timestamp in the topic so far, is that far
        past their own, and reach the table in timestamp order. A record that is later than that reaches it at once, out
        of order, and is counted as ``passed-late``.

        Raises:
            TopologyError: the topic is already read, a serde is not known, or the store cannot hold a table.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> builder.table("prices", reorder_within=10).to("in-order")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("prices", "tea", "third", 30)
        ...     driver.pipe("prices", "tea", "second", 25)
        ...     driver.pipe("prices", "tea", "fourth", 45)
        ...     [(value, timestamp) for _, value, timestamp in driver.read("in-order")]
        [('second', 25), ('third', 30)]
        """
        consumed = self._complete(consumed)
        materialized = materialized or Materialized()
        source = self._graph.new_name("KSTREAM-SOURCE-")
        node = consumed.name or self._graph.new_name("KTABLE-SOURCE-")
        store = self._graph.new_name(f"{topic}-STATE-STORE-")
        spec = materialized.spec(store, TABLE_KINDS, consumed.key_serde, consumed.value_serde)
        self._graph.add(SourceNode(source, topic=topic, consumed=consumed))
        first = reordered(self._graph, source, reorder_within, spec)
        return KTable(source_table(self._graph, node, [first], spec, materialized))

    def global_table(
        self, topic: str, consumed: Consumed | None = None, materialized: Materialized | None = None
    ) -> GlobalKTable:
        """Return the records of ``topic`` as a table that every task holds in full, for ``KStream.join`` by any key.

        Raises:
            TopologyError: the topic is already read, or ``materialized`` is versioned (KIP-914).
        """
        return add_global_table(self._graph, topic, self._complete(consumed), materialized or Materialized())

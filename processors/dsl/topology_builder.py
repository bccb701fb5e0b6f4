"""``TopologyBuilder``: a topology node by node, the Processor API of Kafka Streams."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from millpond.errors import MissingSerdeError, TopologyError
from millpond.processors.dsl.graph_builder import GraphBuilder
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.sinks import TopicExtractor, add_sink
from millpond.processors.options.order import Order
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.processor import Processor
from millpond.processors.streams.stateless import DropNullKeys, StreamPass
from millpond.stores.specs.store_spec import StoreSpec


class TopologyBuilder(GraphBuilder):
    """Builds a topology node by node. Each node names its parents, which are there already.

    Args:
        key_serde, value_serde: the default wherever a source or a sink names no other.
        order: in which order a task takes the records of a micro-batch, as in ``StreamsBuilder``.

    Raises:
        ConfigurationError: there is no such order.

    >>> from millpond.processors import RecordProcessor, TopologyDriver
    >>> from millpond.stores import INT64, STRING, StoreKind, StoreSpec
    >>> class Total(RecordProcessor):
    ...     def process_record(self, key, value, timestamp):
    ...         totals = self.context.store("totals")
    ...         totals.put(key, (totals.get(key) or 0) + value)
    ...         self.forward(key, totals.get(key), timestamp)
    >>> builder = TopologyBuilder(value_serde="int64")
    >>> source = builder.add_source("source", "payments")
    >>> total = builder.add_processor("total", Total, source)
    >>> builder.add_state_store(StoreSpec("totals", StoreKind.KEY_VALUE, STRING, INT64), total)
    'totals'
    >>> builder.add_sink("sink", "balances", total)
    'sink'
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("payments", [("ann", 3, 1), ("ann", 4, 2)])
    ...     [record.value for record in driver.read("balances")]
    [3, 7]
    """

    def __init__(
        self,
        *,
        key_serde: SerdeLike | None = "string",
        value_serde: SerdeLike | None = "msgpack",
        order: str | Order = Order.TIME,
    ) -> None:
        super().__init__(TopologyGraph(key_serde=key_serde, value_serde=value_serde, order=Order.of(order)))

    def add_source(self, name: str, *topics: str, consumed: Consumed | None = None) -> str:
        """Read topics.

        Args:
            name: the node's name.
            topics: one or more.
            consumed: the options for reading; the same for all of them.

        Returns:
            The node's name.

        Raises:
            TopologyError: the name is taken, a topic is already read, or there is none.
        """
        complete = self._complete(consumed)
        if not topics:
            raise TopologyError(f"source {name!r} reads no topic; name at least one: add_source({name!r}, 'topic')")
        if len(topics) == 1:
            self._read(name, topics[0], complete)
            return name
        sources = [self._read(f"{name}-{topic}", topic, complete) for topic in topics]
        self._graph.add_processor(name, sources, StreamPass)
        return name

    def add_processor(
        self,
        name: str,
        supplier: Callable[[], Processor],
        *parents: str,
        stores: Sequence[str | StoreSpec] = (),
    ) -> str:
        """Send the output of ``parents`` through a processor (``RecordProcessor``, or ``Processor`` for batches).

        Equal keys meet in one task only as they come from a source, or from ``add_repartition``.

        Args:
            name: the node's name; ``forward(..., to=name)`` of a parent sends a record only there.
            supplier: makes the processor, one for each task; a class will do.
            parents: one or more.
            stores: the stores that it may use: names of stores that are in the topology, or descriptions of new ones.

        Returns:
            The node's name.

        Raises:
            TopologyError: a name is taken, a parent or a store is not in the topology, there is no parent, or one is
                named twice.
        """
        self._check_parents(name, parents)
        self._graph.add_processor(name, parents, supplier)
        self._graph.use(name, stores)
        return name

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor,
        *parents: str,
        produced: Produced | None = None,
        topics: Collection[str] = (),
    ) -> str:
        """Write the output of ``parents`` to a topic, or each record to a topic that a function chooses.

        Args:
            name: the node's name.
            topic, topics: as in ``KStream.to``.
            parents: one or more.
            produced: the options for writing.

        Returns:
            The node's name.

        Raises:
            TopologyError: the name is taken, a parent is not in the topology, there is none, a serde is missing, or
                there is a function without topics.
        """
        self._check_parents(name, parents)
        produced = produced or Produced()
        described = replace(
            produced,
            key_serde=produced.key_serde or self._graph.key_serde,
            value_serde=produced.value_serde or self._graph.value_serde,
            name=name,
        )
        return add_sink(self._graph, parents, topic, topics, described)

    def add_repartition(
        self,
        name: str,
        *parents: str,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
    ) -> str:
        """Send the output of ``parents`` to the tasks of the records' keys, by the topic ``<name>-repartition``.

        In Kafka Streams that is a sink and a source with a topic of your own between them. A record without a key is
        dropped and counted.

        Args:
            name: the name of the node that the records come out of again.
            parents: one or more.
            key_serde, value_serde: the serdes with which they travel; the builder's unless given.

        Returns:
            The node's name.

        Raises:
            TopologyError: the name is taken, a parent is not in the topology, there is none, or a serde is missing.
        """
        self._check_parents(name, parents)
        key, value = key_serde or self._graph.key_serde, value_serde or self._graph.value_serde
        if key is None or value is None:
            missing = "key_serde" if key is None else "value_serde"
            raise MissingSerdeError(
                f"repartition {name!r} does not know how records become bytes: give {missing}=... there, or to the "
                "TopologyBuilder"
            )
        self._graph.add_processor(f"{name}-filter", parents, DropNullKeys)
        self._graph.add_internal_topic(f"{name}-repartition", f"{name}-sink", name, [f"{name}-filter"], (key, value))
        return name

    def connect(self, processor: str, *stores: str) -> None:
        """Let a processor use stores that are in the topology.

        Raises:
            TopologyError: there is no such processor or store.
        """
        self._graph.connect(processor, *stores)

    def _read(self, name: str, topic: str, consumed: Consumed) -> str:
        self._graph.add(SourceNode(name, topic=topic, consumed=replace(consumed, name=name), stream=True))
        return name

    def _check_parents(self, name: str, parents: Sequence[str]) -> None:
        if not parents:
            raise TopologyError(f"node {name!r} has no parent, so no record reaches it; name at least one")
        twice = next((parent for parent in parents if parents.count(parent) > 1), None)
        if twice is not None:
            raise TopologyError(f"node {name!r} names the parent {twice!r} twice; each record reaches it once, so once")

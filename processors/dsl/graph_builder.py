"""The common part of the builders of the DSL and the Processor API: stores for the user's processors, and ``build``."""

from collections.abc import Callable
from dataclasses import replace

from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.processor import Processor
from millpond.processors.runtime.topology import Topology
from millpond.stores.specs.store_spec import StoreSpec


class GraphBuilder:
    """Builds a graph."""

    def __init__(self, graph: TopologyGraph) -> None:
        self._graph = graph

    def add_state_store(self, spec: StoreSpec, *processors: str) -> str:
        """Add a store for your own processors, which name it where they are added (``stores=[name]``).

        Args:
            spec: the store.
            processors: the names of processors that are there already and may use it.

        Returns:
            Its name.

        Raises:
            TopologyError: the name is taken, or there is no such processor.
        """
        self._graph.add_store(spec, *processors)
        return spec.name

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Processor],
        consumed: Consumed | None = None,
        *,
        name: str | None = None,
    ) -> str:
        """Add a store that your own processor fills from a topic, and that every task has in full, for any key.

        The processor gets all records of the topic in every task, uses no other store, and forwards to nobody. Others
        name the store where they are added (``stores=[name]``), and only read it.

        Args:
            spec: the store.
            topic: the topic.
            supplier: makes the processor, one for each task; a class will do.
            consumed: the options for reading the topic.
            name: the processor's name.

        Returns:
            The store's name.

        Raises:
            TopologyError: a name is taken, or the topic is already read.

        >>> from millpond.processors import RecordProcessor, StreamsBuilder, TopologyDriver
        >>> from millpond.stores import STRING, StoreKind, StoreSpec
        >>> class Towns(RecordProcessor):
        ...     def process_record(self, key, value, timestamp):
        ...         self.context.store("towns").put(key, value.title())
        >>> class Greet(RecordProcessor):
        ...     def process_record(self, key, value, timestamp):
        ...         self.forward(key, f"Hello, {self.context.store('towns').get(value)}", timestamp)
        >>> builder = StreamsBuilder(value_serde="string")
        >>> towns = builder.add_global_store(StoreSpec("towns", StoreKind.KEY_VALUE, STRING, STRING), "codes", Towns)
        >>> builder.stream("visits").process(Greet, stores=[towns]).to("greetings")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("codes", "BTH", "bath", timestamp=1)
        ...     driver.pipe("visits", "Ada", "BTH", timestamp=2)
        ...     driver.read("greetings")
        [Record(key='Ada', value='Hello, Bath', timestamp=2)]
        """
        source = self._graph.new_name("KSTREAM-SOURCE-")
        node = name or self._graph.new_name("KTABLE-SOURCE-")
        self._graph.add_global_store(spec, topic, self._complete(consumed), source, node, supplier)
        return spec.name

    def build(self) -> Topology:
        """Return the finished topology.

        Raises:
            TopologyError: the topology makes no sense; the message says where.
        """
        return self._graph.build()

    def _complete(self, consumed: Consumed | None) -> Consumed:
        consumed = consumed or Consumed()
        return replace(
            consumed,
            key_serde=consumed.key_serde or self._graph.key_serde,
            value_serde=consumed.value_serde or self._graph.value_serde,
        )

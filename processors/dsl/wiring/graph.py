"""The graph while it is being built: names are checked as nodes are added, and what has been built is never touched.

Rule of this module: nodes and table configurations are frozen. A change puts a new one in the old one's place, so the
graph always holds what ``build`` would return, and what it has returned stays as it is. Only what depends on the whole
graph waits for ``build`` (``at_build``), which makes it of a copy.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

from millpond.errors import DuplicateNameError, TopologyError, UnknownNameError
from millpond.processors.options.order import Order
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.options.windows import Windows
from millpond.processors.runtime.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millpond.processors.runtime.processor import Processor
from millpond.processors.runtime.subtopology import connected_parts
from millpond.processors.runtime.topology import Topology
from millpond.processors.tables.config import TableConfig
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.terms import Terms

T = TypeVar("T")

TableProcessorMaker = Callable[[TableConfig], Processor]
"""Makes a processor that needs to know how its table is configured."""


class TopologyGraph:
    """The nodes, stores and tables added so far.

    Args:
        key_serde, value_serde: used wherever no other serde is known.
        upgrade_from: the release whose formats internal topics must still be written in; None for this one's.
        optimize: whether operators may share what they would otherwise keep twice.
        order: the order in which tasks take the records of a micro-batch.

    Attributes:
        windows: by node, the windows of the aggregations, for operators below that ask when a window closes.
        tables: by node, the configuration of each table.
        joins: by node, the types of the joins of tables; rows of stores below depend on joins without a store.
        nodes: the nodes by name, parents before children.
        stores: the stores by name.
        internal_topics: the repartition topics.
    """

    def __init__(
        self,
        *,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        upgrade_from: str | None = None,
        optimize: bool = False,
        order: Order = Order.TIME,
    ) -> None:
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.upgrade_from = upgrade_from
        self.optimize = optimize
        self._order = order
        self.windows: dict[str, Windows] = {}
        self.tables: dict[str, TableConfig] = {}
        self.joins: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreSpec] = {}
        self.internal_topics: set[str] = set()
        self._table_processors: dict[str, dict[str, TableProcessorMaker]] = {}
        self._shared: dict[Hashable, Any] = {}
        self._at_build: list[Callable[[TopologyGraph], None]] = []
        self._index = 0

    def new_name(self, prefix: str) -> str:
        """Return an unused name: the prefix and a running number of ten digits."""
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        return name

    def add(self, node: Node) -> None:
        """Add a node and connect it to its parents.

        Raises:
            TopologyError: the name is taken, a parent is unknown, or a topic has two readers.
        """
        if node.name in self.nodes:
            raise DuplicateNameError(
                f"the topology already has a node called {node.name!r}; give this one another name"
            )
        for parent in node.parents:
            if parent not in self.nodes:
                raise UnknownNameError(f"node {node.name!r} names the parent {parent!r}, which does not exist (yet)")
            self._check_parent(node.name, self.nodes[parent])
        if isinstance(node, SourceNode):
            self.check_unread(node.topic)
        self.nodes[node.name] = node
        self._add_child(node.name, node.parents)

    def _add_child(self, name: str, parents: Iterable[str]) -> None:
        for parent in parents:
            node = self.nodes[parent]
            self.nodes[parent] = replace(node, children=(*node.children, name))

    def _check_parent(self, node: str, parent: Node) -> None:
        if isinstance(parent, SinkNode):
            raise TopologyError(
                f"node {node!r} names the parent {parent.name!r}, which is a sink: nothing comes out of it; name what "
                f"comes before it ({', '.join(map(repr, parent.parents))})"
            )
        if self._is_broadcast(parent.parents) or (self._is_broadcast([parent.name]) and parent.children):
            raise TopologyError(
                f"node {node!r} names the parent {parent.name!r}, which is there for a global store, in every task, so "
                "nothing else may come out of it; read the store: name it in stores=[...] of another processor"
            )

    def add_processor(self, name: str, parents: Iterable[str], supplier: Callable[[], Processor]) -> None:
        """Add a node that runs the processor that ``supplier`` makes."""
        self.add(ProcessorNode(name, tuple(parents), supplier=supplier))

    def move_processor(self, name: str, *parents: str) -> None:
        """Give a processor other parents."""
        node = self.nodes[name]
        for parent in node.parents:
            old = self.nodes[parent]
            self.nodes[parent] = replace(old, children=tuple(child for child in old.children if child != name))
        self.nodes[name] = replace(node, parents=parents)
        self._add_child(name, parents)

    def replace_processor(self, name: str, supplier: Callable[[], Processor], *stores: str) -> None:
        """Make a node run the processor that ``supplier`` makes, with these stores in place of its own."""
        node = self.nodes[name]
        assert isinstance(node, ProcessorNode)
        self.nodes[name] = replace(node, supplier=supplier, stores=())
        self.connect(name, *stores)

    @contextmanager
    def before(self, node: str) -> Iterator[None]:
        """Have nodes that are added meanwhile come before ``node``, and so take their records first at equal times."""
        known = list(self.nodes)
        yield
        place = known.index(node)
        added = [name for name in self.nodes if name not in known]
        self.nodes = {name: self.nodes[name] for name in (*known[:place], *added, *known[place:])}

    def add_table(self, node: str, config: TableConfig) -> None:
        """Note that the updates of ``node`` make a table; the node itself may be added later."""
        self.tables[node] = config
        self._table_processors[node] = {}

    def add_table_processor(self, name: str, parents: Iterable[str], make: TableProcessorMaker, table: str) -> None:
        """Add a node whose processor is made with the configuration that ``table`` has when the topology is built."""
        self.add_processor(name, parents, partial(make, self.tables[table]))
        self._table_processors[table][name] = make

    def change_table(self, node: str, **changes: Any) -> None:
        """Configure a table anew; ``changes`` are attributes of ``TableConfig``."""
        config = self.tables[node] = replace(self.tables[node], **changes)
        for name, make in self._table_processors[node].items():
            processor = self.nodes[name]
            assert isinstance(processor, ProcessorNode)
            self.nodes[name] = replace(processor, supplier=partial(make, config))

    def add_internal_topic(
        self, topic: str, sink: str, source: str, parents: Iterable[str], serdes: tuple[SerdeLike, SerdeLike]
    ) -> None:
        """Add a repartition topic, the node that writes it and the node that reads it back."""
        self.internal_topics.add(topic)
        self.add(SinkNode(sink, tuple(parents), topic=topic, produced=Produced(*serdes, name=sink)))
        self.add(SourceNode(source, topic=topic, consumed=Consumed(*serdes, name=source)))

    def sources_of(self, node: str) -> list[SourceNode]:
        """Return the nodes whose records become those that come out of ``node``, in its tasks."""
        above = {node: self.nodes[node]}
        waiting = [*above.values()]
        while waiting:
            parents = {name: self.nodes[name] for name in waiting.pop().parents if name not in above}
            above |= parents
            waiting += parents.values()
        return [found for found in above.values() if isinstance(found, SourceNode)]

    def place_without_window(self, source: str) -> None:
        """Send a source's records, whose keys are windowed, to the tasks of their keys without the windows."""
        node = self.nodes[source]
        assert isinstance(node, SourceNode)
        self.nodes[source] = replace(node, without_window=True)

    def reader(self, topic: str) -> SourceNode | None:
        """Return the node that reads ``topic``."""
        return next((n for n in self.nodes.values() if isinstance(n, SourceNode) and n.topic == topic), None)

    def check_unread(self, topic: str) -> None:
        """Refuse a topic that is read already.

        Raises:
            TopologyError: it is.
        """
        reader = self.reader(topic)
        if reader is not None:
            raise TopologyError(f"topic {topic!r} is already read by {reader.name!r}; use that one twice instead")

    def add_store(self, spec: StoreSpec, *nodes: str) -> None:
        """Add a store and connect it to ``nodes``.

        Raises:
            TopologyError: the name is taken by another store.
        """
        if spec.name in self.stores:
            users = [node.name for node in self.nodes.values() if spec.name in node.stores]
            raise DuplicateNameError(
                f"the topology already has a store called {spec.name!r}, used by {users or 'nobody yet'}; give the one "
                f"for {list(nodes) or 'your processors'} another name"
            )
        self.stores[spec.name] = spec.with_terms()
        for node in nodes:
            self.connect(node, spec.name)

    def add_global_store(
        self, spec: StoreSpec, topic: str, consumed: Consumed, source: str, node: str, supplier: Callable[[], Processor]
    ) -> None:
        """Add a store that a processor fills from a topic of which every task gets all.

        Raises:
            TopologyError: a name is taken, or the topic is already read.
        """
        self.add(SourceNode(source, topic=topic, consumed=consumed, broadcast=True))
        self.add_processor(node, [source], supplier)
        self.add_store(spec, node)

    def use(self, node: str, stores: Iterable[str | StoreSpec]) -> None:
        """Let ``node`` use stores: names of stores in the graph, and descriptions of new ones."""
        for store in stores:
            if isinstance(store, StoreSpec):
                self.add_store(store, node)
            else:
                self.connect(node, store)

    def connect(self, node: str, *stores: str) -> None:
        """Let ``node`` use stores that are in the graph.

        Raises:
            TopologyError: there is no such processor or store, or the processor fills a global store.
        """
        for store in stores:
            found = self.nodes.get(node)
            if not isinstance(found, ProcessorNode):
                raise TopologyError(
                    f"store {store!r} cannot be connected to {node!r}, which is "
                    f"{'no processor; name one' if found else 'not in the topology (yet); add the processor first'}"
                )
            if store not in self.stores:
                raise UnknownNameError(f"node {node!r} uses store {store!r}, which was never added")
            if found.stores and self._is_broadcast(found.parents):
                raise TopologyError(
                    f"node {node!r} fills the global store {found.stores[0]!r} in every task, so it can use no other "
                    f"store; read {store!r} in a processor of its own"
                )
            if store not in found.stores:
                self.nodes[node] = replace(found, stores=(*found.stores, store))

    def _is_broadcast(self, names: Iterable[str]) -> bool:
        """Return whether one of these nodes reads a topic that every task gets in full."""
        return any(isinstance(node := self.nodes[name], SourceNode) and node.broadcast for name in names)

    def connected(self, one: str, other: str) -> bool:
        """Return whether two nodes are in the same part of the graph as it stands, and so in the same tasks."""
        parts = connected_parts(self.nodes, self.stores, frozenset(self.internal_topics))
        return any(one in part.nodes and other in part.nodes for part in parts)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of ``make`` from the first call with ``key``: nodes that several operators share."""
        if key not in self._shared:
            self._shared[key] = make()
        shared: T = self._shared[key]
        return shared

    def at_build(self, change: Callable[["TopologyGraph"], None]) -> None:
        """Let ``build`` make a change that depends on all that is in the graph by then, to the copy that it gives."""
        self._at_build.append(change)

    def build(self) -> Topology:
        """Return the finished topology, which later additions do not touch."""
        graph = self._copy()
        for change in self._at_build:
            change(graph)
        graph._note_joins()
        return Topology(graph.nodes, graph.stores, graph.internal_topics, self._order)

    def _note_joins(self) -> None:
        """Note with the stores of operators the types of the joins above them whose results are kept nowhere else."""
        owners = {config.store: [node] for node, config in self.tables.items() if config.store is not None}
        for name, spec in self.stores.items():
            if spec.layout is not None and name not in owners:
                owners[name] = [node.name for node in self.nodes.values() if name in node.stores]
        for store, nodes in owners.items():
            types = self._joins_above(nodes)
            if types:
                terms = self.stores[store].terms or Terms(maker="an operator on tables")
                joined = ("tables_joined", ", ".join(types))
                self.stores[store] = replace(self.stores[store], terms=replace(terms, fixed=(*terms.fixed, joined)))

    def _joins_above(self, nodes: Iterable[str]) -> list[str]:
        """Return the types of the joins from which records come to nodes without a table with a store in between."""
        sinks = {node.topic: node.name for node in self.nodes.values() if isinstance(node, SinkNode)}
        found: list[str] = []
        seen: set[str] = set()
        pending = [parent for node in nodes for parent in self._before(node, sinks)]
        while pending:
            name = pending.pop()
            kept = name in self.tables and self.tables[name].store is not None
            if name not in seen and not kept:
                seen.add(name)
                found += [self.joins[name]] if name in self.joins else []
                pending += self._before(name, sinks)
        return sorted(found)

    def _before(self, name: str, sinks: Mapping[str, str]) -> Iterable[str]:
        """Return the nodes from which records come to a node, also through repartition topics."""
        node = self.nodes[name]
        through = sinks.get(node.topic) if isinstance(node, SourceNode) else None
        return node.parents if through is None else [through]

    def _copy(self) -> Self:
        """Return a graph that may be changed without changing this one; changes for ``build`` are left out."""
        graph = type(self)(
            key_serde=self.key_serde,
            value_serde=self.value_serde,
            upgrade_from=self.upgrade_from,
            optimize=self.optimize,
            order=self._order,
        )
        graph.windows, graph.tables, graph.joins = dict(self.windows), dict(self.tables), dict(self.joins)
        graph.nodes, graph.stores = dict(self.nodes), dict(self.stores)
        graph.internal_topics = set(self.internal_topics)
        graph._table_processors = {table: dict(made) for table, made in self._table_processors.items()}
        graph._shared, graph._index = dict(self._shared), self._index
        return graph

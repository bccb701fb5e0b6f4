"""The graph of sources, processors, sinks and stores that a builder makes and that tasks run.

The graph splits into sub-topologies: what is connected by edges or by shared stores. Between sub-topologies records
travel through internal (repartition) topics only. Nodes keep the order in which they were added.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

from millpond.errors import TopologyError
from millpond.processors.options.config import Consumed, Produced
from millpond.processors.options.windows import Windows
from millpond.processors.runtime.processor import Processor
from millpond.stores.specs import StoreSpec


@dataclass
class Node:
    """What sources, processors and sinks have in common."""

    name: str
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)


@dataclass
class SourceNode(Node):
    """Reads the records of one topic.

    Attributes:
        stream: whether they are facts of a stream, not updates of a table.
        broadcast: whether every task needs all of them, not only those of its own keys.
    """

    topic: str = ""
    consumed: Consumed = field(default_factory=Consumed)
    stream: bool = False
    broadcast: bool = False


def _no_processor() -> Processor:
    raise TopologyError("a processor node needs a supplier")


@dataclass
class ProcessorNode(Node):
    """Runs the processor that ``supplier`` makes, one for each task."""

    supplier: Callable[[], Processor] = _no_processor


@dataclass
class SinkNode(Node):
    """Writes records to one topic."""

    topic: str = ""
    produced: Produced = field(default_factory=Produced)


@dataclass(frozen=True)
class Subtopology:
    """A connected part of a topology; one task of it runs for each partition.

    Attributes:
        index: its position in ``Topology.subtopologies``; parts that feed others through repartition topics come first.
        nodes: by name, parents before children.
        stores: what its processors keep, by store name.
        internal_topics: repartition topics of the whole topology.
    """

    index: int
    nodes: Mapping[str, Node]
    stores: Mapping[str, StoreSpec]
    internal_topics: frozenset[str]

    @cached_property
    def sources(self) -> dict[str, SourceNode]:
        """The source nodes by topic."""
        return {node.topic: node for node in self.nodes.values() if isinstance(node, SourceNode)}

    @cached_property
    def sinks(self) -> dict[str, SinkNode]:
        """The sink nodes by topic."""
        return {node.topic: node for node in self.nodes.values() if isinstance(node, SinkNode)}

    def separable(self, name: str) -> bool:
        """Whether a batch may go to the children of ``name`` one after the other.

        True if nobody could tell the difference from record after record: no two children lead to the same node, use
        the same store or write the same topic, and no child uses a store that is also used below it. Whatever happens
        inside one child's part of the graph is that child's own business.
        """
        taken: set[tuple[str, str]] = set()
        for child in self.nodes[name].children:
            claims = self._claims(child)
            own = {("store", store) for store in self.nodes[child].stores}
            below = set().union(*map(self._claims, self.nodes[child].children))
            if taken & claims or own & below:
                return False
            taken |= claims
        return True

    def _claims(self, name: str) -> set[tuple[str, str]]:
        """What only ``name`` and the nodes below it may touch if a batch is to pass them as a whole."""
        claims: set[tuple[str, str]] = set()
        waiting = [name]
        while waiting:
            node = self.nodes[waiting.pop()]
            if ("node", node.name) not in claims:
                claims.add(("node", node.name))
                claims.update(("store", store) for store in node.stores)
                if isinstance(node, SinkNode):
                    claims.add(("topic", node.topic))
                waiting.extend(node.children)
        return claims


class Topology:
    """A finished graph. ``StreamsBuilder.build`` makes it; drivers run it.

    Attributes:
        nodes: all nodes by name.
        stores: all stores by name.
        internal_topics: the repartition topics.
        subtopologies: the connected parts; what writes a repartition topic comes before what reads it.
        loops: the repartition topics for which that order is impossible: what a part writes comes back to it, because
            both ends of the way use the same store.

    Raises:
        TopologyError: a topic is both written and read.
    """

    def __init__(
        self, nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec], internal_topics: Iterable[str]
    ) -> None:
        self.nodes = dict(nodes)
        self.stores = dict(stores)
        self.internal_topics = frozenset(internal_topics)
        _check_topics(self.nodes, self.internal_topics)
        self.subtopologies, self.loops = _order(_split(self.nodes, self.stores, self.internal_topics))

    @cached_property
    def sources(self) -> dict[str, SourceNode]:
        """The sources that read the user's topics, by topic."""
        return {
            node.topic: node
            for node in self.nodes.values()
            if isinstance(node, SourceNode) and node.topic not in self.internal_topics
        }

    @cached_property
    def sinks(self) -> dict[str, SinkNode]:
        """The sinks that write the user's topics, by topic."""
        return {
            node.topic: node
            for node in self.nodes.values()
            if isinstance(node, SinkNode) and node.topic not in self.internal_topics
        }

    def describe(self) -> str:
        """The topology as text: sub-topologies, stores (kind, backend, versioned or not), repartition topics."""
        # The module reads this one's classes.
        from millpond.processors.runtime.describe import as_text

        return as_text(self)

    def mermaid(self) -> str:
        """The topology as a Mermaid flowchart, which Markdown viewers draw."""
        from millpond.processors.runtime.describe import as_mermaid

        return as_mermaid(self)

    @property
    def fingerprint(self) -> str:
        """A short hash of the stores, their layouts and where they sit: equal as long as state can be carried over.

        A plain store and its timestamped twin are the same here: either takes over the other's rows (KIP-258).
        """
        digest = blake2b(digest_size=8)
        for part in self.subtopologies:
            for name, spec in sorted(part.stores.items()):
                kind = spec.kind.value.removeprefix("timestamped-")
                layout = "" if spec.layout is None else f"/{spec.layout.name}/{spec.layout.version}"
                digest.update(
                    f"{part.index}/{name}/{kind}/{spec.key_serde.name}/{spec.value_serde.name}{layout}\n".encode()
                )
        return digest.hexdigest()


def _split(
    nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec], internal_topics: frozenset[str]
) -> list[Subtopology]:
    """The connected parts, in order of their first node. Each part that uses a global table has it as a whole."""
    group = {name: name for name in nodes}
    shared = _global_tables(nodes)

    def find(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    users: dict[str, str] = {}
    for node in nodes.values():
        own = [store for store in node.stores if store not in shared]
        for other in (*node.parents, *(users.setdefault(store, node.name) for store in own)):
            group[find(other)] = find(node.name)
    parts: dict[str, dict[str, Node]] = {}
    for node in nodes.values():
        parts.setdefault(find(node.name), {})[node.name] = node
    used = {store for node in nodes.values() for store in node.stores if node.name not in shared.get(store, ())}
    for store, table in shared.items():
        if store in used:
            del parts[find(table[0])]
    for key, members in parts.items():
        needed = {name for node in members.values() for store in node.stores for name in shared.get(store, ())}
        parts[key] = {name: node for name, node in nodes.items() if name in needed or name in members}
    return [
        Subtopology(
            index,
            members,
            {store: stores[store] for node in members.values() for store in node.stores},
            internal_topics,
        )
        for index, members in enumerate(parts.values())
    ]


def _global_tables(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """By the stores of global tables, the nodes that keep them current."""
    sources = [node for node in nodes.values() if isinstance(node, SourceNode) and node.broadcast]
    return {
        store: [source.name, child] for source in sources for child in source.children for store in nodes[child].stores
    }


def _order(parts: Sequence[Subtopology]) -> tuple[tuple[Subtopology, ...], frozenset[str]]:
    """Parts that write a repartition topic before those that read it, and the topics where that cannot be."""
    ordered: list[Subtopology] = []
    loops: set[str] = set()
    waiting = list(parts)
    while waiting:
        written_later = {topic for part in waiting for topic in part.sinks if topic in part.internal_topics}
        ready = [part for part in waiting if not written_later & part.sources.keys()] or waiting[:1]
        for part in ready:
            loops |= written_later & part.sources.keys()
            ordered.append(replace(part, index=len(ordered)))
            waiting.remove(part)
    return tuple(ordered), frozenset(loops)


def _check_topics(nodes: Mapping[str, Node], internal_topics: frozenset[str]) -> None:
    """Refuse a topic of the user's that is both written and read: what is written leaves the topology."""
    readers = {node.topic: node.name for node in nodes.values() if isinstance(node, SourceNode)}
    for sink in nodes.values():
        if not isinstance(sink, SinkNode) or sink.topic in internal_topics or sink.topic not in readers:
            continue
        reader = readers[sink.topic]
        path = _path(nodes, readers, reader, sink.name)
        if path:
            raise TopologyError(f"the topology has a cycle: topic {sink.topic!r} -> {' -> '.join(path)} -> the topic")
        raise TopologyError(
            f"topic {sink.topic!r} is written by {sink.name!r} and read by {reader!r} of the same topology; go on from "
            "the stream that is written (repartition() moves its records), or make two topologies"
        )


def _path(nodes: Mapping[str, Node], readers: Mapping[str, str], start: str, stop: str) -> list[str]:
    """The nodes of a way from ``start`` to ``stop``, through repartition topics too; none if there is no way."""
    waiting, seen = [[start]], {start}
    while waiting:
        path = waiting.pop(0)
        node = nodes[path[-1]]
        if node.name == stop:
            return path
        behind = [readers[node.topic]] if isinstance(node, SinkNode) and node.topic in readers else []
        for name in (*node.children, *behind):
            if name not in seen:
                seen.add(name)
                waiting.append([*path, name])
    return []


class TopologyGraph:
    """The graph while it is being built: names are checked as nodes come in.

    Attributes:
        upgrade_from: the release whose formats internal topics must still be written in; None for this one's.
        windows: by node, the windows of the aggregations, for operators below that ask when a window closes.
        optimize: whether operators may share what they would otherwise keep twice.
    """

    def __init__(self, upgrade_from: str | None = None, *, optimize: bool = False) -> None:
        self.upgrade_from = upgrade_from
        self.optimize = optimize
        self.windows: dict[str, Windows] = {}
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreSpec] = {}
        self.internal_topics: set[str] = set()
        self._index = 0

    def new_name(self, prefix: str) -> str:
        """A name nobody has: the prefix and a running number of ten digits."""
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        return name

    def add(self, node: Node) -> None:
        """Take a node in and tie it to its parents.

        Raises:
            TopologyError: the name is taken, a parent is unknown, or a topic has two readers.
        """
        if node.name in self.nodes:
            raise TopologyError(f"the topology already has a node called {node.name!r}; give this one another name")
        for parent in node.parents:
            if parent not in self.nodes:
                raise TopologyError(f"node {node.name!r} names the parent {parent!r}, which does not exist (yet)")
        if isinstance(node, SourceNode):
            reader = self.reader(node.topic)
            if reader is not None:
                raise TopologyError(
                    f"topic {node.topic!r} is already read by {reader.name!r}; use that stream or table twice instead"
                )
        self.nodes[node.name] = node
        for parent in node.parents:
            self.nodes[parent].children.append(node.name)

    def reader(self, topic: str) -> SourceNode | None:
        """The node that reads ``topic``."""
        return next((n for n in self.nodes.values() if isinstance(n, SourceNode) and n.topic == topic), None)

    def add_store(self, spec: StoreSpec, *nodes: str) -> None:
        """Take a new store in and connect it to ``nodes``.

        Raises:
            TopologyError: the name is taken by another store.
        """
        if spec.name in self.stores:
            users = [node.name for node in self.nodes.values() if spec.name in node.stores]
            raise TopologyError(
                f"the topology already has a store called {spec.name!r}, used by {users or 'nobody yet'}; give the one "
                f"for {list(nodes) or 'your processors'} another name"
            )
        self.stores[spec.name] = spec
        for node in nodes:
            self.connect(node, spec.name)

    def connect(self, node: str, *stores: str) -> None:
        """Let ``node`` use stores that are in the graph."""
        for store in stores:
            if store not in self.stores:
                raise TopologyError(f"node {node!r} uses store {store!r}, which was never added")
            if store not in self.nodes[node].stores:
                self.nodes[node].stores.append(store)

    def connected(self, one: str, other: str) -> bool:
        """Whether two nodes are in the same part of the graph as it stands, and so in the same tasks."""
        parts = _split(self.nodes, self.stores, frozenset(self.internal_topics))
        return any(one in part.nodes and other in part.nodes for part in parts)

    def build(self) -> Topology:
        """The finished topology: a copy, which later additions do not touch."""
        nodes = {
            name: replace(node, parents=[*node.parents], children=[*node.children], stores=[*node.stores])
            for name, node in self.nodes.items()
        }
        return Topology(nodes, self.stores, self.internal_topics)

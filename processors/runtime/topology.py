"""A finished topology: the graph that ``build`` of a builder makes and drivers run. It never changes.

Nodes keep the order in which they were added.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

from millpond.errors import TopologyError
from millpond.processors.options.order import Order
from millpond.processors.runtime.describe import as_mermaid, as_text
from millpond.processors.runtime.nodes import Node, SinkNode, SourceNode
from millpond.processors.runtime.subtopology import connected_parts, in_order
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.terms import Term, Terms


class Topology:
    """A finished graph. ``build`` of ``StreamsBuilder`` and ``TopologyBuilder`` makes it; drivers run it.

    Attributes:
        nodes: all nodes by name.
        stores: all stores by name.
        internal_topics: the repartition topics.
        subtopologies: the connected parts; writers of a repartition topic come before its readers.
        loops: the repartition topics for which that order is impossible: records of a part come back to it, because
            both ends of the path use the same store.
        order: the order in which tasks take the records of a micro-batch.

    Raises:
        TopologyError: a topic is both written and read.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        stores: Mapping[str, StoreSpec],
        internal_topics: Iterable[str],
        order: Order = Order.TIME,
    ) -> None:
        self.nodes = dict(nodes)
        self.stores = dict(stores)
        self.internal_topics = frozenset(internal_topics)
        _check_topics(self.nodes, self.internal_topics)
        self.order = order
        parts = connected_parts(self.nodes, self.stores, self.internal_topics, order)
        self.subtopologies, self.loops = in_order(parts)

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
        """Return the topology as text: sub-topologies, stores (kind, backend, versioned or not), repartition topics."""
        return as_text(self.subtopologies, self.internal_topics)

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart, which Markdown viewers draw."""
        return as_mermaid(self.subtopologies, self.internal_topics)

    def of_verb(self, name: str, fixed: Mapping[str, Term], unit: TimeUnit) -> Self:
        """Return the same topology with nodes and stores named for a verb.

        Counters and messages call all nodes by the verb's name, followed by the input where a node gets the rows of
        one of several.

        Args:
            name: the name of the verb.
            fixed: the parameters of the verb on which the rows of all stores depend.
            unit: the unit of the topology's times.
        """
        stores = {
            store: replace(spec, terms=(spec.terms or Terms()).of_verb(name, fixed, unit))
            for store, spec in self.stores.items()
        }
        shown = _shown(name, self.nodes, self.internal_topics)
        nodes = {node: replace(found, shown=shown[node]) for node, found in self.nodes.items()}
        return type(self)(nodes, stores, self.internal_topics, self.order)

    @property
    def fingerprint(self) -> str:
        """A short hash of the stores, their layouts and sub-topologies; equal as long as state can be carried over.

        A plain store and its timestamped counterpart count as the same: either takes over the other's rows (KIP-258).
        """
        digest = blake2b(digest_size=8)
        for part in self.subtopologies:
            for name, spec in sorted(part.stores.items()):
                kind = spec.kind.family
                layout = "" if spec.layout is None else f"/{spec.layout.name}/{spec.layout.version}"
                digest.update(
                    f"{part.index}/{name}/{kind}/{spec.key_serde.name}/{spec.value_serde.name}{layout}\n".encode()
                )
        return digest.hexdigest()


def _shown(verb: str, nodes: Mapping[str, Node], internal_topics: frozenset[str]) -> dict[str, str]:
    """Return the names by which the nodes of a verb are shown."""
    topics: dict[str, set[str]] = {name: set() for name in nodes}
    sources = [node for node in nodes.values() if isinstance(node, SourceNode)]
    inputs = [source for source in sources if source.topic not in internal_topics]
    for source in inputs:
        waiting = [source.name]
        while waiting:
            node = nodes[waiting.pop()]
            if source.topic in topics[node.name]:
                continue
            topics[node.name].add(source.topic)
            waiting += node.children
            if isinstance(node, SinkNode):
                waiting += [behind.name for behind in sources if behind.topic == node.topic]
    return {
        name: f"{verb}.{next(iter(found))}" if len(found) == 1 and len(inputs) > 1 else verb
        for name, found in topics.items()
    }


def _check_topics(nodes: Mapping[str, Node], internal_topics: frozenset[str]) -> None:
    """Refuse a user's topic that is both written and read: written records leave the topology."""
    readers = {node.topic: node.name for node in nodes.values() if isinstance(node, SourceNode)}
    _check_internal_topics(nodes, internal_topics)
    for sink in nodes.values():
        if not isinstance(sink, SinkNode) or sink.topic in internal_topics or sink.topic not in readers:
            continue
        reader = readers[sink.topic]
        path = _path(nodes, readers, reader, sink.name)
        if path:
            raise TopologyError(f"the topology has a cycle: topic {sink.topic!r} -> {' -> '.join(path)} -> the topic")
        raise TopologyError(
            f"topic {sink.topic!r} is written by {sink.name!r} and read by {reader!r} of the same topology; continue "
            "from what is written (repartition(), or add_repartition() of a TopologyBuilder, moves the records), or "
            "make two topologies"
        )


def _check_internal_topics(nodes: Mapping[str, Node], internal_topics: frozenset[str]) -> None:
    """Refuse a sink of the user's that is called like a repartition topic: its records would come in there."""
    writers: dict[str, str] = {}
    for node in nodes.values():
        if isinstance(node, SinkNode) and node.topic in internal_topics:
            other = writers.setdefault(node.topic, node.name)
            if other != node.name:
                raise TopologyError(
                    f"topic {node.topic!r} is a repartition topic of the topology, but {other!r} and {node.name!r} "
                    "write it; give the sink, or the repartition, another name"
                )


def _path(nodes: Mapping[str, Node], readers: Mapping[str, str], start: str, stop: str) -> list[str]:
    """Return the nodes on a path from ``start`` to ``stop``, also through repartition topics; empty without one."""
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

"""The parts of a topology, connected by edges or by shared stores, and the order in which they run.

Records travel between parts only through internal (repartition) topics.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from millpond.processors.options.order import Order
from millpond.processors.runtime.nodes import Node, SinkNode, SourceNode
from millpond.processors.runtime.promises import Promises
from millpond.stores.specs.store_spec import StoreSpec

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Subtopology:
    """A connected part of a topology; one task of it runs for each partition.

    Attributes:
        index: its position in ``Topology.subtopologies``; parts that feed others through repartition topics come first.
        nodes: the nodes by name, parents before children.
        stores: the stores of its processors, by name.
        internal_topics: repartition topics of the whole topology.
        derived_topics: repartition topics whose records were made with the help of state, here or further up: of two
            records of a key, the later is the valid one, whatever their timestamps.
        order: the order in which a task takes the records of a micro-batch.
    """

    index: int
    nodes: Mapping[str, Node]
    stores: Mapping[str, StoreSpec]
    internal_topics: frozenset[str]
    derived_topics: frozenset[str] = frozenset()
    order: Order = Order.TIME

    @cached_property
    def sources(self) -> dict[str, SourceNode]:
        """The source nodes by topic."""
        return {node.topic: node for node in self.nodes.values() if isinstance(node, SourceNode)}

    @cached_property
    def sinks(self) -> dict[str, SinkNode]:
        """The sink nodes by topic."""
        return {node.topic: node for node in self.nodes.values() if isinstance(node, SinkNode)}

    @cached_property
    def global_stores(self) -> dict[str, str]:
        """The stores that every task fills with all records of a topic: by name, the node that fills each."""
        return {store: filler for store, (_, filler) in _global_tables(self.nodes).items()}

    @cached_property
    def _found(self) -> dict[Any, tuple[Mapping[str, Promises], Any]]:
        """By what finds it, what has been found last, behind the promises for which it is so."""
        return {}

    def separable(self, name: str, ends: Collection[str] = (), at_flush: Collection[str] = ()) -> bool:
        """Return whether a whole batch may go to the children of ``name`` one after another.

        True if that gives the same results as record by record: no two children lead to the same node, use the same
        store or write the same topic, and no child uses a store that is also used below it. What happens within one
        child's part of the graph does not matter, nor what happens from ``ends`` on, which know the order by positions,
        nor what nodes do ``at_flush``, which only hold records back.
        """
        taken: set[tuple[str, str]] = set()
        for child in self.nodes[name].children:
            claims = self.claims(child, ends, at_flush)
            if taken & claims or not (child in ends or self.takes_whole(child, ends, at_flush)):
                return False
            taken |= claims
        return True

    def takes_whole(self, name: str, ends: Collection[str] = (), at_flush: Collection[str] = ()) -> bool:
        """Return whether ``name`` may see a whole batch before the nodes below, up to ``ends``: none uses its store."""
        below = set().union(*(self.claims(child, ends, at_flush) for child in self.nodes[name].children))
        return below.isdisjoint(("store", store) for store in self.nodes[name].stores)

    def claims(self, name: str, ends: Collection[str] = (), at_flush: Collection[str] = ()) -> set[tuple[str, str]]:
        """Return what only ``name`` and the nodes below, up to ``ends``, may touch if a batch is to pass them whole."""
        claims: set[tuple[str, str]] = set()
        waiting = [name]
        while waiting:
            node = self.nodes[waiting.pop()]
            if node.name in at_flush:
                claims.add(("node", node.name))
            elif node.name not in ends and ("node", node.name) not in claims:
                claims |= self.own_claims(node.name)
                waiting.extend(node.children)
        return claims

    def own_claims(self, name: str) -> set[tuple[str, str]]:
        """Return the node, stores and topic that ``name`` itself touches."""
        node = self.nodes[name]
        claims = {("node", name), *(("store", store) for store in node.stores)}
        return claims | {("topic", node.topic)} if isinstance(node, SinkNode) else claims


def found_once(
    part: Subtopology,
    find: Callable[[Subtopology, Mapping[str, Promises]], _Found],
    promises: Mapping[str, Promises],
) -> _Found:
    """Return what ``find`` finds in a part and in the promises of its operators.

    Tasks of many micro-batches ask for it, and mostly their operators promise the same: then it is found once.
    """
    known = part._found
    before = known.get(find)
    if before is None or before[0] != promises:
        before = known[find] = promises, find(part, promises)
    return cast(_Found, before[1])


def connected_parts(
    nodes: Mapping[str, Node],
    stores: Mapping[str, StoreSpec],
    internal_topics: frozenset[str],
    order: Order = Order.TIME,
) -> list[Subtopology]:
    """Return the connected parts, in order of their first node. Each that uses a global table or store has a copy."""
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
            order=order,
        )
        for index, members in enumerate(parts.values())
    ]


def _global_tables(nodes: Mapping[str, Node]) -> dict[str, tuple[str, str]]:
    """Return the source and the processor that keep each global table or store current, by store."""
    sources = [node for node in nodes.values() if isinstance(node, SourceNode) and node.broadcast]
    return {
        store: (source.name, child) for source in sources for child in source.children for store in nodes[child].stores
    }


def in_order(parts: Sequence[Subtopology]) -> tuple[tuple[Subtopology, ...], frozenset[str]]:
    """Order parts so that writers of a repartition topic come before readers; return topics where this fails, too."""
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
    derived = _derived_topics(ordered)
    return tuple(replace(part, derived_topics=derived) for part in ordered), frozenset(loops)


def _derived_topics(parts: Sequence[Subtopology]) -> frozenset[str]:
    """Return the repartition topics written with the help of state; ``parts`` come before those that they feed."""
    derived: set[str] = set()
    for part in parts:
        if part.stores or derived & part.sources.keys():
            derived |= part.sinks.keys() & part.internal_topics
    return frozenset(derived)

"""The nodes of a sub-topology that records may reach in any order of keys, and where their order must be restored.

Rule of this module: operators are known only by their promises (``Promises``). Where these are not enough, a
node is not in the region.
"""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import TypeAlias

from millpond.processors.runtime.nodes import Node, SinkNode, SourceNode
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.subtopology import Subtopology

Edge: TypeAlias = tuple[str, str]
"""A node in the region and a child that is not."""


class KeyedRegion:
    """The region, from the sources down.

    Args:
        part: the sub-topology.
        promises: the promises of its operators, settled.
        gathering: the nodes that gather, which restore the order of what they get by themselves.

    Attributes:
        nodes: the names of the nodes in the region, sources included; no other node uses one of their stores.
        timed: the nodes that see records only under their own timestamps.
    """

    def __init__(self, part: Subtopology, promises: Mapping[str, Promises], gathering: Collection[str] = ()) -> None:
        self._part = part
        self._gathering = gathering
        self._promises = promises
        self.timed: set[str] = set()
        for node in part.nodes.values():
            if all(parent in self.timed and self._keeps_times(part.nodes[parent]) for parent in node.parents):
                self.timed.add(node.name)
        excluded: set[str] = set()
        self.nodes = self._without(excluded)
        while shared := self._sharing_stores():
            excluded |= shared
            self.nodes = self._without(excluded)

    def reached(self, source: str) -> set[str]:
        """Return the nodes of the region that the records of a source node reach."""
        reached: set[str] = set()
        waiting = [source]
        while waiting:
            name = waiting.pop()
            if name in self.nodes and name not in reached:
                reached.add(name)
                waiting.extend(self._part.nodes[name].children)
        return reached

    def writes(self, name: str) -> set[str]:
        """Return the stores that a node may write."""
        return set(self._part.nodes[name].stores) - self._promises[name].looks_up.keys()

    def gates(self) -> list[list[Edge]] | None:
        """Return the ways out of the region, by gate; each gate restores one order.

        None if two need a common one, or if one would come between the region and a node that gathers: behind a gate,
        results of one record no longer come in its order.
        """
        edges: dict[tuple[str, str], list[Edge]] = {}
        for name in self._part.nodes:
            for child in self._part.nodes[name].children if name in self.nodes else ():
                if child not in self.nodes and child not in self._gathering:
                    node = self._part.nodes[child]
                    behind = ("topic", node.topic) if isinstance(node, SinkNode) else ("node", child)
                    edges.setdefault(behind, []).append((name, child))
        claims = [set().union(*(self._claims(child) for _, child in gate)) for gate in edges.values()]
        gathering = {("node", name) for name in self._gathering}
        if any(one & other for one, other in combinations((gathering, *claims), 2)):
            return None
        return list(edges.values())

    def _without(self, excluded: set[str]) -> set[str]:
        """Return the region if some nodes cannot be in it."""
        inside: set[str] = set()
        for node in self._part.nodes.values():
            may = self._promises[node.name].by_key and node.name not in excluded and self._puts_in_time(node)
            if isinstance(node, SourceNode) or (may and inside.issuperset(node.parents)):
                inside.add(node.name)
        return inside

    def _puts_in_time(self, node: Node) -> bool:
        """Return whether each store with a history that the node writes has the time of the inputs.

        A store with a time to live goes by the times of all keys.
        """
        if any(self._part.stores[name].ttl is not None for name in self.writes(node.name)):
            return False
        histories = [name for name in self.writes(node.name) if self._part.stores[name].history_retention is not None]
        return not histories or node.name in self.timed

    def _keeps_times(self, node: Node) -> bool:
        return isinstance(node, SourceNode) or self._promises[node.name].keeps_records

    def _sharing_stores(self) -> set[str]:
        """Return the nodes in the region that share a store with one outside."""
        outside: set[str] = set()
        for name in self._part.nodes.keys() - self.nodes:
            outside |= self._uses_at_once(name)
        return {name for name in self.nodes if not outside.isdisjoint(self._part.nodes[name].stores)}

    def _uses_at_once(self, name: str) -> set[str]:
        return set() if self._promises[name].at_flush else set(self._part.nodes[name].stores)

    def _claims(self, name: str) -> set[tuple[str, str]]:
        """Return the nodes, stores and topics that records at a node touch at once, there and below."""
        if self._promises[name].at_flush:
            return {("node", name)}
        node = self._part.nodes[name]
        claims = {("node", name), *(("store", store) for store in node.stores)}
        if isinstance(node, SinkNode):
            claims.add(("topic", node.topic))
        return claims.union(*map(self._claims, node.children))

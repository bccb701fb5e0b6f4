"""The freedom that a graph and the promises of its operators leave to a task, in which order it takes records.

A join of two streams gets a batch of one side at a time, and where its inputs alternate, or are made of one stream, a
batch is a record. But it makes no difference when a join processes a record, as long as nobody looks at its results or
its stores. So it may gather: wait for all records of both sides and take them together, in the order of their
positions. All users of one store gather together, and only if every record reaches them with its position, and if
nothing else touches what they and the nodes below them touch.

Rule of this module: the graph decides, and the promises of operators (``Promises``); no record and no store is seen. So
a sub-topology is asked once for all of its tasks (``found_once``).
"""

from collections.abc import Callable, Iterable, Mapping

from millpond.processors.runtime.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.subtopology import Subtopology


def gathering_nodes(part: Subtopology, promises: Mapping[str, Promises]) -> frozenset[str]:
    """Return the nodes that gather; as all promises about it, it is settled before ``init``."""
    groups = {_group(part, name) for name, one in promises.items() if one.gathers}
    return frozenset().union(
        *(
            group
            for group in groups
            if all(promises[name].gathers for name in group)
            and _is_closed(part, group)
            and _have_positions(part, promises, group)
        )
    )


def _group(part: Subtopology, name: str) -> frozenset[str]:
    """Return the nodes that use stores of ``name``."""
    own = set(part.nodes[name].stores)
    return frozenset(node.name for node in part.nodes.values() if own.intersection(node.stores))


def _is_closed(part: Subtopology, group: frozenset[str]) -> bool:
    """Return whether nothing else reaches or touches what ``group`` and the nodes below it touch."""
    claims = set().union(*map(part.claims, group))
    below = {name for kind, name in claims if kind == "node"}
    for node in part.nodes.values():
        if node.name not in below and part.own_claims(node.name) & claims:
            return False
        if node.name in below - group and not below.issuperset(node.parents):
            return False
    return True


def _have_positions(part: Subtopology, promises: Mapping[str, Promises], group: Iterable[str]) -> bool:
    """Return whether all nodes above ``group`` pass on the positions of records."""
    waiting = [parent for name in group for parent in part.nodes[name].parents]
    while waiting:
        node = part.nodes[waiting.pop()]
        if not isinstance(node, SourceNode) and not promises[node.name].keeps_positions:
            return False
        waiting.extend(node.parents)
    return True


def separable_nodes(part: Subtopology, promises: Mapping[str, Promises]) -> frozenset[str]:
    """Return the nodes that pass whole batches to one child after another; it is settled before ``init``."""
    gathering = gathering_nodes(part, promises)
    at_flush = {name for name, one in promises.items() if one.at_flush}
    return frozenset(
        name
        for name, node in part.nodes.items()
        if part.separable(name, gathering, at_flush) or at_flush.issuperset(node.children)
    )


def unordered_topics(part: Subtopology, promises: Mapping[str, Promises]) -> frozenset[str]:
    """Return the source topics whose records, if they have no headers, may come in any order."""
    readers = {topic: only_reader(part, topic, lambda node: promises[node.name]) for topic in part.sources}
    return frozenset(topic for topic, node in readers.items() if node is not None and promises[node.name].unordered)


def filled_for_others(part: Subtopology, promises: Mapping[str, Promises]) -> Mapping[str, str]:
    """Return the stores whose entries may expire, and that other nodes use, by the node that fills each."""
    filled = {name: one.fills for name, one in promises.items() if one.fills is not None}
    users = {store: [node.name for node in part.nodes.values() if store in node.stores] for store in filled.values()}
    return {name: store for name, store in filled.items() if any(user != name for user in users[store])}


def only_reader(
    part: Subtopology, topic: str, promises_of: Callable[[ProcessorNode], Promises]
) -> ProcessorNode | None:
    """Return the only node that takes what ``part`` reads, if the records become one aggregate and nothing else.

    The nodes behind it have no state and lead to no other task.

    Args:
        part: the sub-topology.
        topic: its only source topic.
        promises_of: returns the promises of a node's operator.

    Returns:
        None if there are others.
    """

    def passes_on(node: Node) -> bool:
        """Return whether a node treats each update by itself."""
        if isinstance(node, SinkNode):
            return node.topic not in part.internal_topics
        return isinstance(node, ProcessorNode) and not node.stores and promises_of(node).by_key

    source = part.sources[topic]
    readers = [part.nodes[child] for child in source.children]
    rest = [node for node in part.nodes.values() if node is not source and node not in readers]
    if len(part.sources) > 1 or len(readers) > 1 or source.broadcast or not all(map(passes_on, rest)):
        return None
    (reader,) = readers
    return reader if isinstance(reader, ProcessorNode) else None

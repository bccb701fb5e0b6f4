"""The choice of processors that keep records until the task settles, to process all of them at once.

A join of two streams gets a batch of one side at a time, and where its inputs alternate, or are made of one stream, a
batch is a record. But it makes no difference when a join processes a record, as long as nobody looks at its results or
its stores. So it may wait for all records of both sides and take them together, in the order of their positions.

Rule of this module: the graph decides, and the promises of processors (``Promises.gathers``,
``keeps_positions``). All users of one store gather together, and only if every record reaches them with its position,
and if nothing else touches what they and the nodes below them touch.
"""

from collections.abc import Iterable, Mapping

from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.subtopology import Subtopology


def gathering_nodes(part: Subtopology, processors: Mapping[str, Operator]) -> frozenset[str]:
    """Return the nodes of a task of ``part`` that gather."""
    groups = {_group(part, name) for name, processor in processors.items() if processor.promises.gathers}
    return frozenset().union(
        *(
            group
            for group in groups
            if all(processors[name].promises.gathers for name in group)
            and _is_closed(part, group)
            and _have_positions(part, processors, group)
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


def _have_positions(part: Subtopology, processors: Mapping[str, Operator], group: Iterable[str]) -> bool:
    """Return whether all nodes above ``group`` pass on the positions of records."""
    waiting = [parent for name in group for parent in part.nodes[name].parents]
    while waiting:
        node = part.nodes[waiting.pop()]
        if not isinstance(node, SourceNode) and not processors[node.name].promises.keeps_positions:
            return False
        waiting.extend(node.parents)
    return True

"""Topics whose records become one aggregate and nothing else, so that their order shows nowhere.

Rule of this module: the graph decides, and the promises of processors (``Promises.by_key``).
"""

from collections.abc import Callable

from millpond.processors.runtime.nodes import Node, ProcessorNode, SinkNode
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.subtopology import Subtopology


def only_reader(part: Subtopology, topic: str, processor_of: Callable[[ProcessorNode], Operator]) -> Operator | None:
    """Return the only processor that takes what ``part`` reads; None if there are others.

    The nodes behind it have no state and lead to no other task.

    Args:
        part: the sub-topology.
        topic: its only source topic.
        processor_of: returns the processor of a node.
    """

    def passes_on(node: Node) -> bool:
        """Return whether a node treats each update by itself."""
        if isinstance(node, SinkNode):
            return node.topic not in part.internal_topics
        return isinstance(node, ProcessorNode) and not node.stores and processor_of(node).promises.by_key

    source = part.sources[topic]
    readers = [part.nodes[child] for child in source.children]
    rest = [node for node in part.nodes.values() if node is not source and node not in readers]
    if len(part.sources) > 1 or len(readers) > 1 or source.broadcast or not all(map(passes_on, rest)):
        return None
    (reader,) = readers
    return processor_of(reader) if isinstance(reader, ProcessorNode) else None

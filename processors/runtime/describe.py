"""A topology as text, and as a Mermaid graph for documents.

Rule of this module: it only reads a finished topology; it checks nothing.
"""

from collections.abc import Iterator, Sequence, Set

from millpond.processors.runtime.nodes import Node, SinkNode, SourceNode
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.versions.late_puts import LatePuts


def as_text(parts: Sequence[Subtopology], internal_topics: Set[str]) -> str:
    """Return the topology as text: sub-topologies with their nodes and stores, then the repartition topics."""
    lines: list[str] = []
    for part in parts:
        lines.append(f"Sub-topology {part.index}")
        for node in part.nodes.values():
            lines.append(f"  {node.name}{_role(node, internal_topics)}")
            if node.stores:
                lines.append(f"    uses {', '.join(node.stores)}")
            if node.children:
                lines.append(f"    --> {', '.join(node.children)}")
        lines.extend(f"  store {spec.name}: {', '.join(_properties(spec))}" for spec in part.stores.values())
    for topic in sorted(internal_topics):
        writers, readers = _ends(parts, topic)
        lines.append(f"Repartition topic {topic}: from sub-topology {_listed(writers)} to {_listed(readers)}")
    return "\n".join(lines) + "\n"


def as_mermaid(parts: Sequence[Subtopology], internal_topics: Set[str]) -> str:
    """Return the topology as a Mermaid flowchart: topics and stores are nodes too."""
    lines = ["flowchart TD"]
    edges: list[str] = []
    topics: dict[str, str] = {}
    for part in parts:
        lines.append(f'  subgraph sub{part.index}["Sub-topology {part.index}"]')
        lines.extend(f"    {line}" for line in _mermaid_nodes(part))
        lines.append("  end")
        edges.extend(_mermaid_edges(part, topics))
    for topic, id_ in topics.items():
        internal = topic in internal_topics
        label = _label(f"repartition topic\n{topic}" if internal else f"topic\n{topic}")
        lines.append(f"  {id_}[[{label}]]" if internal else f"  {id_}([{label}])")
    lines.extend(f"  {edge}" for edge in edges)
    return "\n".join(lines) + "\n"


def _role(node: Node, internal_topics: Set[str]) -> str:
    if not isinstance(node, SourceNode | SinkNode):
        return ""
    what = "repartition topic" if node.topic in internal_topics else "topic"
    if isinstance(node, SinkNode):
        return f" writes {what} {node.topic}"
    return f" reads {what} {node.topic}{', all of it in every task' if node.broadcast else ''}"


def _properties(spec: StoreSpec) -> Iterator[str]:
    yield spec.kind.value
    if not spec.versioned:
        yield "not versioned"
    yield f"backend {spec.backend or 'of the job'}"
    if spec.checksums is not None:
        yield "checksums" if spec.checksums else "no checksums"
    for name in ("history_retention", "grace", "retention", "window_size"):
        length = getattr(spec, name)
        if length is not None:
            yield f"{name.replace('_', ' ')} {length} ms"
    if spec.late_puts is not LatePuts.REFUSED:
        yield f"late puts: {spec.late_puts.value}"
    if spec.retain_duplicates:
        yield "retains duplicates"


def _ends(parts: Sequence[Subtopology], topic: str) -> tuple[list[int], list[int]]:
    """Return the sub-topologies that write and read a topic."""
    writers = [part.index for part in parts if topic in part.sinks]
    readers = [part.index for part in parts if topic in part.sources]
    return writers, readers


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _mermaid_nodes(part: Subtopology) -> Iterator[str]:
    ids = _ids(part)
    for node in part.nodes.values():
        yield f"{ids[node.name]}[{_label(node.name)}]"
    for number, spec in enumerate(part.stores.values()):
        yield f"s{part.index}_{number}[({_label(chr(10).join((spec.name, *_properties(spec))))})]"


def _mermaid_edges(part: Subtopology, topics: dict[str, str]) -> Iterator[str]:
    """Yield the part's edges; a topic gets its id when it is first met."""
    ids = _ids(part)
    stores = {name: f"s{part.index}_{number}" for number, name in enumerate(part.stores)}
    for node in part.nodes.values():
        if isinstance(node, SourceNode):
            yield f"{topics.setdefault(node.topic, f't{len(topics)}')} --> {ids[node.name]}"
        if isinstance(node, SinkNode):
            yield f"{ids[node.name]} --> {topics.setdefault(node.topic, f't{len(topics)}')}"
        yield from (f"{ids[node.name]} --> {ids[child]}" for child in node.children)
        yield from (f"{ids[node.name]} -.- {stores[store]}" for store in node.stores)


def _ids(part: Subtopology) -> dict[str, str]:
    """Return ids for Mermaid, because a node's own name may hold characters that it cannot parse."""
    return {name: f"n{part.index}_{number}" for number, name in enumerate(part.nodes)}


def _label(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return '"' + escaped.replace("\n", "<br/>") + '"'

"""The drawing of a query, as boxes and arrows: from its topology if that is given, else from records.

Rule of this module: it says what is drawn and where, and nothing of colors. Lengths are pixels of the page's font.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from millpond.adapters.monitor.layers import laid_out
from millpond.processors.runtime.nodes import SinkNode, SourceNode
from millpond.processors.runtime.topology import Topology

Role = Literal["topic", "repartition", "processor", "store"]

_CHARACTER: Final = 7.9
_MARGIN: Final = 22.0
_LONGEST: Final = 30
_LEAST_WIDTH: Final = 84.0
_LINE: Final = 16.0
_FRAME: Final = 14.0


@dataclass(frozen=True)
class Box:
    """A box.

    Attributes:
        id: tells it from the others.
        role: what it is.
        lines: its text; longer lines are cut.
        title: all of it.
        x, y: its upper left corner.
        width, height: its size.
    """

    id: str
    role: Role
    lines: tuple[str, ...]
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Arrow:
    """An arrow: the boxes, and the points that it passes; a store's has no head."""

    start: str
    stop: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Drawing:
    """All boxes and arrows.

    Attributes:
        complete: whether it is that of a topology; else only what is recorded is drawn.
        width, height: the size of all.
        boxes: the boxes.
        arrows: the arrows.
    """

    complete: bool
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass
class _Graph:
    roles: dict[str, Role] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)

    def add(self, id_: str, role: Role, *lines: str) -> str:
        self.roles.setdefault(id_, role)
        self.lines.setdefault(id_, list(lines))
        return id_

    def drawn(self, *, complete: bool) -> Drawing:
        shown = {id_: tuple(map(_cut, lines)) for id_, lines in self.lines.items()}
        sizes = {id_: _size(lines) for id_, lines in shown.items()}
        layout = laid_out(sizes, self.edges)
        boxes = [
            Box(id_, role, shown[id_], "\n".join(self.lines[id_]), *map(_rounded, (*layout.places[id_], *sizes[id_])))
            for id_, role in self.roles.items()
        ]
        arrows = [
            Arrow(start, stop, tuple((_rounded(x), _rounded(y)) for x, y in points))
            for (start, stop), points in layout.paths.items()
        ]
        return Drawing(complete, _rounded(layout.width), _rounded(layout.height), tuple(boxes), tuple(arrows))


@dataclass
class Marks:
    """Further lines about the parts of a topology.

    Attributes:
        topics: of topics, by name.
        nodes: of processors, by name.
        stores: of stores, by name.
    """

    topics: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    stores: dict[str, list[str]] = field(default_factory=dict)


def of_topology(topology: Topology, marks: Marks) -> Drawing:
    """Return the drawing of a topology: topics, processors and the stores that they use."""
    graph = _Graph()

    def topic(name: str) -> str:
        role: Role = "repartition" if name in topology.internal_topics else "topic"
        return graph.add(f"topic {name}", role, name, role, *marks.topics.get(name, ()))

    for part in topology.subtopologies:
        ids = {
            node.name: topic(node.topic)
            if isinstance(node, SourceNode | SinkNode)
            else graph.add(f"node {node.name}", "processor", node.name, *marks.nodes.get(node.name, ()))
            for node in part.nodes.values()
        }
        for node in part.nodes.values():
            graph.edges += [(ids[node.name], ids[child]) for child in node.children]
            for store in node.stores:
                kind = part.stores[store].kind.value
                kept = graph.add(f"store {part.index} {store}", "store", store, kind, *marks.stores.get(store, ()))
                graph.edges.append((ids[node.name], kept))
    return graph.drawn(complete=True)


@dataclass
class RecordedJob:
    """The record of one job.

    Attributes:
        lines: its name, and further lines about it.
        inputs: by name, the lines about each.
        sinks: the names of what it writes.
        stores: by sub-topology and name, the lines about each.
    """

    lines: list[str]
    inputs: dict[str, list[str]] = field(default_factory=dict)
    sinks: set[str] = field(default_factory=set)
    stores: dict[tuple[int, str], list[str]] = field(default_factory=dict)


def of_records(jobs: Mapping[str, RecordedJob]) -> Drawing:
    """Return the drawing of what is recorded of jobs, by name: what they read and write, and their stores."""
    graph = _Graph()
    for application, job in jobs.items():
        middle = graph.add(f"job {application}", "processor", *job.lines)
        for name, lines in job.inputs.items():
            graph.edges.append((graph.add(f"in {application} {name}", "topic", name, "input", *lines), middle))
        for sink in sorted(job.sinks):
            graph.edges.append((middle, graph.add(f"out {application} {sink}", "topic", sink, "output")))
        for (subtopology, name), lines in job.stores.items():
            kept = graph.add(f"store {application} {subtopology} {name}", "store", name, *lines)
            graph.edges.append((middle, kept))
    return graph.drawn(complete=False)


def _size(lines: tuple[str, ...]) -> tuple[float, float]:
    longest = max(map(len, lines))
    return max(_LEAST_WIDTH, longest * _CHARACTER + _MARGIN), len(lines) * _LINE + _FRAME


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 12]}…{line[-11:]}"


def _rounded(length: float) -> float:
    return round(length, 1)

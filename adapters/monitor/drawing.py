"""The drawing of a query, as boxes and arrows: from its topology if that is given, else from records.

Rule of this module: it says what is drawn and where, and nothing of colors. Lengths are pixels of the page's font.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.layers import laid_out
from millpond.adapters.monitor.overview import Arrow, Box, Drawing, OperatorSeen, Reason, Role, StoreSeen
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.nodes import SinkNode, SourceNode
from millpond.processors.runtime.topology import Topology

_CHARACTER: Final = 7.9
_MARGIN: Final = 22.0
_LONGEST: Final = 30
_LEAST_WIDTH: Final = 84.0
_LINE: Final = 16.0
_FRAME: Final = 14.0

_OWN: Final = "operator."
"""The beginning of an operator's name; a verb's first operator has the verb's name."""
_OPERATOR: Final = re.compile(r"(?:.*\.)?operator\.\d+")
"""Names of operators; that of a verb may be the verb's own."""


def drawn(
    topology: Topology | None,
    operators: Sequence[OperatorSeen],
    reasons: Sequence[Reason],
    stores: Sequence[StoreSeen],
) -> Drawing:
    """Return the drawing of a topology, or of what is recorded if none is given, with the present figures."""
    if topology is None:
        return _of_records(_jobs(operators, reasons, stores))
    return _of_topology(topology, operators, reasons, stores)


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


def _of_topology(
    topology: Topology, operators: Sequence[OperatorSeen], reasons: Sequence[Reason], stores: Sequence[StoreSeen]
) -> Drawing:
    """Return the drawing of a topology: topics, processors and the stores that they use."""
    of_topics, of_nodes, of_stores = (defaultdict[str, list[str]](list) for _ in range(3))
    for one in filter(_is_input, operators):
        of_topics[one.operator].append(f"{units.number(one.records_in)} in")
    for reason in reasons:
        of, name = (of_nodes, reason.node) if reason.node else (of_topics, reason.operator)
        of[name].append(_told(reason))
    for seen in stores:
        of_stores[seen.store].append(units.size(seen.size))
    graph = _Graph()

    def topic(name: str) -> str:
        role: Role = "repartition" if name in topology.internal_topics else "topic"
        return graph.add(f"topic {name}", role, name, role, *of_topics[name])

    for part in topology.subtopologies:
        ids = {
            node.name: topic(node.topic)
            if isinstance(node, SourceNode | SinkNode)
            else graph.add(f"node {node.name}", "processor", node.name, *of_nodes[node.name])
            for node in part.nodes.values()
        }
        for node in part.nodes.values():
            graph.edges += [(ids[node.name], ids[child]) for child in node.children]
            for store in node.stores:
                kind = part.stores[store].kind.value
                kept = graph.add(f"store {part.index} {store}", "store", store, kind, *of_stores[store])
                graph.edges.append((ids[node.name], kept))
    return graph.drawn(complete=True)


def _is_input(one: OperatorSeen) -> bool:
    """Return whether a report is of an input, not of an operator, which has a clock."""
    return one.lag is None and _OPERATOR.fullmatch(one.operator) is None


@dataclass
class _Job:
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


def _of_records(jobs: Mapping[str, _Job]) -> Drawing:
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


def _jobs(operators: Sequence[OperatorSeen], reasons: Sequence[Reason], stores: Sequence[StoreSeen]) -> dict[str, _Job]:
    names = dict.fromkeys([*(one.application for one in operators), *(store.application for store in stores)])
    jobs = {name: _Job([name]) for name in names}
    told = {one.operator: one.application for one in operators}
    for one in operators:
        job = jobs[one.application]
        if _is_input(one):
            job.inputs[one.operator] = [f"{units.number(one.records_in)} in"]
        elif one.lag is not None:
            _, own, number = one.operator.rpartition(_OWN)
            job.lines.append(f"{own and f'{own}{number}: '}lag {units.duration(one.lag)}")
    for reason in reasons:
        if reason.operator in told:
            job = jobs[told[reason.operator]]
            job.inputs.get(reason.operator, job.lines).append(_told(reason))
    for store in stores:
        job = jobs[store.application]
        job.sinks.add(store.sink)
        job.stores[store.subtopology, store.store] = [store.kind, units.size(store.size)]
    return jobs


def _told(reason: Reason) -> str:
    return f"{units.number(reason.records)} {'wait' if reason.reason == CounterName.WAITING else reason.reason}"


def _size(lines: tuple[str, ...]) -> tuple[float, float]:
    longest = max(map(len, lines))
    return max(_LEAST_WIDTH, longest * _CHARACTER + _MARGIN), len(lines) * _LINE + _FRAME


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 12]}…{line[-11:]}"


def _rounded(length: float) -> float:
    return round(length, 1)

"""The plan that makes of a topology a chain of operators, each of which runs many tasks.

Rule of this module: it sees only the topology, no data. A sub-topology without state that reads the user's topics runs
on the map side, where its input is split. The others run in operators: those that feed each other by repartition
topics in successive operators, others side by side in one. Only what the chosen sinks depend on runs.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from millpond.errors import AmbiguousError, DuplicateNameError, TopologyError, UnknownNameError
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.topology import Topology

BETWEEN_SINKS: Final = "~"
"""The text between the names of sinks that are written together; names of directories can have it."""


@dataclass(frozen=True)
class Plan:
    """The assignment of sub-topologies to operators, for one sink or several; sent to the workers.

    Attributes:
        topology: the whole topology.
        sinks: the topics whose records are the output, sorted.
        partitions: how many tasks each sub-topology has.
        map_side: the sub-topologies that run where their input is split.
        stages: the sub-topologies of each operator, first to last; empty if everything is on the map side.
        behind: of a verb, the names of the verbs behind which it runs in their operator.
    """

    topology: Topology
    sinks: tuple[str, ...]
    partitions: int
    map_side: tuple[Subtopology, ...]
    stages: tuple[tuple[Subtopology, ...], ...]
    behind: tuple[str, ...] = ()

    @property
    def sink(self) -> str:
        """The name of the query by which its state is found: its sink, or its sinks with ``~`` between."""
        return BETWEEN_SINKS.join(self.sinks)

    @property
    def alone(self) -> bool:
        """True if one sub-topology is all that runs, in an operator."""
        return not self.map_side and len(self.stages) == 1 and len(self.stages[0]) == 1

    @cached_property
    def readers(self) -> dict[str, Subtopology]:
        """The sub-topology that reads each topic."""
        return {topic: part for part in self.parts for topic in part.sources}

    def all_readers(self, topic: str) -> list[Subtopology]:
        """Return the sub-topologies that read ``topic``: one, or several if it is a global table's."""
        return [part for part in self.parts if topic in part.sources]

    @property
    def parts(self) -> Iterator[Subtopology]:
        """All sub-topologies that run."""
        yield from self.map_side
        for stage in self.stages:
            yield from stage

    @property
    def topics(self) -> dict[str, SourceNode]:
        """The user's topics that are read, with their source nodes."""
        internal = self.topology.internal_topics
        return {topic: node for part in self.parts for topic, node in part.sources.items() if topic not in internal}

    @property
    def internal_topics(self) -> dict[str, Consumed]:
        """The repartition topics that are read, and how."""
        internal = self.topology.internal_topics
        return {
            topic: node.consumed for part in self.parts for topic, node in part.sources.items() if topic in internal
        }

    def input_of(self, topic: str, part: Subtopology | None = None) -> int:
        """Return the position of ``topic`` among the inputs of ``part``, or of the only sub-topology that reads it."""
        return list((part or self.readers[topic]).sources).index(topic)

    def is_map_side(self, part: Subtopology) -> bool:
        return any(part.index == other.index for other in self.map_side)

    def entry_level(self, part: Subtopology) -> int:
        """Return the position of the first operator that takes what ``part`` reads or, on the map side, writes.

        If all that it writes is output, the position is one after the last.
        """
        if not self.is_map_side(part):
            return self._level(part)
        read = (self._level(self.readers[topic]) for topic in part.sinks if topic in self.readers)
        return min(read, default=len(self.stages))

    def _level(self, part: Subtopology) -> int:
        return next(level for level, stage in enumerate(self.stages) if any(part.index == p.index for p in stage))

    @property
    def fingerprint(self) -> str:
        """Equal as long as state written under one plan can be carried on under another."""
        return f"{self.topology.fingerprint}/{self.partitions}"


def make_plan(topology: Topology, sink: str | None, partitions: int) -> Plan:
    """Return the plan for one sink of a topology, or for several that are written together.

    Args:
        topology: the topology.
        sink: the sink, or the sinks with ``~`` between them; None if there is only one.
        partitions: how many tasks each sub-topology has.

    Raises:
        TopologyError: the topology has no such sink, or several and none was named, or one sink in several places.
    """
    if topology.loops:
        raise TopologyError(
            f"records of the repartition topics {sorted(topology.loops)} come back to the tasks that wrote them, "
            "because both ends of the path use the same store, but distributed operators run one after the other; "
            "write the records to a topic there, and go on in a second query that reads it and has a store of its own"
        )
    chosen = _sinks(topology, sink)
    needed = _ancestors(topology, [_writer(topology, one) for one in chosen])
    map_side = tuple(part for part in needed if _runs_on_map_side(topology, part))
    levels: dict[int, int] = {}
    for part in needed:
        feeding = [levels[other.index] + 1 for other in _feeders(topology, part) if other.index in levels]
        if not any(part.index == other.index for other in map_side):
            levels[part.index] = max(feeding, default=0)
    stages = tuple(
        tuple(part for part in needed if levels.get(part.index) == level)
        for level in range(max(levels.values(), default=-1) + 1)
    )
    return Plan(topology, chosen, partitions, map_side, stages)


def _sinks(topology: Topology, sink: str | None) -> tuple[str, ...]:
    sinks = sorted(topology.sinks)
    if not sinks:
        raise TopologyError("the topology has no sink, so it has no output; end a stream with to(...)")
    if sink is None and len(sinks) == 1:
        return (sinks[0],)
    if sink is None:
        raise AmbiguousError(f"the topology has the sinks {sinks}; say which one: sink=...")
    if sink in sinks:
        return (sink,)
    several = sorted(sink.split(BETWEEN_SINKS))
    unknown = [one for one in several if one not in sinks]
    if unknown:
        raise UnknownNameError(f"the topology has the sinks {sinks}, not {unknown[0]!r}")
    if len(set(several)) < len(several):
        raise DuplicateNameError(f"a sink is named twice in {sink!r}; name each once")
    return tuple(several)


def _writer(topology: Topology, sink: str) -> Subtopology:
    writers = [part for part in topology.subtopologies if sink in part.sinks]
    if len(writers) > 1:
        raise TopologyError(
            f"sink {sink!r} is written by {len(writers)} sub-topologies; give each its own sink and unite the outputs"
        )
    return writers[0]


def _feeders(topology: Topology, part: Subtopology) -> list[Subtopology]:
    read = set(part.sources) & topology.internal_topics
    return [other for other in topology.subtopologies if read & set(other.sinks)]


def _ancestors(topology: Topology, last: Collection[Subtopology]) -> list[Subtopology]:
    """Return the sub-topologies in ``last`` and those that they depend on, feeders first."""
    found = {part.index for part in last}
    waiting = list(last)
    while waiting:
        for feeder in _feeders(topology, waiting.pop()):
            if feeder.index not in found:
                found.add(feeder.index)
                waiting.append(feeder)
    return [part for part in topology.subtopologies if part.index in found]


def _runs_on_map_side(topology: Topology, part: Subtopology) -> bool:
    return not part.stores and not set(part.sources) & topology.internal_topics

"""The nodes of a topology: sources, processors and sinks, as a builder makes them and tasks run them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.errors import TopologyError
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.operator import Operator, as_operator
from millpond.processors.runtime.processor import Processor


@dataclass(frozen=True)
class Node:
    """The common part of sources, processors and sinks; neighbors and stores are given by name.

    Attributes:
        shown: its name in counters and messages; None for ``name``.
    """

    name: str
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    shown: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class SourceNode(Node):
    """Reads the records of one topic.

    Attributes:
        stream: whether the records are a stream, not updates of a table.
        broadcast: whether every task gets all records, not only those of its own keys.
        without_window: whether records, whose keys are windowed, go to the tasks of their keys without the windows.
    """

    topic: str = ""
    consumed: Consumed = field(default_factory=Consumed)
    stream: bool = False
    broadcast: bool = False
    without_window: bool = False


def _no_processor() -> Processor:
    raise TopologyError("a processor node needs a supplier")


@dataclass(frozen=True)
class ProcessorNode(Node):
    """Runs the processor that ``supplier`` makes, one for each task."""

    supplier: Callable[[], Processor] = _no_processor

    def operator(self) -> Operator:
        """Return a new processor, as tasks run it."""
        return as_operator(self.supplier())


@dataclass(frozen=True)
class SinkNode(Node):
    """Writes records to one topic."""

    topic: str = ""
    produced: Produced = field(default_factory=Produced)

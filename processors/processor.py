"""The contract of a processor: configuration at construction, logic in ``process``, state in stores.

A processor sees batches in arrival order and hands its results to ``context.forward``. It never reads a clock: time is
a column of the batch. What it must remember between batches lives in a store, or in a store's metadata, so that it is
part of the changelog and comes back after a restart.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.batch import Batch


class PunctuationType(Enum):
    """What drives a scheduled callback: the records' time, or the clock on the wall."""

    STREAM_TIME = "stream-time"
    WALL_CLOCK_TIME = "wall-clock-time"


Punctuator = Callable[[int], None]
"""Called with the time at which it fires, int milliseconds."""


class Punctuation:
    """A scheduled callback; ``cancel`` ends it."""

    def __init__(self, interval: int, kind: PunctuationType, punctuator: Punctuator) -> None:
        self.interval = interval
        self.kind = kind
        self._punctuator: Punctuator | None = punctuator
        self._next: int | None = None

    @property
    def active(self) -> bool:
        return self._punctuator is not None

    def cancel(self) -> None:
        self._punctuator = None

    def advance(self, now: int) -> None:
        """Fire once if the time has come, and plan the next firing on the grid of the interval."""
        if self._punctuator is None:
            return
        if self._next is None:
            self._next = now if self.kind is PunctuationType.STREAM_TIME else now + self.interval
        if now >= self._next:
            self._next += self.interval * max(1, (now - self._next) // self.interval + 1)
            self._punctuator(now)


class ProcessorContext:
    """What a processor may touch: its stores, its children, its task's clock and counters.

    Attributes:
        task_id: the task's name, ``<sub-topology>_<partition>``.
        counters: what the task counts, by name; dropped and late records are counted here, not raised.
    """

    def __init__(
        self,
        node: str,
        task_id: str,
        stores: Mapping[str, Any],
        children: Sequence[tuple[str, "Processor"]],
        separable: bool,
        counters: Counter[str],
        schedule: Callable[[Punctuation], None],
    ) -> None:
        self.node = node
        self.task_id = task_id
        self.counters = counters
        self._stores = stores
        self._children = [child.process for _, child in children]
        self._by_name = {name: child.process for name, child in children}
        self._separable = separable
        self._schedule = schedule

    def store(self, name: str) -> Any:
        """The store ``name``, which must be connected to this processor.

        Raises:
            TopologyError: the store is not connected.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise TopologyError(
                f"processor {self.node!r} asked for store {name!r}, which is not connected to it; "
                f"connected: {sorted(self._stores) or 'none'}. Name it where the processor is added"
            ) from None

    def forward(self, batch: Batch) -> None:
        """Hand records to all children.

        Where the children could see each other's effects the records go one by one through all of them, as if each had
        arrived alone; elsewhere the whole batch goes to each child in turn, which cannot be told apart from outside.
        """
        size = len(batch.keys)
        if size == 0:
            return
        if self._separable or size == 1:
            for process in self._children:
                process(batch)
        else:
            for row in batch.rows():
                for process in self._children:
                    process(row)

    def forward_to(self, child: str, batch: Batch) -> None:
        """Hand records to the child called ``child`` only."""
        if len(batch):
            self._by_name[child](batch)

    def schedule(self, interval: int, kind: PunctuationType, punctuator: Punctuator) -> Punctuation:
        """Call ``punctuator`` about every ``interval`` milliseconds of ``kind``, starting with the first time seen."""
        if interval <= 0:
            raise TopologyError(
                f"processor {self.node!r}: the punctuation interval must be positive, not {interval} ms"
            )
        punctuation = Punctuation(interval, kind, punctuator)
        self._schedule(punctuation)
        return punctuation

    def count(self, what: str, amount: int = 1) -> None:
        """Count an event of this processor, such as ``dropped-null-key``."""
        if amount:
            self.counters[f"{self.node}:{what}"] += amount


class Processor(ABC):
    """One step of a sub-topology, made anew for each task."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once, before the first batch, with the stores open. An override calls this one first."""
        self.context = context

    @abstractmethod
    def process(self, batch: Batch) -> None:
        """Take in records and forward what they make. Batches are never empty."""

    def flush(self) -> None:
        """Called before each commit, parents before children: forward what was held back, keep what must last."""

    def close(self) -> None:
        """Called once, at the end."""

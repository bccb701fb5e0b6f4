"""The contract of a processor: configuration at construction, logic in ``process``, state in stores.

A processor sees batches in arrival order and hands its results to ``context.forward``. It never reads a clock: time is
a column of the batch. What it must remember between batches lives in a store, or in a store's metadata, so that it is
part of the changelog and comes back after a restart.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.runtime.batch import Batch
from millpond.stores.times import Duration, to_millis


class PunctuationType(Enum):
    """What drives a scheduled callback: the records' time, or the clock on the wall."""

    STREAM_TIME = "stream-time"
    WALL_CLOCK_TIME = "wall-clock-time"


Punctuator = Callable[[int], None]
"""Called with the time at which it fires, int milliseconds."""

_NEXT = Struct(">q")


class Punctuation:
    """A scheduled callback; ``cancel`` ends it.

    It fires on a grid of its interval, once however many points of the grid have gone by. Where its processor has a
    store, the next point is kept in that store's metadata, so that a restarted task goes on where the old one stopped.

    Args:
        interval: milliseconds between points of the grid.
        kind: which clock drives it.
        punctuator: what to call.
        first: the first point, if no earlier task has left one.
        memory: a store, or None, and the name under which its metadata hold the next point.
    """

    def __init__(
        self, interval: int, kind: PunctuationType, punctuator: Punctuator, first: int, memory: tuple[Any, str]
    ) -> None:
        self.interval = interval
        self.kind = kind
        self._punctuator: Punctuator | None = punctuator
        self._store, self._name = memory
        kept = None if self._store is None else self._store.get_metadata(self._name)
        self.due = first if kept is None else int(_NEXT.unpack(kept)[0])

    @property
    def active(self) -> bool:
        return self._punctuator is not None

    def cancel(self) -> None:
        self._punctuator = None

    def plan(self, due: int) -> None:
        """Fire next at ``due``."""
        self.due = due
        if self._store is not None:
            self._store.put_metadata(self._name, _NEXT.pack(due))

    def advance(self, now: int) -> None:
        """Fire once if the time has come, and plan the next firing on the grid of the interval."""
        if self._punctuator is None or now < self.due:
            return
        self.plan(self.due + self.interval * ((now - self.due) // self.interval + 1))
        self._punctuator(now)


class ProcessorContext:
    """What a processor may touch: its stores, its children, its task's clock and counters.

    Attributes:
        node: the processor's name in the topology.
        task_id: the task's name, ``<sub-topology>_<partition>``.
        counters: what the task counts, by name; dropped and late records are counted here, not raised.
        separable: whether a batch may go through one child after the other. If not, a processor that forwards to
            named children has to keep the order of the records between them; ``forward`` does so by itself.
    """

    def __init__(
        self,
        node: str,
        task_id: str,
        stores: Mapping[str, Any],
        children: Sequence[tuple[str, "Processor"]],
        separable: bool,
        counters: Counter[str],
        scheduler: "Scheduler",
    ) -> None:
        self.node = node
        self.task_id = task_id
        self.counters = counters
        self.separable = separable
        self._stores = stores
        self._children = [child.process for _, child in children]
        self._by_name = {name: child.process for name, child in children}
        self._scheduler = scheduler
        self._schedules = 0

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
        if size == 1 or self.separable:
            for process in self._children:
                process(batch)
        else:
            for row in batch.rows():
                for process in self._children:
                    process(row)

    def forward_to(self, child: str, batch: Batch) -> None:
        """Hand records to the child called ``child`` only.

        Raises:
            TopologyError: this processor has no such child.
        """
        try:
            process = self._by_name[child]
        except KeyError:
            raise TopologyError(
                f"processor {self.node!r} forwards to {child!r}, but its children are {sorted(self._by_name) or 'none'}"
            ) from None
        if len(batch):
            process(batch)

    def schedule(self, interval: Duration, kind: PunctuationType, punctuator: Punctuator) -> Punctuation:
        """Call ``punctuator`` every ``interval`` of ``kind``.

        Stream time counts from 0 and fires with the first record already; it moves with each record that enters the
        task, and is scheduled in ``init`` only. Wall-clock time counts from now, and its first call is one interval
        away. Several points of the grid that pass at once make one call.

        Raises:
            TopologyError: the interval is not positive, or it is too late for a stream-time schedule.
        """
        length = to_millis(interval, "punctuation interval")
        if length <= 0:
            raise TopologyError(f"processor {self.node!r}: the punctuation interval must be positive, not {length} ms")
        store = next(iter(self._stores.values()), None)
        memory = (store, f"punctuation-{self.node}-{self._schedules}")
        self._schedules += 1
        return self._scheduler.schedule(self.node, length, kind, punctuator, memory)

    def count(self, what: str, amount: int = 1) -> None:
        """Count an event of this processor, such as ``dropped-null-key``."""
        if amount:
            self.counters[f"{self.node}:{what}"] += amount


class Scheduler:
    """The punctuations of one task.

    Args:
        wall_clock: the time on the wall as the task begins, int milliseconds.
    """

    def __init__(self, wall_clock: int) -> None:
        self._wall_clock = wall_clock
        self._punctuations: list[Punctuation] = []
        self._started = False

    @property
    def follows_stream_time(self) -> bool:
        """Whether anybody waits for stream time, so that records have to go one by one."""
        return any(p.active and p.kind is PunctuationType.STREAM_TIME for p in self._punctuations)

    def start(self) -> None:
        """All processors are initialised: from now on records may come."""
        self._started = True

    def schedule(
        self, node: str, interval: int, kind: PunctuationType, punctuator: Punctuator, memory: tuple[Any, str]
    ) -> Punctuation:
        """See ``ProcessorContext.schedule``."""
        by_records = kind is PunctuationType.STREAM_TIME
        if by_records and self._started:
            raise TopologyError(f"processor {node!r} schedules by stream time after init; do it in init")
        first = 0 if by_records else self._wall_clock + interval
        punctuation = Punctuation(interval, kind, punctuator, first, memory)
        if not by_records:
            punctuation.plan(min(punctuation.due, first))
        self._punctuations.append(punctuation)
        return punctuation

    def advance(self, kind: PunctuationType, now: int) -> None:
        """Fire what is due on one of the clocks, the most overdue first."""
        if kind is PunctuationType.WALL_CLOCK_TIME:
            self._wall_clock = now
        for punctuation in sorted(self._punctuations, key=lambda p: p.due):
            if punctuation.kind is kind:
                punctuation.advance(now)


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

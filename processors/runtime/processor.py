"""The contract of a processor: configuration at construction, logic in ``process``, state in stores.

A processor sees batches in arrival order and hands its results to ``context.forward``. It never reads a clock: time is
a column of the batch. What it must remember between batches lives in a store, or in a store's metadata, so that it is
part of the changelog and comes back after a restart.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.kept_time import KeptTime
from millpond.processors.runtime.punctuation import Punctuation, PunctuationType, Punctuator, Scheduler
from millpond.stores.times import Duration, to_millis


class ProcessorContext:
    """What a processor may touch: its stores, its children, its task's clock and counters.

    Attributes:
        node: the processor's name in the topology.
        task_id: the task's name, ``<sub-topology>_<partition>``.
        counters: what the task counts, by name; dropped and late records are counted here, not raised.
        separable: whether a whole batch may go to one child after another. If not, a processor that uses
            ``forward_to`` must keep the order of records across children; ``forward`` does so by itself.
    """

    def __init__(
        self,
        node: str,
        task_id: str,
        stores: Mapping[str, Any],
        children: Sequence[tuple[str, "Processor"]],
        separable: bool,
        counters: Counter[str],
        scheduler: Scheduler,
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

    @property
    def wall_clock(self) -> int:
        """The wall-clock time as the task was told last, int milliseconds; it does not move within a micro-batch."""
        return self._scheduler.wall_clock

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
        """Pass records to all children.

        If the children could see each other's effects, the records go through all of them one by one, as if each had
        arrived alone. Otherwise the whole batch goes to each child in turn, with the same results.
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
        """Pass records only to the child called ``child``.

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

        A stream-time schedule can be made in ``init`` only. Its grid starts at 0, so it first fires with the first
        record; stream time advances with each record that enters the task. A wall-clock schedule starts now and first
        fires one interval later. Several points of the grid that pass at once make one call.

        Raises:
            TopologyError: the interval is not positive, or a stream-time schedule is made after ``init``.
        """
        length = to_millis(interval, "punctuation interval")
        if length <= 0:
            raise TopologyError(f"processor {self.node!r}: the punctuation interval must be positive, not {length} ms")
        store = next(iter(self._stores.values()), None)
        memory = None if store is None else KeptTime(store, f"punctuation-{self.node}-{self._schedules}")
        self._schedules += 1
        scheduler = self._scheduler
        punctuation = scheduler.schedule(self.node, length, kind, punctuator, memory)
        if kind is PunctuationType.STREAM_TIME and scheduler.set_back_to is not None:
            self.count(CounterName.SET_BACK, punctuation.set_back(scheduler.set_back_to))
        return punctuation

    def count(self, what: str, amount: int = 1) -> None:
        """Count an event of this processor: a ``CounterName``, or a name of your own."""
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
        """Process records and forward the results; ``batch`` is never empty."""

    def flush(self) -> None:
        """Called before each commit, parents before children: forward what was held back, store what must last.

        It may be called several times before a commit.
        """

    def complete(self) -> None:
        """Called when the input is complete, parents before children, each after its ``flush``.

        Forward everything that waits, as if stream time had passed all of it. What has come out does not come out
        again; stream time stays what it is, and records that come nevertheless are treated as before.
        """

    def close(self) -> None:
        """Called once, at the end."""

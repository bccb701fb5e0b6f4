"""The contract of a processor: configuration at construction, logic in ``process``, state in stores.

A processor sees batches in arrival order and hands its results to ``context.forward``. It never reads a clock: time is
a column of the batch. What it must remember between batches lives in a store, or in a store's metadata, so that it is
part of the changelog and comes back after a restart.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from millpond.errors import ProcessorUseError
from millpond.metrics import Metrics
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.current_record import TASK_TIME, CurrentRecord, RecordMetadata
from millpond.processors.runtime.failures import FailureHandling, FailurePolicy, Place, Repeatable
from millpond.processors.runtime.kept_time import KeptTime
from millpond.processors.runtime.late import Booleans, Integers, KeepLate, LateRecords, chosen
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.punctuation import PUNCTUATION, Punctuation, PunctuationType, Punctuator, Scheduler
from millpond.stores.encoding.times import Duration, to_millis
from millpond.stores.typed.set_back import SetBack

_Shared = TypeVar("_Shared")


class Child(Repeatable, Protocol):
    """An operator, as the nodes that forward to it see it."""

    context: "ProcessorContext"

    def process_columns(self, columns: Columns) -> None:
        """See ``Processor.process_columns``."""

    def advance(self, time: int) -> None:
        """See ``Operator.advance``."""


class ProcessorContext(FailureHandling):
    """The interface of a processor to its task: its stores, its children, the task's clock and counters.

    Attributes:
        node: the processor's name in the topology.
        shown: its name in counters and messages.
        task_id: the task's name, ``<sub-topology>_<partition>``.
        counters: the task's counts, by name; dropped and late records are counted here, not raised.
        separable: whether a whole batch may go to one child after another. If not, a processor that uses
            ``forward_to`` must keep the order of records across children; ``forward`` does so by itself.
        gathers: whether this processor, which is able to (``Promises.gathers``), keeps records until ``settle``.
        metrics: the task's measurements, for the operators that come with Millpond.
    """

    def __init__(
        self,
        place: Place,
        stores: Mapping[str, Any],
        children: Sequence[tuple[str, Child]],
        separable: bool,
        counters: Counter[str],
        levels: dict[str, Callable[[], int]],
        scheduler: Scheduler,
        policy: FailurePolicy,
        shared: dict[str, Any],
        gathers: bool,
        metrics: Metrics,
        keep_late: KeepLate | None,
    ) -> None:
        super().__init__(place, policy)
        self.node = place.node
        self.shown = place.operator
        self.task_id = place.task_id
        self.counters = counters
        self._levels = levels
        self.separable = separable
        self._stores = stores
        self._connect(children)
        self._scheduler = scheduler
        self._schedules = 0
        self._shared = shared
        self.gathers = gathers
        self.metrics = metrics
        self._keep_late = keep_late
        self._current: CurrentRecord | None = None
        self._declared = Promises()
        self._may_declare = True

    def _connect(self, children: Sequence[tuple[str, Child]]) -> None:
        self._by_name = {name: child.process for name, child in children}
        self._owners = {child.process: child for _, child in children}
        self._children = list(self._by_name.values())
        self._column_owners = {child.process_columns: child for _, child in children}
        self._column_children = list(self._column_owners)

    def put_between(self, child: str, processor: Child) -> None:
        """Forward to ``processor`` from now on what would go to ``child``."""
        self._connect([(name, processor if name == child else self._owners[to]) for name, to in self._by_name.items()])

    @property
    def wall_clock(self) -> int:
        """The wall-clock time that the task was told last, int milliseconds; it does not move within a micro-batch."""
        return self._scheduler.wall_clock

    @property
    def stream_time(self) -> int | None:
        """The greatest timestamp of the records that the task has taken, this one included, int milliseconds.

        None before the first. It goes on after a restart, because the processor's first store keeps it.

        Raises:
            TopologyError: the processor has not declared ``record_by_record``, or the processor has no store.
        """
        current = self._known("stream_time")
        if not self._stores:
            raise ProcessorUseError(
                f"processor {self.node!r} asks for the stream time, but has no store that keeps it from micro-batch to "
                "micro-batch; give it one where it is added, for example "
                f"stores=[StoreSpec('{TASK_TIME}-of-{self.node}', StoreKind.KEY_VALUE, STRING, INT64)]"
            )
        return current.stream_time

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The topic, timestamp and headers of the record that the task has taken, whatever other processors made of it.

        None in punctuations, for records held back until a commit, and at the completion of the input. A record held
        back until another record came, as by ``suppress``, has the other one's.

        Raises:
            TopologyError: the processor has not declared ``record_by_record``.
        """
        return self._known("record_metadata").metadata

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics from which the task takes records, repartition topics among them."""
        return self._place.topics

    def follow(self, current: CurrentRecord) -> KeptTime | None:
        """Follow the record that the task is at from now on; return what keeps stream time, if there is a store."""
        self._current = current
        store = next(iter(self._stores.values()), None)
        if store is None:
            return None
        kept = KeptTime(store, f"{TASK_TIME}-{self.node}")
        if self._scheduler.set_back_to is not None:
            self.count(CounterName.SET_BACK, kept.set_back(SetBack(self._scheduler.set_back_to)))
        return kept

    def _known(self, what: str) -> CurrentRecord:
        if self._current is None:
            raise ProcessorUseError(
                f"processor {self.node!r} asks for {what}, which is known only if the task takes one record after the "
                "other, and once it has begun: call context.declare(record_by_record=True) in init, or in open of a "
                "RecordProcessor, and ask where records are processed"
            )
        return self._current

    def declare(self, *, repeatable: bool = False, record_by_record: bool = False) -> None:
        """Declare what the task may rely on, or has to do; called in ``init``, or in ``open`` of a ``RecordProcessor``.

        Args:
            repeatable: ``process`` has changed and forwarded nothing when it raises, neither stores nor its own
                attributes. Then a batch for which it fails is processed again record by record, and records for which
                it fails again are left out if the job's ``on_error`` says so. Without that promise a failure ends the
                job, because its effects are not known. To keep it, compute first, then write to stores, then forward.
            record_by_record: the task has to take one record after the other, with all effects of one before the next,
                which is slower. Then ``stream_time`` and ``record_metadata`` are about the record that it is at.

        Raises:
            TopologyError: ``init`` is over.
        """
        if not self._may_declare:
            raise ProcessorUseError(
                f"processor {self.node!r} declares something after its init, when the task has begun without; call "
                "context.declare in init, or in open of a RecordProcessor"
            )
        declared = self._declared
        self._declared = replace(
            declared,
            repeatable=repeatable or declared.repeatable,
            record_by_record=record_by_record or declared.record_by_record,
        )

    def declared(self) -> Promises:
        """Return the declared promises, and refuse declarations from now on."""
        self._may_declare = False
        return self._declared

    def store(self, name: str) -> Any:
        """Return the store ``name``, which must be connected to this processor.

        Raises:
            TopologyError: the store is not connected.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise ProcessorUseError(
                f"processor {self.node!r} asked for store {name!r}, which is not connected to it; "
                f"connected: {sorted(self._stores) or 'none'}. Name it where the processor is added"
            ) from None

    def shared(self, name: str, make: Callable[[], _Shared]) -> _Shared:
        """Return an object that processors of one task share beside stores; the first call for ``name`` makes it."""
        if name not in self._shared:
            self._shared[name] = make()
        made: _Shared = self._shared[name]
        return made

    def forward(self, batch: Batch) -> None:
        """Pass records to all children.

        If the children could see each other's effects, the records go through all of them one by one, as if each had
        arrived alone. Otherwise the whole batch goes to each child in turn, with the same results.
        """
        size = len(batch.keys)
        if size == 0:
            return
        parts: Iterable[Batch] = (batch,) if size == 1 or self.separable else batch.rows()
        for part in parts:
            for process in self._children:
                try:
                    process(part)
                except Exception as error:  # a user's code may raise anything
                    self._owners[process].context.recover(self._owners[process], part, error)

    def forward_columns(self, columns: Columns) -> None:
        """Pass records to all children as columns, or as a batch where it has to be cut into single records."""
        if not self.separable:
            self.forward(columns.to_batch())
        elif len(columns):
            for process in self._column_children:
                try:
                    process(columns)
                except Exception as error:  # a user's code may raise anything
                    owner = self._column_owners[process]
                    owner.context.recover(owner, columns.to_batch(), error)

    def advance(self, time: int) -> None:
        """Tell all children that the time of their input is ``time``, without a record."""
        for owner in self._column_owners.values():
            owner.advance(time)

    def forward_to(self, child: str, batch: Batch) -> None:
        """Pass records only to the child called ``child``.

        Raises:
            TopologyError: this processor has no such child.
        """
        owner = self._child(child)
        if len(batch):
            try:
                owner.process(batch)
            except Exception as error:  # a user's code may raise anything
                owner.context.recover(owner, batch, error)

    def forward_columns_to(self, child: str, columns: Columns) -> None:
        """``forward_to`` for records as columns."""
        owner = self._child(child)
        if len(columns):
            try:
                owner.process_columns(columns)
            except Exception as error:  # a user's code may raise anything
                owner.context.recover(owner, columns.to_batch(), error)

    def _child(self, name: str) -> Child:
        try:
            return self._owners[self._by_name[name]]
        except KeyError:
            raise ProcessorUseError(
                f"processor {self.node!r} forwards to {name!r}, but its children are {sorted(self._by_name) or 'none'}"
            ) from None

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
            raise ProcessorUseError(
                f"processor {self.node!r}: the punctuation interval must be positive, not {length} ms"
            )
        store = next(iter(self._stores.values()), None)
        memory = None if store is None else KeptTime(store, f"{PUNCTUATION}-{self.node}-{self._schedules}")
        self._schedules += 1

        scheduler = self._scheduler
        punctuation = scheduler.schedule(self.node, length, kind, self._recovering(punctuator), memory)
        if kind is PunctuationType.STREAM_TIME and scheduler.set_back_to is not None:
            self.count(CounterName.SET_BACK, punctuation.set_back(scheduler.set_back_to))
        return punctuation

    def at_wall_clock(self, punctuator: Punctuator) -> None:
        """Call ``punctuator`` whenever the task is told the wall-clock time.

        On Spark that is once in each of its micro-batches, after all records. Unlike a schedule it keeps nothing.
        """
        self._scheduler.listen(self._recovering(punctuator))

    def _recovering(self, punctuator: Punctuator) -> Punctuator:
        """Return the punctuator; a failure of it counts as that of a record without key and value."""

        def punctuate(now: int) -> None:
            try:
                punctuator(now)
            except Exception as error:  # a user's code may raise anything
                self.leave_out(error, None, None, now, "punctuation")

        return punctuate

    def count(self, what: str, amount: int = 1) -> None:
        """Count an event of this processor: a ``CounterName``, or a name of your own."""
        if amount:
            self.counters[f"{self.shown}:{what}"] += amount

    def tell_late(
        self, reason: CounterName, records: Records, late: Booleans, reached: Integers, short: Integers, allowed: int
    ) -> None:
        """Report records that were left out for their time, beside counting them.

        Args:
            reason: the name that they were counted as.
            records: records.
            late: a mask of the late ones.
            reached: the time that this processor had reached at each of the records.
            short: by how much its grace, lateness or history was too short for each.
            allowed: that grace, lateness or history.
        """
        if not late.any():
            return
        left_out, reached = chosen(records, late), reached[late]
        behind = int((reached - np.asarray(left_out.timestamps, np.int64)).max())
        self.metrics.put(TaskMetric.LATENESS, max(behind, self.metrics.figures.get(TaskMetric.LATENESS, 0)))
        if self._keep_late is not None:
            self._keep_late(LateRecords(self._place, reason, left_out, reached, short[late], allowed))

    def level(self, what: str, read: Callable[[], int]) -> None:
        """Show an amount beside what is counted; called in ``init``.

        A count says how often something happened, and adds up. A level is the amount at the moment, 0 included.

        Args:
            what: a ``CounterName``, or a name of your own.
            read: returns the level; called whenever the task's counters are read, so it must be quick.
        """
        name = f"{self.shown}:{what}"
        others = self._levels.get(name)
        self._levels[name] = read if others is None else lambda: others() + read()


class Processor(ABC):
    """Base class for processors of your own that see whole batches: override ``process``.

    Each task makes a new one. ``RecordProcessor`` is for processors that see one record at a time.

    Attributes:
        context: its stores, its children, its task's clock and counters; set by ``init``.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> class Shares(Processor):
    ...     def process(self, batch):
    ...         total = sum(batch.values)
    ...         self.context.forward(batch.with_values([value / total for value in batch.values]))
    >>> builder = StreamsBuilder()
    >>> builder.stream("votes").process(Shares).to("shares")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("votes", [("ann", 1, 10), ("ben", 3, 20)])
    ...     [record.value for record in driver.read("shares")]
    [0.25, 0.75]
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once, before the first batch, with the stores open. An override calls this one first."""
        self.context = context

    @abstractmethod
    def process(self, batch: Batch) -> None:
        """Process records and forward the results; ``batch`` is never empty."""

    def process_columns(self, columns: Columns) -> None:
        """Process records that come as Arrow columns, with the same results; ``columns`` are never empty.

        By default they become Python objects first. An override is for processors that need none.
        """
        self.process(columns.to_batch())

    def complete(self) -> None:
        """Forward everything that waits; called when the input is complete, parents before children.

        It comes out as if stream time had passed all of it. What has come out does not come out
        again; stream time stays what it is, and records that come nevertheless are treated as before.
        """

    def close(self) -> None:
        """Called once, at the end."""

"""A task: one sub-topology over the records of one partition. It is what drivers run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from millpond.errors import UnknownNameError
from millpond.metrics import Metrics
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.current_record import CurrentRecord
from millpond.processors.runtime.failures import FailurePolicy, Place, written
from millpond.processors.runtime.late import KeepLate
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.order.expiring import ExpiringStores
from millpond.processors.runtime.order.graph_order import (
    filled_for_others,
    gathering_nodes,
    separable_nodes,
    unordered_topics,
)
from millpond.processors.runtime.order.keyed_region import Edge
from millpond.processors.runtime.order.lookup_order import LookupOrder
from millpond.processors.runtime.order.resequencer import Resequencer
from millpond.processors.runtime.order.time_order import Regroup
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.punctuation import PunctuationType, Scheduler
from millpond.processors.runtime.subtopology import Subtopology, found_once
from millpond.processors.runtime.tasks.global_stores import as_reader
from millpond.processors.runtime.tasks.stream_time_reset import StreamTimeReset
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, NO_TIME, TimeUnit

_Written = TypeVar("_Written")


class _Forwarder(Operator):
    """A source: forwards the records that come in."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)

    def process_columns(self, columns: Columns) -> None:
        self.context.forward_columns(columns)


class _Collector(Operator):
    """A sink: keeps the records that come in until the driver takes them."""

    def __init__(self, output: list[Records]) -> None:
        self._output = output

    def process(self, batch: Batch) -> None:
        self._output.append(batch)

    def process_columns(self, columns: Columns) -> None:
        self._output.append(columns)


class Task:
    """Runs one sub-topology over one partition.

    The driver opens the stores, calls ``process`` with runs of records and ``settle`` after them, ``complete`` once no
    more will come, ``flush`` before each commit and ``take`` for the results, commits the stores itself, and ends
    with ``close``.

    Args:
        subtopology: the sub-topology.
        stores: its open stores, by name.
        partition: the partition whose records it gets.
        wall_clock: the wall-clock time as it begins, int milliseconds; ``punctuate`` advances it.
        policy: what happens to records for which a user's function fails; by default they fail the task.
        reset: the moment to which the times in the stores are set back first; None for none.
        keep_late: takes the records that are left out for their time; None if they are only counted.
        tables: views of tables that others keep, by the names under which processors share them.

    Attributes:
        task_id: ``<sub-topology>_<partition>``.
        metrics: its measurements; the driver clears them before each micro-batch.
    """

    def __init__(
        self,
        subtopology: Subtopology,
        stores: Mapping[str, Any],
        partition: int = 0,
        *,
        wall_clock: int = 0,
        policy: FailurePolicy | None = None,
        reset: StreamTimeReset | None = None,
        keep_late: KeepLate | None = None,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        self.subtopology = subtopology
        self.task_id = f"{subtopology.index}_{partition}"
        self.metrics = Metrics()
        self._stores = stores
        self._latest: int | None = None
        self._counts: Counter[str] = Counter()
        self._levels: dict[str, Callable[[], int]] = {}
        fresh = reset is not None and reset.apply(self.task_id, stores, self._counts)
        self._scheduler = Scheduler(wall_clock, reset.limit if reset is not None and fresh else None)
        self._policy = policy or FailurePolicy()
        self._keep_late = keep_late
        self._current = CurrentRecord()
        self._outputs: dict[str, list[Records]] = {topic: [] for topic in subtopology.sinks}
        self._processors = {name: self._make(node) for name, node in subtopology.nodes.items()}
        promises = self._promises
        self._gathering = found_once(subtopology, gathering_nodes, promises)
        self._separable = found_once(subtopology, separable_nodes, promises)
        self._arrived = 0
        self._shared: dict[str, Any] = dict(tables or {})
        self._sources = {topic: self._processors[node.name] for topic, node in subtopology.sources.items()}
        for name, node in subtopology.nodes.items():
            self._processors[name].init(self._context(node))
        self._scheduler.start()
        self._follow()
        promises = self._promises
        filled = found_once(subtopology, filled_for_others, promises).items()
        expiries = {self._processors[name]: getattr(stores[store], "expiry", None) for name, store in filled}
        expiring = {processor: expiry for processor, expiry in expiries.items() if expiry is not None}
        self._expiring = ExpiringStores(expiring) if expiring else None
        self._order = None
        if len(subtopology.sources) > 1 and self._expiring is None:
            self._order = found_once(subtopology, LookupOrder.of, promises)
        self._gates = [] if self._order is None else [self._gate(edges) for edges in self._order.gates]

    def _make(self, node: Node) -> Operator:
        if isinstance(node, SourceNode):
            return _Forwarder()
        if isinstance(node, SinkNode):
            return _Collector(self._outputs[node.topic])
        assert isinstance(node, ProcessorNode)
        return node.operator()

    def _context(self, node: Node) -> ProcessorContext:
        children = [(child, self._processors[child]) for child in node.children]
        stores = {name: self._store(node, name) for name in node.stores}
        return self._context_with(node, stores, children, node.name in self._separable)

    @property
    def _promises(self) -> dict[str, Promises]:
        """The promises of all operators as they are now."""
        return {name: processor.promises for name, processor in self._processors.items()}

    def _store(self, node: Node, name: str) -> Any:
        """Return a store as a node may use it."""
        filler = self.subtopology.global_stores.get(name)
        store = self._stores[name]
        return store if filler in (None, node.name) else as_reader(store, self.subtopology.stores[name].kind)

    def _context_with(
        self, node: Node, stores: Mapping[str, Any], children: Sequence[tuple[str, Operator]], separable: bool
    ) -> ProcessorContext:
        place = Place(node.shown or node.name, self.task_id, tuple(self.subtopology.sources), node.name)
        return ProcessorContext(
            place,
            stores,
            children,
            separable,
            self._counts,
            self._levels,
            self._scheduler,
            self._policy,
            self._shared,
            node.name in self._gathering,
            self.metrics,
            self._keep_late,
        )

    def _follow(self) -> None:
        """Let the processors that want it know the record that the task is at."""
        asking = [processor for processor in self._processors.values() if processor.promises.record_by_record]
        self._one_by_one = bool(asking)
        kept = [one for processor in asking if (one := processor.context.follow(self._current)) is not None]
        self._current.keep_in(kept)

    def _gate(self, edges: Sequence[Edge]) -> Resequencer:
        """Return a gate on edges that lead to one node, or to sinks of one topic, which are alike."""
        behind = edges[0][1]
        node = self.subtopology.nodes[behind]
        whole = self._processors[behind].promises.at_flush or self.subtopology.takes_whole(behind, self._gathering)
        gate = Resequencer(self._context_with(node, {}, [(behind, self._processors[behind])], whole))
        for parent, child in edges:
            self._processors[parent].context.put_between(child, gate)
        return gate

    @property
    def counters(self) -> Mapping[str, int]:
        """The counts of the processors, and the levels as they are now, by ``<node>:<counter>``."""
        return {**self._counts, **{name: read() for name, read in self._levels.items()}}

    def reached(self, timestamp: int) -> None:
        """Learn the greatest timestamp of a micro-batch's records, if nobody compares their times here."""
        if timestamp == NO_TIME:
            return
        self._latest = timestamp if self._latest is None else max(self._latest, timestamp)

    def measure_time(self, wall_clock: int, unit: TimeUnit) -> None:
        """Measure stream time, if any is known, while the stores are open.

        Args:
            wall_clock: the wall-clock time, in microseconds.
            unit: the unit of the records' timestamps.
        """
        lateness = self.metrics.figures.get(TaskMetric.LATENESS)
        if lateness is not None:
            self.metrics.put(TaskMetric.LATENESS, _within_64_bits(lateness * int(unit)))
        observed = [getattr(store, "observed_stream_time", None) for store in self._stores.values()]
        known = [time for time in (self._latest, *observed) if time is not None]
        if known:
            stream_time = max(known) * int(unit)
            self.metrics.put(TaskMetric.STREAM_TIME, _within_64_bits(stream_time))
            self.metrics.put(TaskMetric.STREAM_LAG, _within_64_bits(wall_clock - stream_time))

    @property
    def regroup(self) -> Regroup[str] | None:
        """Gives the inputs longer runs where the answers stay the same; None where they would not."""
        if self._order is None or self._takes_each_alone:
            return None
        return partial(self._order.regroup, self._stores)

    @property
    def _takes_each_alone(self) -> bool:
        return self._one_by_one or self._scheduler.follows_stream_time

    def process(self, topic: str, records: Records) -> None:
        """Process records of a source topic, with all effects of one before the next.

        Raises:
            TopologyError: this sub-topology does not read ``topic``.
        """
        if not len(records):
            return
        try:
            source = self._sources[topic]
        except KeyError:
            raise UnknownNameError(f"task {self.task_id} reads {sorted(self._sources)}, not {topic!r}") from None
        self.metrics.add(TaskMetric.RECORDS_IN, len(records))
        if self._expiring is None or self.subtopology.sources[topic].broadcast:
            self._process(topic, source, records)
            return
        for run in self._expiring.runs(records):
            self._process(topic, source, run)
            self.settle()

    def _process(self, topic: str, source: Operator, records: Records) -> None:
        if self._gathering:
            records = self._positioned(records)
        if self._takes_each_alone:
            for row in records.to_batch().rows():
                self._process_alone(topic, source, row)
        elif isinstance(records, Columns):
            source.process_columns(records)
        else:
            source.process(records)

    def _process_alone(self, topic: str, source: Operator, row: Batch) -> None:
        """Process the only record of ``row``, and what is due by its time."""
        current = self._current
        current.begin(topic, row, moves_time=not self.subtopology.sources[topic].broadcast)
        try:
            source.process(row)
            self.settle()
        finally:
            current.end()
        if current.stream_time is not None:
            self._scheduler.advance(PunctuationType.STREAM_TIME, current.stream_time)

    def minds_ties(self, topic: str) -> bool:
        """Return whether the order of two records of one key and time makes a difference, in a source topic."""
        return not all(self._processors[child].promises.commutes for child in self.subtopology.sources[topic].children)

    def minds_order(self, topic: str) -> bool:
        """Return whether the order of a source topic's records makes a difference, if they have no headers."""
        return topic not in found_once(self.subtopology, unordered_topics, self._promises)

    def partials_serde(self, topic: str) -> Serde[Any] | None:
        """Return the serde of partial aggregates of a source topic's records; None if there are none."""
        combiner = self._reader(topic).combiner
        return None if combiner is None else combiner.value_serde

    def process_partials(self, topic: str, partials: Records, rest: Columns | None = None) -> bool:
        """Process partial aggregates of records of a source topic, which the combiner of its only reader has made.

        Returns:
            Whether it could; if not, nothing has changed (``Operator.process_partials``).
        """
        if not self._reader(topic).process_partials(partials, rest):
            return False
        self.metrics.add(TaskMetric.RECORDS_IN, len(partials) + (0 if rest is None else len(rest)))
        return True

    def _reader(self, topic: str) -> Operator:
        (reader,) = self.subtopology.sources[topic].children
        return self._processors[reader]

    def _positioned(self, records: Records) -> Records:
        """Return stream records with their places, or as they are, or among all since the task settled."""
        if records.positions is not None:
            return records
        start = self._arrived
        self._arrived += len(records)
        return records.at(np.arange(start, self._arrived))

    def settle(self) -> None:
        """Let results go on that were made of batches with positions, by these positions.

        Called when no position before the last one is missing, and before anything else but ``process``.
        """
        self._arrived = 0
        for gate in self._gates:
            gate.release()
        for name in self._gathering:
            self._processors[name].settle()

    def advance(self, topic: str, time: int) -> None:
        """Let everything come out that waits for the time of a source topic to be ``time``, without a record.

        A driver that knows how far all tasks have come tells it after all records of a micro-batch. Then what is late
        in the next one, and what comes out of it, does not depend on which records went to which task.
        """
        self.reached(time)
        self.settle()
        if self._expiring is not None:
            self._expiring.reach(time)
        self._sources[topic].advance(time)

    def punctuate(self, wall_clock: int) -> None:
        """Fire what is due at ``wall_clock``, int milliseconds."""
        self.settle()
        self._scheduler.advance(PunctuationType.WALL_CLOCK_TIME, wall_clock)

    def complete(self) -> None:
        """Let every processor forward all that waits in it, because its input is complete; called before ``flush``.

        >>> from millpond.processors import Materialized, StreamsBuilder
        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> from millpond.stores.backend.transaction import Transaction
        >>> builder = StreamsBuilder(key_serde="string", value_serde="string")
        >>> prices = builder.table(
        ...     "prices", materialized=Materialized.versioned(history_retention=100), reorder_within=10
        ... )
        >>> prices.to_stream().to("in-order")
        >>> (part,) = builder.build().subtopologies
        >>> task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
        >>> task.process("prices", Batch(["tea", "tea"], ["3.20", "3.10"], [6, 2]))
        >>> task.take()
        {}
        >>> task.complete()
        >>> [batch.values for batch in task.take()["in-order"]]
        [['3.10', '3.20']]
        """
        self.settle()
        for processor in self._processors.values():
            # Records that a parent held back until its flush must arrive before a child lets everything go.
            _step(processor, processor.flush)
            _step(processor, processor.complete)

    def flush(self) -> None:
        """Let every processor forward what it held back; called before the stores are committed."""
        self.settle()
        for processor in self._processors.values():
            _step(processor, processor.flush)
        self._current.flush()

    def take(self) -> dict[str, list[Records]]:
        """Return the records written to each sink topic since the last call, in order."""
        taken = {topic: list(batches) for topic, batches in self._outputs.items() if batches}
        for batches in taken.values():
            self.metrics.add(TaskMetric.RECORDS_OUT, sum(map(len, batches)))
        for batches in self._outputs.values():
            batches.clear()
        return taken

    def written(self, topic: str, records: Records, write: Callable[[Records], _Written]) -> _Written:
        """Return the result of ``write`` for records of a sink topic; where it fails for a record, the sink fails.

        Args:
            topic: the sink topic.
            records: the records.
            write: turns them into bytes or columns, and changes nothing.

        Raises:
            UserFunctionError: it fails for a record, and the policy is not to leave such records out.
        """
        return written(self._processors[self.subtopology.sinks[topic].name].context, records, write)

    def close(self) -> None:
        for processor in self._processors.values():
            processor.close()


def _within_64_bits(time: int) -> int:
    return max(MIN_TIME, min(time, MAX_TIME))


def _step(processor: Operator, step: Callable[[], None]) -> None:
    """Take a step that handles no record, whose error then tells the processor.

    Raises:
        UserFunctionError: the processor is a user's, and failed.
    """
    try:
        step()
    except Exception as error:  # a user's code may raise anything
        processor.context.fail(error, step.__name__)

"""The in-process driver: runs a whole topology in this process, without Spark, for tests and small jobs.

Every call of ``pipe`` is a micro-batch: everything it triggers, also through repartition topics, is finished and
committed before the next. A micro-batch that raises leaves no trace in the stores. Each store commits by itself, so a
process killed between two of these commits leaves them inconsistent; a job that must survive that runs on Spark.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from millpond.errors import UnknownNameError
from millpond.metrics import Stopwatch, StoreMetric
from millpond.processors.options.on_error import OnError
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.batches.headers import NO_HEADERS, as_headers
from millpond.processors.runtime.failures import DeadLetter, FailurePolicy
from millpond.processors.runtime.tasks.local_tasks import LocalTasks, repartitions_of
from millpond.processors.runtime.tasks.records import Record
from millpond.processors.runtime.tasks.stream_time_reset import StreamTimeReset
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.runtime.topology import Topology
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.copies.damage import advise, is_damage
from millpond.stores.encoding.times import Instant, TimeUnit, to_instant
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreSpec

_APPLICATION: Final = "driver"
"""The application id in the stores' paths; constant, because drivers do not share a directory."""


class _Opened(NamedTuple):
    """The parts of an open store, from which the typed store can be made anew."""

    place: StoreLocation
    backend: Backend
    transaction: Transaction


class TopologyDriver:
    """Runs each sub-topology of a topology as one task.

    Args:
        topology: the topology.
        backend: the backend of stores that name none themselves: a name, a URL or a supplier.
        local_dir: the directory for files of persistent backends, for a later driver to find; a temporary one unless
            given. Use it for one topology only: stores are found by sub-topology and name alone.
        on_error: what happens to a record for which a user's function fails: ``"fail"``, ``"skip"`` or
            ``"dead-letter"``.
        reset_stream_time: the moment to which a later stream time is set back before the first record; once
            for each moment.

    Attributes:
        dead_letters: with ``"dead-letter"`` the records that were left out so far, in order.

    Records may be of any time: how far ahead of the wall clock they are is judged on Spark only.

    Raises:
        ConfigurationError: there is no such policy.
        FormatError: a store's directory is in a format version that is unknown, or later than the store's kind.
        BackendInUseError: another driver has the stores open, and the engine does not share them.

    >>> from millpond.processors import Consumed, StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> words = builder.stream("words", Consumed("string", "string"))
    >>> words.group_by_key().count().to("counts")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe("words", "mill", "x", timestamp=1)
    ...     driver.pipe("words", "mill", "y", timestamp=2)
    ...     driver.read("counts")
    [Record(key='mill', value=1, timestamp=1), Record(key='mill', value=2, timestamp=2)]
    """

    def __init__(
        self,
        topology: Topology,
        *,
        backend: str | BackendSupplier = "memory",
        local_dir: str | Path | None = None,
        on_error: str | OnError = OnError.FAIL,
        reset_stream_time: Instant | None = None,
    ) -> None:
        self._topology = topology
        chosen = OnError.of(on_error)
        self.dead_letters: list[DeadLetter] = []
        self._buried: list[DeadLetter] = []
        self._policy = FailurePolicy(chosen, self._buried.append if chosen is OnError.DEAD_LETTER else None)
        self._default = supplier(backend)
        self._temporary = tempfile.TemporaryDirectory(prefix="millpond-") if local_dir is None else None
        self._directory = Path(self._temporary.name if self._temporary is not None else str(local_dir))
        self._opened: dict[tuple[int, str], _Opened] = {}
        self._outputs: dict[str, list[Records]] = {topic: [] for topic in topology.sinks}
        self._repartitions = repartitions_of(topology)
        self._wall_clock = 0
        self._reset = None
        if reset_stream_time is not None:
            self._reset = StreamTimeReset(to_instant(reset_stream_time, "reset_stream_time"), TimeUnit.MILLISECOND)
        try:
            for part in topology.subtopologies:
                for spec in part.stores.values():
                    self._opened[part.index, spec.name] = self._open(spec, f"{part.index}_0")
            self._start()
        except BaseException as error:
            self._advise(error)
            self._close_backends()
            raise

    def _open(self, spec: StoreSpec, task_id: str) -> _Opened:
        place = StoreLocation.of(
            spec, self._default, local_dir=self._directory, application_id=_APPLICATION, task_id=task_id
        )
        backend = place.open()
        return _Opened(place, backend, Transaction(backend))

    def _start(self) -> None:
        """Make the typed stores and the tasks anew, as of the last commit."""
        self._stores = {name: opened.place.spec.open(opened.transaction) for name, opened in self._opened.items()}
        tasks = [
            Task(
                part,
                {name: self._stores[part.index, name] for name in part.stores},
                wall_clock=self._wall_clock,
                policy=self._policy,
                reset=self._reset,
            )
            for part in self._topology.subtopologies
        ]
        self._local = LocalTasks(self._topology, tasks, self._repartitions)

    def pipe(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS,
    ) -> None:
        """Process one record of a source topic, and what it leads to, as Kafka Streams does.

        Args:
            topic: the topic.
            key, value: the record's.
            timestamp: int milliseconds.
            headers: pairs of a name, which may repeat, and bytes or None.

        Raises:
            TypeError: a header is not such a pair.
        """
        carried = as_headers(headers)
        self._pipe({topic: Batch([key], [value], [timestamp], headers=[carried] if carried else None)}, Order.ARRIVAL)

    def pipe_all(self, topic: str, records: Iterable[tuple[Any, Any, int]]) -> None:
        """Process records ``(key, value, timestamp)`` of one topic as one micro-batch; each may be a ``Record``.

        They are taken in the order of the topology (``StreamsBuilder(order=...)``): by default in the order of time,
        and at equal times as they are given here.
        """
        rows = list(records)
        if rows:
            headers = [getattr(row, "headers", NO_HEADERS) for row in rows]
            keys, values, timestamps = (list(column) for column in zip(*rows, strict=True))
            self.pipe_batch(topic, Batch(keys, values, timestamps, headers=headers if any(headers) else None))

    def pipe_batch(self, topic: str, batch: Records) -> None:
        """Process records of one topic, a batch or columns, as one micro-batch.

        Raises:
            TopologyError: the topology does not read ``topic``.
        """
        self.pipe_inputs({topic: batch})

    def pipe_inputs(self, inputs: Mapping[str, Records]) -> None:
        """Process records of several topics, batches or columns, as one micro-batch, in the topology's order.

        Raises:
            TopologyError: the topology does not read one of the topics.
        """
        self._pipe(inputs, self._topology.order)

    def _pipe(self, inputs: Mapping[str, Records], order: Order) -> None:
        for topic in inputs:
            if topic not in self._topology.sources:
                raise UnknownNameError(f"the topology reads {sorted(self._topology.sources)}, not {topic!r}")
        self._micro_batch(lambda tasks: tasks.run(inputs, order))

    def advance_wall_clock(self, milliseconds: int) -> None:
        """Advance the driver's clock, which starts at 0 and moves only by this, and fire what is due."""
        self._wall_clock += milliseconds
        self._micro_batch(lambda tasks: tasks.punctuate(self._wall_clock))

    def complete(self) -> None:
        """Let everything come out that waits for later records, because the input is complete; one micro-batch.

        Records that wait for a grace period, updates that wait for a window's end or a time limit, and records that
        wait for a partner come out as if stream time had passed all of them, also through repartition topics. Stream
        time stays what it is: records that come nevertheless are treated as before.

        >>> from millpond.processors import EmitStrategy, StreamsBuilder, TimeWindows
        >>> builder = StreamsBuilder(key_serde="string", value_serde="string")
        >>> hourly = builder.stream("clicks").group_by_key().windowed_by(TimeWindows(3_600_000))
        >>> hourly.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("hourly")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("clicks", "ann", "page", timestamp=5)
        ...     waiting = driver.read("hourly")
        ...     driver.complete()
        ...     waiting, driver.read("hourly")
        ([], [Record(key=Windowed(key='ann', start=0, end=3600000), value=1, timestamp=5)])
        """
        self._micro_batch(LocalTasks.complete)

    def read(self, topic: str) -> list[Record]:
        """Return the records written to a sink topic since the last read, in order.

        Raises:
            TopologyError: the topology does not write ``topic``.
        """
        return [
            Record(key, value, timestamp, headers or NO_HEADERS)
            for batch in self.read_batches(topic)
            for key, value, timestamp, headers in zip(
                batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True
            )
        ]

    def read_batches(self, topic: str) -> list[Batch]:
        """Return what ``read`` does, as batches."""
        return [run.to_batch() for run in self.read_runs(topic)]

    def read_runs(self, topic: str) -> list[Records]:
        """Return what ``read`` does, as batches or columns, in the form in which they came out."""
        if topic not in self._outputs:
            raise UnknownNameError(f"the topology writes {sorted(self._outputs)}, not {topic!r}")
        runs, self._outputs[topic] = self._outputs[topic], []
        return runs

    def store(self, name: str) -> Any:
        """Return the typed store ``name``, for inspection between micro-batches.

        Raises:
            TopologyError: the topology has no such store.
        """
        # Several tasks may hold copies of a global table, which are equal.
        for (_, other), store in self._stores.items():
            if other == name:
                return store
        used = sorted({store for _, store in self._stores})
        raise UnknownNameError(f"the processors of the topology use the stores {used}, not {name!r}")

    @property
    def counters(self) -> Mapping[str, int]:
        """The counts of all tasks so far, and the levels of what waits in them now, by ``<node>:<counter>``."""
        return {name: amount for task in self._local.tasks for name, amount in task.counters.items()}

    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """Return the measurements of the last micro-batch: each task's figures, by its id (docs/metrics.md).

        There are no durable files here, and the wall clock is the driver's own.
        """
        return {task.task_id: task.metrics.figures for task in self._local.tasks}

    def close(self) -> None:
        """Close tasks and stores, and delete the temporary directory. It may be called twice."""
        self._local.close()
        for store in self._stores.values():
            store.close()
        self._close_backends()
        self._stores, self._opened = {}, {}

    def _close_backends(self) -> None:
        for opened in self._opened.values():
            opened.transaction.close()
            opened.backend.close()
        if self._temporary is not None:
            for opened in self._opened.values():
                delete_local_copy(opened.place.supplier, opened.place.directory)
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _micro_batch(self, process: Callable[[LocalTasks], None]) -> None:
        """Process, flush and commit."""
        for task in self._local.tasks:
            task.metrics.clear()
        try:
            process(self._local)
            self._local.flush()
            for (index, _), store in self._stores.items():
                with self._local.tasks[index].metrics.timed(StoreMetric.COMMIT_DURATION):
                    store.flush()
        except BaseException as error:
            self._advise(error)
            for opened in self._opened.values():
                opened.transaction.rollback()
            self._buried.clear()
            self._start()
            raise
        outputs = self._local.take()
        self._commit()
        self.dead_letters += self._buried
        self._buried.clear()
        for topic, runs in outputs.items():
            self._outputs[topic].extend(runs)

    def _advise(self, error: BaseException) -> None:
        """Note on an error of damage what to do: there are no durable files to restore the stores from."""
        if is_damage(error):
            place = "" if self._temporary is not None else f" and delete {self._directory / _APPLICATION}"
            advise(error, f"close the driver{place}, and give all records to a new one")

    def _commit(self) -> None:
        for task in self._local.tasks:
            task.measure_time(self._wall_clock * 1_000, TimeUnit.MILLISECOND)
        for (index, name), opened in self._opened.items():
            metrics, watch = self._local.tasks[index].metrics, Stopwatch()
            metrics.add(StoreMetric.COMMIT_ROWS, opened.transaction.changed_keys, name)
            opened.transaction.commit()
            took = watch.lap()
            metrics.add(StoreMetric.ENGINE_DURATION, took, name)
            metrics.add(StoreMetric.COMMIT_DURATION, took)

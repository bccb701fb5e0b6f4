"""The in-process driver: runs a whole topology here, without Spark, for tests and small jobs.

Every call of ``pipe`` is a micro-batch: what it triggers, also through repartition topics, is finished and committed
before the next.
"""

import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from millpond.errors import TopologyError
from millpond.processors.batch import Batch
from millpond.processors.task import Task
from millpond.processors.topology import Topology
from millpond.stores.backend import Backend, BackendSupplier
from millpond.stores.directory import store_directory
from millpond.stores.migration import open_directory
from millpond.stores.registry import supplier
from millpond.stores.specs import StoreSpec
from millpond.stores.transaction import Transaction


class Record(NamedTuple):
    """One record that came out."""

    key: Any
    value: Any
    timestamp: int


class TopologyDriver:
    """Runs each sub-topology of a topology as one task.

    Args:
        topology: what to run.
        backend: the backend of the stores that name none themselves: a name, a URL or a supplier.
        local_dir: where persistent backends keep their files; a temporary directory unless given.

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
    ) -> None:
        self._topology = topology
        self._default = supplier(backend)
        self._temporary = tempfile.TemporaryDirectory(prefix="millpond-") if local_dir is None else None
        self._directory = Path(self._temporary.name if self._temporary is not None else str(local_dir))
        self._backends: list[Backend] = []
        self._transactions: list[Transaction] = []
        self._stores: dict[str, Any] = {}
        self._outputs: dict[str, list[Batch]] = {topic: [] for topic in topology.sinks}
        self._pending: dict[str, deque[Batch]] = {topic: deque() for topic in sorted(topology.internal_topics)}
        self._wall_clock = 0
        self._tasks = [self._start(index) for index in range(len(topology.subtopologies))]
        self._readers = {topic: task for task in self._tasks for topic in task.subtopology.sources}

    def _start(self, index: int) -> Task:
        part = self._topology.subtopologies[index]
        stores = {name: self._open(spec, f"{index}_0") for name, spec in part.stores.items()}
        self._stores.update(stores)
        return Task(part, stores)

    def _open(self, spec: StoreSpec, task_id: str) -> Any:
        chosen = self._default if spec.backend is None else supplier(spec.backend)
        backend = open_directory(chosen, store_directory(self._directory, "driver", task_id, chosen.name, spec), spec)
        transaction = Transaction(backend)
        self._backends.append(backend)
        self._transactions.append(transaction)
        return spec.open(transaction)

    def pipe(self, topic: str, key: Any, value: Any, timestamp: int) -> None:
        """Process one record of a source topic; ``timestamp`` in int milliseconds."""
        self.pipe_batch(topic, Batch([key], [value], [timestamp]))

    def pipe_all(self, topic: str, records: Iterable[tuple[Any, Any, int]]) -> None:
        """Process records ``(key, value, timestamp)`` of one topic as one micro-batch."""
        columns = [list(column) for column in zip(*records, strict=True)]
        if columns:
            self.pipe_batch(topic, Batch(*columns))

    def pipe_batch(self, topic: str, batch: Batch) -> None:
        """Process a batch of records of one topic as one micro-batch.

        Raises:
            TopologyError: the topology does not read ``topic``.
        """
        if topic not in self._topology.sources:
            raise TopologyError(f"the topology reads {sorted(self._topology.sources)}, not {topic!r}")
        self._readers[topic].process(topic, batch)
        self._settle()

    def advance_wall_clock(self, milliseconds: int) -> None:
        """Move the driver's clock, which starts at 0 and moves in no other way, and fire what is due."""
        self._wall_clock += milliseconds
        for task in self._tasks:
            task.punctuate(self._wall_clock)
        self._settle()

    def read(self, topic: str) -> list[Record]:
        """What has come out on a sink topic since the last read, in order."""
        return [
            Record(key, value, timestamp)
            for batch in self.read_batches(topic)
            for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ]

    def read_batches(self, topic: str) -> list[Batch]:
        """The same as batches."""
        if topic not in self._outputs:
            raise TopologyError(f"the topology writes {sorted(self._outputs)}, not {topic!r}")
        batches, self._outputs[topic] = self._outputs[topic], []
        return batches

    def store(self, name: str) -> Any:
        """The typed store ``name``, for looking at it between records.

        Raises:
            TopologyError: the topology has no such store.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise TopologyError(f"the topology has the stores {sorted(self._stores)}, not {name!r}") from None

    @property
    def counters(self) -> Mapping[str, int]:
        """What all tasks counted so far: dropped and late records, by ``<node>:<what>``."""
        return {name: amount for task in self._tasks for name, amount in task.counters.items()}

    def close(self) -> None:
        """Close tasks and stores, and delete the temporary directory. Closing twice is no error."""
        for task in self._tasks:
            task.close()
        for store in self._stores.values():
            store.close()
        for backend in self._backends:
            backend.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        self._tasks, self._stores, self._backends = [], {}, []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self) -> None:
        """Run the repartition topics dry, flush, run dry again, and commit."""
        self._drain()
        for task in self._tasks:
            task.flush()
            self._drain()
        for store in self._stores.values():
            store.flush()
        for transaction in self._transactions:
            transaction.commit()

    def _drain(self) -> None:
        self._collect()
        while waiting := [topic for topic, batches in self._pending.items() if batches]:
            topic = min(waiting, key=lambda name: self._pending[name][0].timestamps[0])
            self._readers[topic].process(topic, self._pending[topic].popleft())
            self._collect()

    def _collect(self) -> None:
        for task in self._tasks:
            for topic, batches in task.take().items():
                if topic in self._pending:
                    self._pending[topic].extend(batches)
                else:
                    self._outputs[topic].extend(batches)

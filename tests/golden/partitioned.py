"""A topology in several partitions: one ``TopologyDriver`` for each task, and repartition topics between.

Rule of this module: it follows what the documentation says of micro-batches and partitions, with none of the code that
distributed drivers share, for topologies that take records in the order of arrival. A record goes to the partition of
its key's CRC-32, without the key's window if its source says so. A task gets what all tasks before it sent in one
micro-batch, with the records of one topic in the order of the largest timestamp that their sender has shown so far, and
ties in the order of senders. What keeps no state and reads the user's topics runs before there are partitions, one
topic after the other.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple, Self
from zlib import crc32

from millpond.processors import Batch, OnError, Topology, TopologyDriver
from millpond.processors.runtime.nodes import SinkNode
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.local_tasks import Repartition
from millpond.stores.encoding.serdes import serde
from millpond.stores.typed.windows.windowed import SUFFIX_SIZES
from tests.golden.sampling import MicroBatch, Record


class Result(NamedTuple):
    """A record that came out.

    Attributes:
        key, value, timestamp: the record.
        task: the stateful task that wrote it; None where nothing orders the records of a key.
    """

    key: Any
    value: Any
    timestamp: int
    task: tuple[int, int] | None


class PartitionedDriver:
    """A topology as so many partitions of each sub-topology that keeps state or reads a repartition topic."""

    def __init__(self, topology: Topology, partitions: int, on_error: OnError) -> None:
        self._topology = topology
        self._partitions = partitions
        self._open = ExitStack()
        self._drivers: dict[tuple[int, int], TopologyDriver] = {}
        for part in topology.subtopologies:
            for partition in range(1 if self._before_partitions(part) else partitions):
                alone = Topology(part.nodes, part.stores, (), self._topology.order)
                driver = TopologyDriver(alone, on_error=on_error)
                self._drivers[part.index, partition] = self._open.enter_context(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def micro_batch(self, inputs: MicroBatch) -> dict[str, list[Result]]:
        """Return what comes out at each sink, in the order of its tasks.

        Raises:
            MillpondError: a record failed.
        """
        flow = _Flow(self._topology, self._partitions, inputs)
        for part in self._topology.subtopologies:
            if self._before_partitions(part):
                self._run_map_side(part, inputs, flow)
            else:
                for partition in range(self._partitions):
                    self._run_task(part, partition, flow)
        return dict(flow.results)

    def _before_partitions(self, part: Subtopology) -> bool:
        return not part.stores and not set(part.sources) & self._topology.internal_topics

    def _run_map_side(self, part: Subtopology, inputs: MicroBatch, flow: "_Flow") -> None:
        driver = self._drivers[part.index, 0]
        for split, topic in enumerate(part.sources):
            driver.pipe_all(topic, inputs[topic])
            flow.collect(part, driver, split, None)

    def _run_task(self, part: Subtopology, partition: int, flow: "_Flow") -> None:
        driver = self._drivers[part.index, partition]
        driver.pipe_inputs({topic: _batch(records) for topic, records in flow.arrived(part, partition) if records})
        flow.collect(part, driver, partition, (part.index, partition) if part.stores else None)


class _Flow:
    """The records of one micro-batch on their way."""

    def __init__(self, topology: Topology, partitions: int, inputs: MicroBatch) -> None:
        self.results: dict[str, list[Result]] = defaultdict(list)
        self._topology = topology
        self._partitions = partitions
        self._readers = {topic: part for part in topology.subtopologies for topic in part.sources}
        self._waiting: dict[tuple[str, int], dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for topic, source in topology.sources.items():
            # No operator sees a record of a source without a key: it has no partition.
            keyed = [record for record in inputs[topic] if record[0] is not None]
            writer = serde(source.consumed.key_serde or "bytes")
            for record in keyed:
                for partition in range(partitions) if source.broadcast else [self._partition(writer, record, 0)]:
                    self._waiting[topic, partition][0].append(record)

    def _partition(self, writer: Any, record: Record, behind_key: int) -> int:
        key = b"" if record[0] is None else writer.serialize(record[0])
        return crc32(key[: len(key) - behind_key]) % self._partitions

    def arrived(self, part: Subtopology, partition: int) -> Iterator[tuple[str, list[Record]]]:
        """Yield what waits for a task, by topic."""
        for topic in part.sources:
            senders = self._waiting[topic, partition]
            yield topic, _in_order_of_time([senders[number] for number in sorted(senders)])

    def collect(self, part: Subtopology, driver: TopologyDriver, sender: int, task: tuple[int, int] | None) -> None:
        """Take what a task has written: results, and records for the tasks behind it."""
        for topic, sink in part.sinks.items():
            records = driver.read(topic)
            if topic not in self._topology.internal_topics:
                self.results[topic] += [Result(record.key, record.value, record.timestamp, task) for record in records]
            elif records:
                self._send(topic, sink, records, sender)

    def _send(self, topic: str, sink: SinkNode, records: Sequence[Any], sender: int) -> None:
        """Send records through their serdes to the tasks of their keys."""
        source = self._readers[topic].sources[topic]
        passage = Repartition.between(topic, sink.produced, source.consumed)
        arrived = passage.transfer(_batch(records)).to_batch()
        writer = serde(sink.produced.key_serde or "bytes")
        behind_key = SUFFIX_SIZES[writer.name] if source.without_window else 0
        moved = zip(arrived.keys, arrived.values, arrived.timestamps, strict=True)
        for written, record in zip(records, moved, strict=True):
            self._waiting[topic, self._partition(writer, written, behind_key)][sender].append(record)


def _in_order_of_time(queues: Sequence[list[Record]]) -> list[Record]:
    """Return the records of a topic's senders, each as soon as its sender's largest timestamp so far is due."""
    entries = [
        (reached, number, place)
        for number, records in enumerate(queues)
        for place, reached in enumerate(accumulate((record[2] for record in records), max))
    ]
    return [queues[number][place] for _, number, place in sorted(entries)]


def _batch(records: Sequence[Any]) -> Batch:
    return Batch(*map(list, zip(*records, strict=True)))


def answers(
    topology: Topology, batches: Sequence[MicroBatch], partitions: int, on_error: OnError
) -> Iterator[Mapping[str, list[Result]]]:
    """Yield the output of each micro-batch at each sink; end with the error of the record that fails."""
    with PartitionedDriver(topology, partitions, on_error) as driver:
        for batch in batches:
            yield driver.micro_batch(batch)

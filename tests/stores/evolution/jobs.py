"""Topologies in many partitions, without Spark: every task has stores of its own, and durable files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millpond.processors import Batch, Task, Topology
from millpond.stores.durability import Storage
from millpond.stores.encoding.partitions import NO_KEY, partition_of
from millpond.stores.encoding.serdes import BYTES, serde
from millpond.stores.evolution.shape import Shape, StoreShape
from tests.stores.evolution import queries
from tests.stores.evolution.queries import Tasks


class Input(NamedTuple):
    """A record of a topic."""

    topic: str
    key: Any
    value: Any
    timestamp: int


def shape_of(topology: Topology, partitions: int, global_stores: Iterable[str] = ()) -> Shape:
    stores = []
    for part in topology.subtopologies:
        keys = {serde(source.consumed.key_serde or BYTES).name for source in part.sources.values()}
        for name, spec in part.stores.items():
            stores.append(
                StoreShape(
                    part.index,
                    name,
                    spec.kind,
                    spec.key_serde.name,
                    spec.value_serde.name,
                    spec.layout,
                    min(keys),
                    name in global_stores,
                )
            )
    return Shape(partitions, tuple(stores))


class Job:
    """The tasks of a topology."""

    def __init__(self, storage: Storage, topology: Topology, partitions: int, manifests: Tasks | None = None) -> None:
        self.topology = topology
        self.partitions = partitions
        known = manifests or {}
        self._tasks = {}
        for part in topology.subtopologies:
            specs = list(part.stores.values())
            for partition in range(partitions):
                place = part.index, partition
                self._tasks[place] = queries.Task(storage, specs, f"{part.index}_{partition}", known.get(place))

    @property
    def manifests(self) -> Tasks:
        return {place: task.manifest for place, task in self._tasks.items()}

    def run(self, records: Sequence[Input], *, complete: bool = False) -> Counter[tuple[Any, ...]]:
        """Return what comes out of one micro-batch."""
        arrived = list(records)
        for part in self.topology.subtopologies:
            made: list[Input] = []
            for partition in range(self.partitions):
                stores = self._tasks[part.index, partition]
                task = Task(part, stores.stores, partition)
                for topic, key, value, timestamp in arrived:
                    if topic in part.sources and partition in self._partitions_of(part.sources[topic], key):
                        task.process(topic, Batch([key], [value], [timestamp]))
                        task.settle()
                if complete:
                    task.complete()
                task.flush()
                for topic, runs in task.take().items():
                    for batch in (run.to_batch() for run in runs):
                        rows = zip(batch.keys, batch.values, batch.timestamps, strict=True)
                        made += [Input(topic, *row) for row in rows]
                task.close()
                stores.commit()
            arrived += made
        topics = self.topology.sinks
        return Counter(tuple(map(repr, record)) for record in arrived if record.topic in topics)

    def _partitions_of(self, source: Any, key: Any) -> Iterable[int]:
        if source.broadcast:
            return range(self.partitions)
        raw = NO_KEY if key is None else serde(source.consumed.key_serde or BYTES).serialize(key)
        return [partition_of(raw, self.partitions)]


def carried(
    storage: Storage, job: Job, partitions: int, layouts: Mapping[str, Any], global_stores: Iterable[str] = ()
) -> Job:
    """Return the same job in as many partitions."""
    before, after = (shape_of(job.topology, number, global_stores) for number in (job.partitions, partitions))
    manifests = queries.carry(storage, before, after, job.manifests, layouts)
    return Job(storage, job.topology, partitions, manifests)


def everywhere(topics: Iterable[str], value: Any, timestamp: int, *numbers: int) -> list[Input]:
    """Return records of one time that reach every partition, whichever of ``numbers`` there are."""
    reached: set[tuple[int, int]] = set()
    records = []
    for key in (f"tick-{i}" for i in range(1000)):
        new = {(number, partition_of(key.encode(), number)) for number in numbers} - reached
        if new:
            reached |= new
            records += [Input(topic, key, value, timestamp) for topic in topics]
    return records

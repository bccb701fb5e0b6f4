"""A query of verbs on Spark without Spark: micro-batches in splits, blobs in any order, tasks with what they keep.

A micro-batch counts once all of its tasks have committed; one that dies before is run again, by a process that finds
what the other has left. What a verb puts out is what the next one reads, in as many splits as there were tasks. Verbs
that share operators are run in ``operators``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
from pyspark import cloudpickle

from millpond.processors.distribution.combining import Combining, Sent, of_input
from millpond.processors.distribution.exchange import (
    COMPLETE,
    TIME,
    Blob,
    BlobWriter,
    signal_blobs,
)
from millpond.processors.distribution.execution import Decoder, run_blobs
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.part_rows import PartRows
from millpond.processors.rows.row_source import RowSource
from millpond.processors.rows.sink_rows import SinkRows
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.late import LateRecords
from millpond.processors.runtime.task import Task
from millpond.stores.encoding.times import TimeUnit
from tests.metamorphic.keeping import Keeper
from tests.metamorphic.tables import Selection
from tests.metamorphic.verbs import Made

pc: Any = _compute
shipping: Any = cloudpickle

EVENT_TIMES = EventTimes(TimeUnit.MICROSECOND, None)
ON_ERROR = OnError.FAIL
Tables = Mapping[str, Sequence[pa.Table]]
"""The splits of each input."""


class DeathError(Exception):
    """The process is gone."""


@dataclass
class Deaths:
    """Ends a process when it has run so many tasks; None for never."""

    left: int | None = None

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise DeathError


@dataclass(frozen=True)
class PartColumns:
    """The columns of a verb's result, as a sink: what ``RowSink`` makes blobs of."""

    topic: str
    rows: PartRows

    @property
    def ddl(self) -> str:
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def to_table(self, records: Records, first: int) -> pa.Table:
        return self.rows.to_table(records, first)


@dataclass(frozen=True)
class Reading:
    """How the rows of one input of a verb reach its tasks."""

    selection: Selection
    source: RowSource
    route: Route
    combining: Combining | None

    def blobs(self, splits: Sequence[pa.Table]) -> Iterator[Blob]:
        for number, split in enumerate(splits):
            if split.num_rows:
                yield from self._split(self.selection.of(split), number)

    def _split(self, rows: pa.Table, number: int) -> Iterator[Blob]:
        reader, writer = self.source.reader(number), BlobWriter(number)
        usable = reader.usable(rows)
        for sent, partial in [Sent(usable)] if self.combining is None else self.combining.split(usable):
            records, keys = reader.packed(sent, partial=partial)
            yield from self.route.send(records, keys, writer, partial=partial)
        newest = pc.max(usable["timestamp"]).as_py()
        if newest is not None:
            yield from self.route.tell_time(newest, number)


@dataclass
class RunningVerb:
    """A verb with so many tasks in each operator.

    Attributes:
        made: the verb, and whose rows it reads.
        partitions: how many.
        late: what its tasks have told in the micro-batch that is running.
    """

    made: Made
    partitions: int
    late: list[LateRecords] = field(default_factory=list)

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.made.verb.topology, self.made.verb.name, self.partitions)

    @cached_property
    def numbers(self) -> TaskNumbers:
        tasks = [(part.index, partition) for part in self.plan.parts for partition in range(self.partitions)]
        return {task: number for number, task in enumerate(tasks)}

    @cached_property
    def readings(self) -> dict[str, Reading]:
        verb, found = self.made.verb, {}
        for topic, selection in self.made.selections.items():
            source = RowSource(verb.inputs[topic], "key", "time", "op", EVENT_TIMES, self.made.value_serde, ON_ERROR)
            route, combining = Route(self.plan, topic, self.numbers), of_input(self.plan, topic, None)
            found[topic] = Reading(selection, source, route, combining)
        return found

    @cached_property
    def decoders(self) -> dict[str, Decoder]:
        found = {topic: reading.source.decoder for topic, reading in self.readings.items()}
        internal = self.plan.internal_topics.items()
        return found | {topic: Decoder.of_repartition_topic(topic, consumed) for topic, consumed in internal}

    def run(
        self, batch: int, inputs: Tables, complete: bool, keeper: Keeper, deaths: Deaths, random: Random
    ) -> list[pa.Table]:
        """One micro-batch; what comes out of each task of the last operator."""
        blobs = self._arriving(inputs)
        if complete:
            blobs += signal_blobs(COMPLETE, self.numbers.values())
        sink = PartColumns(self.made.verb.name, PartRows(self.made.verb.parts, self.made.verb.schema))
        results: list[pa.Table] = []
        for stage in self.plan.stages:
            random.shuffle(blobs)
            arrived = defaultdict[int, list[Blob]](list)
            for blob in blobs:
                arrived[blob.task].append(blob)
            results = []
            for part in stage:
                router = Router(self.plan, part, self.numbers)
                for partition in range(self.partitions):
                    some = arrived.pop(self.numbers[part.index, partition], None)
                    if some is None:
                        continue
                    deaths.step()
                    with keeper.task(f"{sink.topic}/{part.index}_{partition}", part, self.plan) as stores:
                        task = Task(part, stores, partition, keep_late=self.late.append)
                        rows, writer = SinkRows(sink, batch), BlobWriter(partition)
                        made: list[pa.Table] = []
                        for outputs in run_blobs(task, some, self.decoders, 0, settle_ties=True):
                            made += rows.to_tables(outputs)
                            for blob in router.send(outputs, writer):
                                arrived[blob.task].append(blob)
                        results += [pa.concat_tables(made)] if made else []
            blobs = [blob for waiting in arrived.values() for blob in waiting]
        random.shuffle(results)
        return results

    def _arriving(self, inputs: Tables) -> list[Blob]:
        """What reaches its tasks from outside."""
        blobs = [blob for topic, reading in self.readings.items() for blob in reading.blobs(inputs[topic])]
        return blobs if self.made.verb.follows_time else [blob for blob in blobs if blob.input != TIME]


class Query:
    """Verbs that are run together, each after those whose rows it reads.

    Args:
        chain: the verbs.
        partitions: of each.
        keeper: where their tasks keep what they keep.
        random: in which order blobs come.

    Attributes:
        late: by verb, what its tasks have told of late records, micro-batch by micro-batch.
    """

    def __init__(self, chain: Sequence[Made], partitions: Sequence[int], keeper: Keeper, random: Random) -> None:
        self._verbs = [RunningVerb(made, number) for made, number in zip(chain, partitions, strict=True)]
        self._keeper = keeper
        self._random = random
        self._batch = 0
        self.late: dict[str, list[list[LateRecords]]] = {made.verb.name: [] for made in chain}

    def restarted(self) -> "Query":
        """The query that goes on with what this one keeps, with verbs as they come to another process."""
        self._keeper.restart()
        chain, partitions = zip(*((verb.made, verb.partitions) for verb in self._verbs), strict=True)
        query = Query(shipping.loads(shipping.dumps(chain)), partitions, self._keeper, self._random)
        query._batch = self._batch
        query.late = self.late
        return query

    @property
    def told(self) -> dict[str, list[list[Any]]]:
        """By verb, the late records of each micro-batch, as key, value, time, reached and short."""
        return {name: [_told(some) for some in told] for name, told in self.late.items()}

    def run(self, inputs: Tables, *, complete: bool = False, deaths: Sequence[int] = ()) -> list[pa.Table]:
        """One micro-batch, which dies each time that so many tasks have run, and then lives; the last verb's rows."""
        for death in [*deaths, None]:
            for verb in self._verbs:
                verb.late = []
            try:
                results = self._run(inputs, complete, Deaths(death))
                break
            except DeathError:
                self._keeper.die()
        self._keeper.commit()
        for verb in self._verbs:
            self.late[verb.made.verb.name].append(verb.late)
        self._batch += 1
        return results

    def _run(self, inputs: Tables, complete: bool, deaths: Deaths) -> list[pa.Table]:
        known: dict[str, Sequence[pa.Table]] = dict(inputs)
        results: list[pa.Table] = []
        for verb in self._verbs:
            made = verb.made
            own = {topic: known.get(source, ()) for topic, source in made.sources.items()}
            results = verb.run(self._batch, own, complete, self._keeper, deaths, self._random)
            known[made.verb.name] = results
        return results


def _told(late: Sequence[Any]) -> list[tuple[Any, ...]]:
    found = []
    for one in late:
        batch = one.records.to_batch()
        found += list(
            zip(batch.keys, batch.values, batch.timestamps, one.reached.tolist(), one.short.tolist(), strict=True)
        )
    return found

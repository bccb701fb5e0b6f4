"""A query of verbs on Spark without Spark: micro-batches in splits, blobs in any order, tasks with what they keep.

A micro-batch counts once all of its tasks have committed; one that dies before is run again, by a process that finds
what the other has left. What a verb puts out is what the next one reads, in as many splits as there were tasks. Where
verbs share an operator, a task reads what the same task of the verb before it puts out, and both have the same clock.
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

from millpond.adapters.spark.rows.event_times import EventTimes
from millpond.adapters.spark.rows.sink import SinkRows
from millpond.adapters.spark.verbs.sink import PartRows
from millpond.adapters.spark.verbs.source import RowSource
from millpond.processors.distribution.combining import Combining, Sent, of_input
from millpond.processors.distribution.exchange import (
    COMPLETE,
    TIME,
    Blob,
    BlobWriter,
    signal_blobs,
    time_blobs,
    told_times,
)
from millpond.processors.distribution.execution import Decoder, run_blobs
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.late import LateRecords
from millpond.processors.runtime.task import Task
from millpond.processors.verbs.null_keys import NullKeys
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

    def within_a_task(self, tables: Sequence[pa.Table], task: int, input_: int) -> Iterator[Blob]:
        """The rows that another verb's task has made for this one."""
        reader, writer = self.source.reader(task), BlobWriter(task)
        for table in tables:
            usable = reader.usable(self.selection.of(table))
            if usable.num_rows:
                yield from writer.cut(reader.packed(usable)[0], task, input_)


@dataclass
class RunningVerb:
    """A verb with so many tasks in each operator.

    Attributes:
        made: the verb, and whose rows it reads.
        partitions: how many.
        before: by topic, the verbs whose operator it shares, and whose results the topic has.
        late: what its tasks have told in the micro-batch that is running.
        tables: what its tasks have put out in it, by partition.
        times: how far its inputs have come in it.
    """

    made: Made
    partitions: int
    before: dict[str, "RunningVerb"] = field(default_factory=dict)
    late: list[LateRecords] = field(default_factory=list)
    tables: dict[int, list[pa.Table]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def may_share(self, topic: str, other: "RunningVerb") -> bool:
        """Whether it may share the operator of the verb whose results the topic has, as ``Sharing`` decides it."""
        one, selection = other.made, self.made.selections[topic]
        keys, time = ([selection.rows.paths[name] for name in names] for names in (selection.keys, [selection.time]))
        own = self.made.verb.inputs[topic].null_keys
        alone = own in (NullKeys.APART, NullKeys.DROPPED) or all(read.keyed for read in one.selections.values())
        others = {input_.null_keys for input_ in one.verb.inputs.values()}
        return (
            self.plan.alone
            and other.plan.alone
            and not one.account.kind.startswith("apply")
            and keys == [(name,) for name in next(iter(one.selections.values())).keys]
            and (alone or (own is NullKeys.EQUAL and others == {NullKeys.EQUAL}))
            and (not self.made.verb.follows_time or one.account.bounds.get(time[0]) is not None)
        )

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
        self.tables = {}
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
                        self.tables[partition] = made
            blobs = [blob for waiting in arrived.values() for blob in waiting]
        random.shuffle(results)
        return results

    def _arriving(self, inputs: Tables) -> list[Blob]:
        """What reaches its tasks from outside, or from those of the verbs whose operator it shares."""
        blobs = [
            blob
            for topic, reading in self.readings.items()
            if topic not in self.before
            for blob in reading.blobs(inputs[topic])
        ]
        for topic, other in self.before.items():
            (part,), input_ = self.plan.stages[0], self.plan.input_of(topic)
            tasks = [self.numbers[part.index, partition] for partition in range(self.partitions)]
            for partition, tables in other.tables.items():
                blobs += self.readings[topic].within_a_task(tables, tasks[partition], input_)
            clock = [other.times[side] for side in other.made.account.sides or other.times if side in other.times]
            blobs += time_blobs(max(clock), input_, 0, tasks) if clock else []
        times = told_times(blobs)
        topics = {self.plan.input_of(topic): topic for topic in self.readings}
        self.times = {topics[input_]: time for input_, time in times.items()}
        return blobs if self.made.verb.follows_time else [blob for blob in blobs if blob.input != TIME]


class Query:
    """Verbs that are run together, each after those whose rows it reads.

    Args:
        chain: the verbs.
        partitions: of each.
        keeper: where their tasks keep what they keep.
        random: in which order blobs come.
        shared: whether verbs share operators where they may.

    Attributes:
        late: by verb, what its tasks have told of late records, micro-batch by micro-batch.
    """

    def __init__(
        self,
        chain: Sequence[Made],
        partitions: Sequence[int],
        keeper: Keeper,
        random: Random,
        *,
        shared: bool = False,
    ) -> None:
        self._verbs = [RunningVerb(made, number) for made, number in zip(chain, partitions, strict=True)]
        self._shared = shared
        if shared:
            self._share()
        self._keeper = keeper
        self._random = random
        self._batch = 0
        self.late: dict[str, list[list[LateRecords]]] = {made.verb.name: [] for made in chain}

    def _share(self) -> None:
        known: dict[str, RunningVerb] = {}
        for verb in self._verbs:
            for topic, source in verb.made.sources.items():
                other = known.get(source)
                if other is not None and verb.may_share(topic, other):
                    verb.before[topic] = other
                    verb.partitions = other.partitions
            verb.before = {t: other for t, other in verb.before.items() if other.partitions == verb.partitions}
            vars(verb).pop("plan", None)  # it has as many partitions as the verb now
            known[verb.made.verb.name] = verb

    def restarted(self) -> "Query":
        """The query that goes on with what this one keeps, with verbs as they come to another process."""
        self._keeper.restart()
        chain, partitions = zip(*((verb.made, verb.partitions) for verb in self._verbs), strict=True)
        query = Query(
            shipping.loads(shipping.dumps(chain)), partitions, self._keeper, self._random, shared=self._shared
        )
        query._batch = self._batch
        query.late = self.late
        return query

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

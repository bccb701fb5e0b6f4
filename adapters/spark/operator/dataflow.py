"""How a plan becomes DataFrames: blobs from the map side, a chain of operators, the sinks' rows.

Rule of this module: it starts nothing and checks nothing. It takes what others have checked: a plan, prepared inputs,
sinks and where state lives.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.inspect.kept_manifest import STATE_DDL, STATE_NAME
from millpond.adapters.spark.operator.group_keys import group_keys
from millpond.adapters.spark.operator.map_side import ProcessAndSend, ProcessToSink, SendSignal, SendToTasks
from millpond.adapters.spark.operator.operator import WALL_CLOCK_COLUMN, Operator
from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN, Stage
from millpond.adapters.spark.operator.task_operator import GroupOperator, TaskOperator
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.rows.sink_blobs import EXCHANGE_DDL
from millpond.adapters.spark.rows.unusable import SKIP_REASONS, TopicSource
from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.worker.counters import counting_ddl, observe_reports
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.processors.distribution.combining import of_input
from millpond.processors.distribution.exchange import COMPLETE, TICK
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.router import Route, Router
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.verb import Input


@dataclass(frozen=True)
class Dataflow:
    """A plan and the DataFrames that it runs on.

    Attributes:
        plan: what runs where.
        inputs: for each topic, its prepared rows and how they are read.
        sinks: the rows that come out, in the order of the plan's sinks.
        handling: what happens to records that cannot be processed.
        completion: a DataFrame any row of which says that the inputs are complete; None if nothing ever does.
        metrics: the first part of the names of the query's metrics.
        ticks: a DataFrame any row of which wakes all tasks; None if only what comes to them does.
        one_clock: whether all tasks of a sub-topology have one stream time, that of all its input; otherwise each has
            that of its own records, as a partition of Kafka Streams has.
        rows: of a verb, how the rows of each input are packed, to show those that are late.
    """

    plan: Plan
    inputs: Mapping[str, tuple[DataFrame, TopicSource]]
    sinks: Sequence[SinkColumns]
    handling: ErrorHandling
    completion: DataFrame | None = None
    metrics: str = "millpond"
    ticks: DataFrame | None = None
    one_clock: bool = False
    rows: Mapping[str, Input] = field(default_factory=dict)

    def without_operators(self) -> DataFrame:
        """The only sink's rows, if everything happens on the map side."""
        return reduce(DataFrame.union, (self._map_only(*pair) for pair in self.inputs.values()))

    def with_operators(self, settings: StateSettings, *, backfill: bool = False) -> DataFrame:
        """The only sink's rows, from operators whose state lives where ``settings`` say.

        Args:
            settings: where that is.
            backfill: whether the manifests of tasks come out, too: one more column, ``MANIFEST_COLUMN``, is null in the
                sink's rows, and has the manifest of each task in a row of its own. Any column may be null then.
        """
        (sink,) = self.sinks
        return self._chain(self.stages(settings, sink, {}, backfill=backfill), self._arriving({}))

    def with_all_sinks(self, settings: StateSettings | None) -> DataFrame:
        """The rows of all sinks as blobs, of which ``rows_of`` makes those of each.

        Args:
            settings: where the state of the operators lives; None if there are none.
        """
        sinks = dict(enumerate(self.sinks))
        stages = [] if settings is None else self.stages(settings, None, sinks)
        return self._chain(stages, self._arriving(sinks))

    def _arriving(self, sinks: Mapping[int, SinkColumns]) -> dict[int, list[DataFrame]]:
        """What each operator takes that no other one made; after the last, what none of them takes."""
        arriving: dict[int, list[DataFrame]] = {0: self.signals()}
        for topic in self.inputs:
            level = min(map(self.plan.entry_level, self.plan.all_readers(topic)))
            arriving.setdefault(level, []).append(self.sent(topic, sinks, tells_time=self.one_clock))
        return arriving

    def signals(self) -> list[DataFrame]:
        """What tells all tasks something, as blobs."""
        tasks = [number for parts in self.plan.stages for part in parts for number in self._tasks(part)]
        told = ((COMPLETE, self.completion), (TICK, self.ticks))
        return [in_workers(rows, SendSignal(one, tasks), EXCHANGE_DDL) for one, rows in told if rows is not None]

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        return group_keys((part.index for part in self.plan.parts), self.plan.partitions)

    def _map_only(self, frame: DataFrame, source: TopicSource) -> DataFrame:
        assert isinstance(source, Source)
        (sink,) = self.sinks
        process = ProcessToSink(self.plan.readers[source.topic], source, sink, self.handling)
        rows = in_workers(frame, process, counting_ddl(sink.ddl))
        return self._observed(rows, source.topic, SKIP_REASONS)

    def _tasks(self, part: Subtopology) -> list[int]:
        """The numbers of a sub-topology's tasks, by partition."""
        return [self._numbers[part.index, partition] for partition in range(self.plan.partitions)]

    def sent(self, topic: str, sinks: Mapping[int, SinkColumns], *, tells_time: bool, shift: int = 0) -> DataFrame:
        """One input as blobs.

        Args:
            topic: the input.
            sinks: the sinks, by number, whose rows come out as blobs.
            tells_time: whether all tasks are told how far it has come.
            shift: added to its number among the inputs of its sub-topology.
        """
        plan, (frame, source) = self.plan, self.inputs[topic]
        part = plan.readers[source.topic]
        send: SendToTasks | ProcessAndSend
        if plan.is_map_side(part):
            assert isinstance(source, Source)
            router = Router(plan, part, self._numbers)
            send = ProcessAndSend(part, source, router, self.handling, sinks, self._tasks(part))
        else:
            route = Route(plan, source.topic, self._numbers, shift)
            # Of partial aggregates, none could be left out because of a single row.
            fails = self.handling.on_error is OnError.FAIL
            combining = of_input(plan, source.topic, source.usable_decoder) if fails else None
            send = SendToTasks(source, route, self.handling, combining, tells_time=tells_time)
        blobs = in_workers(frame, send, counting_ddl(EXCHANGE_DDL))
        return self._observed(blobs, source.topic, SKIP_REASONS)

    def stages(
        self,
        settings: StateSettings,
        last: SinkColumns | None,
        sinks: Mapping[int, SinkColumns],
        *,
        backfill: bool = False,
    ) -> list[Stage]:
        """What each operator runs; the last one writes the sink ``last``, and each writes ``sinks`` as blobs."""
        plan = self.plan
        decoders = {source.topic: source.decoder for _, source in self.inputs.values()}
        for topic, consumed in plan.internal_topics.items():
            decoders[topic] = Decoder.of_repartition_topic(topic, consumed)
        columns: list[SinkColumns | None] = [*([None] * (len(plan.stages) - 1)), last]
        return [
            Stage(
                plan,
                self._numbers,
                {part.index: part for part in parts},
                decoders,
                sink,
                sinks,
                settings,
                self.handling,
                backfill,
                self.rows,
            )
            for parts, sink in zip(plan.stages, columns, strict=True)
        ]

    def _chain(self, stages: Sequence[Stage], arriving: Mapping[int, list[DataFrame]]) -> DataFrame:
        """One operator after the other; each takes what the one before it made, and the inputs of its level."""
        flow: list[DataFrame] = []
        for level, stage in enumerate(stages):
            frames = reduce(DataFrame.unionByName, flow + arriving.get(level, []))
            rows = operated(frames, Operator(stage), _columns(stage))
            flow = [self._observed(rows, f"operator.{level}", [CounterName.WAITING])]
        return reduce(DataFrame.unionByName, flow + arriving.get(len(stages), []))

    def _observed(self, rows: DataFrame, name: str, totals: Iterable[CounterName]) -> DataFrame:
        return observe_reports(rows, f"{self.metrics}.{name}", self.handling.application_id, totals)


def operated(blobs: DataFrame, operator: GroupOperator, columns: str | T.StructType) -> DataFrame:
    """What an operator makes of blobs, in these columns."""
    now = F.unix_millis(F.current_timestamp())
    groups = blobs.withColumn(WALL_CLOCK_COLUMN, now).groupBy("task")
    packed = TaskOperator(operator, (STATE_NAME, STATE_DDL))
    return groups.transformWithStateInPandas(packed, columns, "Append", "None")


def _columns(stage: Stage) -> str | T.StructType:
    """The columns that come out of an operator."""
    if stage.sink is None:
        return counting_ddl(EXCHANGE_DDL)
    if not stage.backfill:
        return counting_ddl(stage.sink.ddl)
    columns = cast(T.StructType, T.StructType.fromDDL(counting_ddl(f"{stage.sink.ddl}, {MANIFEST_COLUMN} string")))
    return T.StructType([T.StructField(column.name, column.dataType) for column in columns])

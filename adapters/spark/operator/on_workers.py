"""A plan as workers run it: senders of rows to tasks, and the stage of each operator.

Rule of this module: it knows no DataFrames, and starts nothing. How rows get from one to the next is up to
``dataflow``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from millpond.adapters.spark.operator.group_keys import group_keys
from millpond.adapters.spark.operator.map_side import MapSide, ProcessAndSend, SendSignal, SendToTasks
from millpond.adapters.spark.operator.stage import Stage
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.processors.distribution.combining import of_input
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.router import Route, Router
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.unusable import TopicSource
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.verb import Input


@dataclass(frozen=True)
class OnWorkers:
    """A plan as workers run it.

    Attributes:
        plan: what runs where.
        sources: how the rows of each topic are read.
        handling: what happens to records that cannot be processed.
        one_clock: whether all tasks of a sub-topology have one stream time, that of all its input; otherwise each has
            that of its own records, as a partition of Kafka Streams has.
        rows: of a verb, how the rows of each input are packed, to show those that are late.
    """

    plan: Plan
    sources: Mapping[str, TopicSource]
    handling: ErrorHandling
    one_clock: bool = False
    rows: Mapping[str, Input] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> dict[tuple[int, int], int]:
        """The integer that Spark groups by for each (sub-topology, partition) of the plan."""
        return group_keys((part.index for part in self.plan.parts), self.plan.partitions)

    def signal(self, signal: int) -> SendSignal:
        """Return the sender of a signal to all tasks."""
        return SendSignal(signal, [number for parts in self.plan.stages for part in parts for number in self._of(part)])

    def sender(self, topic: str, sinks: Mapping[int, SinkColumns], *, tells_time: bool, shift: int = 0) -> MapSide:
        """Return the sender that makes blobs of one input.

        Args:
            topic: the input.
            sinks: the sinks, by number, whose rows come out as blobs.
            tells_time: whether all tasks are told how far it has come.
            shift: added to its number among the inputs of its sub-topology.
        """
        plan, source = self.plan, self.sources[topic]
        part = plan.readers[source.topic]
        if plan.is_map_side(part):
            assert isinstance(source, Source)
            router = Router(plan, part, self.numbers)
            return ProcessAndSend(part, source, router, self.handling, sinks, self._of(part))
        route = Route(plan, source.topic, self.numbers, shift)
        # Of partial aggregates, none could be left out because of a single row.
        fails = self.handling.on_error is OnError.FAIL
        combining = of_input(plan, source.topic, source.usable_decoder, source.copies) if fails else None
        return SendToTasks(source, route, self.handling, combining, tells_time=tells_time)

    def stages(
        self,
        settings: StateSettings,
        last: SinkColumns | None,
        sinks: Mapping[int, SinkColumns],
        *,
        backfill: bool = False,
    ) -> list[Stage]:
        """Return the stage of each operator; the last writes the sink ``last``, and each writes ``sinks`` as blobs."""
        plan = self.plan
        decoders = {source.topic: source.decoder for source in self.sources.values()}
        for topic, consumed in plan.internal_topics.items():
            decoders[topic] = Decoder.of_repartition_topic(topic, consumed)
        columns: list[SinkColumns | None] = [*([None] * (len(plan.stages) - 1)), last]
        return [
            Stage(
                plan,
                self.numbers,
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

    def _of(self, part: Subtopology) -> list[int]:
        """Return the numbers of a sub-topology's tasks, by partition."""
        return [self.numbers[part.index, partition] for partition in range(self.plan.partitions)]

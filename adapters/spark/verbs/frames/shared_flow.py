"""The DataFrame of verbs of a chain: the inputs that come from outside, and the operator that the verbs share.

Rule of this module: it starts nothing and checks nothing. It takes what others have checked: that each verb is one
sub-topology in as many partitions as the others, and that rows which one makes of another's stay in their task.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

from pyspark.sql import DataFrame

from millpond.adapters.spark.operator.dataflow import Dataflow, operated
from millpond.adapters.spark.operator.map_side import MapSide
from millpond.adapters.spark.operator.shared_operator import Between, Feed, SharedOperator, SharingVerb
from millpond.adapters.spark.verbs.frames.sink import RowSink
from millpond.adapters.spark.worker.counters import counting, observed, without_reports
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.processors.rows.unusable import SKIP_REASONS
from millpond.processors.runtime.counters import CounterName


@dataclass(frozen=True)
class InputOfVerb:
    """An input of a verb that is the result of another one.

    Attributes:
        verb: the name of that one.
        between: what lies between the two.
        clock: the inputs of that verb whose time is the time of this one; empty if this verb needs none.
        alone: whether rows with a null in their key meet nothing, so that any task may have them.
    """

    verb: str
    between: Between
    clock: Collection[str]
    alone: bool


@dataclass(frozen=True)
class SharedVerb:
    """A verb that may share its operator.

    Attributes:
        name: the verb's.
        flow: its plan and inputs, as for an operator of its own.
        sink: its rows.
        settings: where its state lives.
        inputs: by topic, those that are results of other verbs.
    """

    name: str
    flow: Dataflow
    sink: RowSink
    settings: StateSettings
    inputs: Mapping[str, InputOfVerb]

    @property
    def topics(self) -> Collection[str]:
        """All its inputs."""
        ((part,),) = self.flow.runs.plan.stages
        return part.sources

    def sharing(self, places: Mapping[str, int], shift: int) -> SharingVerb:
        """Return the verb as part of an operator: ``places`` of its verbs, ``shift`` for the numbers of the inputs."""
        last = places[self.name] == len(places) - 1
        runs = self.flow.runs
        (stage,) = runs.stages(self.settings, self.sink, {})
        feeds = {
            topic: Feed(places[one.verb], one.between, runs.sources[topic], one.clock, one.alone)
            for topic, one in self.inputs.items()
        }
        results = self.sink if last else self.sink.rows
        return SharingVerb(self.name, stage, results, feeds, shift, runs.one_clock)


class SharedFlow:
    """Verbs of a chain in one operator.

    Args:
        verbs: the verbs, each behind those whose results it takes.
    """

    def __init__(self, verbs: Sequence[SharedVerb]) -> None:
        self._verbs = verbs
        self._shifts = list(accumulate((len(verb.topics) for verb in verbs[:-1]), initial=0))

    @property
    def operator(self) -> SharedOperator:
        """The operator that runs the verbs."""
        places = {verb.name: place for place, verb in enumerate(self._verbs)}
        return SharedOperator([verb.sharing(places, shift) for verb, shift in self._shifted])

    def senders(self) -> Iterator[tuple[SharedVerb, str, MapSide]]:
        """Yield, for each input from outside, its verb, its topic, and the sender that makes blobs of it."""
        tells_time = any(verb.flow.runs.one_clock for verb in self._verbs)
        for verb, shift in self._shifted:
            for topic in verb.topics:
                if topic not in verb.inputs:
                    yield verb, topic, verb.flow.runs.sender(topic, {}, tells_time=tells_time, shift=shift)

    def rows(self) -> DataFrame:
        """Return the rows of the last verb, as blobs."""
        first, last = self._verbs[0], self._verbs[-1]
        arriving = [verb.flow.sent(topic, send) for verb, topic, send in self.senders()]
        blobs = reduce(DataFrame.unionByName, [*first.flow.signals(), *arriving])
        rows = operated(blobs, self.operator, counting(last.sink.columns))
        for verb in self._verbs:
            totals = [CounterName.WAITING, *(SKIP_REASONS if verb.inputs else ())]
            application = verb.flow.runs.handling.application_id
            rows = observed(rows, f"{verb.flow.metrics}.operator.0", application, totals, verb.name)
        return without_reports(rows)

    @property
    def _shifted(self) -> Iterator[tuple[SharedVerb, int]]:
        """The verbs with what is added to the numbers of their inputs."""
        return zip(self._verbs, self._shifts, strict=True)

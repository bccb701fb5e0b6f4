"""How verbs of a chain become one DataFrame: the inputs that come from outside, and the operator that the verbs share.

Rule of this module: it starts nothing and checks nothing. It takes what others have checked: that each verb is one
sub-topology in as many partitions as the others, and that rows which one makes of another's stay in their task.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

from pyspark.sql import DataFrame

from millpond.adapters.spark.operator.dataflow import Dataflow, operated
from millpond.adapters.spark.operator.shared_operator import Between, Feed, SharedOperator, SharingVerb
from millpond.adapters.spark.rows.unusable import SKIP_REASONS
from millpond.adapters.spark.verbs.sink import RowSink
from millpond.adapters.spark.worker.counters import counting_ddl, observed, without_reports
from millpond.adapters.spark.worker.worker import StateSettings
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
        ((part,),) = self.flow.plan.stages
        return part.sources

    def sharing(self, places: Mapping[str, int], shift: int) -> SharingVerb:
        """The verb in an operator whose verbs have these places, with ``shift`` added to the numbers of its inputs."""
        last = places[self.name] == len(places) - 1
        (stage,) = self.flow.stages(self.settings, self.sink, {})
        feeds = {
            topic: Feed(places[one.verb], one.between, self.flow.inputs[topic][1], one.clock, one.alone)
            for topic, one in self.inputs.items()
        }
        results = self.sink if last else self.sink.as_columns
        return SharingVerb(self.name, stage, results, feeds, shift, self.flow.one_clock)


def shared_rows(verbs: Sequence[SharedVerb]) -> DataFrame:
    """The rows of the last verb, as blobs.

    Args:
        verbs: the verbs, each behind those whose results it takes.
    """
    shifts = list(accumulate((len(verb.topics) for verb in verbs), initial=0))
    tells_time = any(verb.flow.one_clock for verb in verbs)
    arriving = [
        verb.flow.sent(topic, {}, tells_time=tells_time, shift=shift)
        for verb, shift in zip(verbs, shifts, strict=False)
        for topic in verb.flow.inputs
        if topic not in verb.inputs
    ]
    blobs = reduce(DataFrame.unionByName, [*verbs[0].flow.signals(), *arriving])
    places = {verb.name: place for place, verb in enumerate(verbs)}
    sharing = [verb.sharing(places, shift) for verb, shift in zip(verbs, shifts, strict=False)]
    rows = operated(blobs, SharedOperator(sharing), counting_ddl(verbs[-1].sink.ddl))
    for verb in verbs:
        totals = [CounterName.WAITING, *(SKIP_REASONS if verb.inputs else ())]
        application = verb.flow.handling.application_id
        rows = observed(rows, f"{verb.flow.metrics}.operator.0", application, totals, verb.name)
    return without_reports(rows)

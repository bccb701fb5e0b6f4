"""The DataFrames of a plan: blobs from the map side, a chain of operators, the sinks' rows.

Rule of this module: it starts nothing and checks nothing. It takes what others have checked: a plan, prepared inputs,
sinks and where state lives.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.inspect.checkpoint.kept_manifest import STATE_DDL, STATE_NAME
from millpond.adapters.spark.operator.groups import InPandas, TablesOfGroups
from millpond.adapters.spark.operator.map_side import MapSide, ProcessToSink
from millpond.adapters.spark.operator.on_workers import OnWorkers
from millpond.adapters.spark.operator.operator import Operator
from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN, Stage
from millpond.adapters.spark.operator.task_operator import TaskOperator
from millpond.adapters.spark.rows.flat_rows import FlatRows
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.rows.sink_blobs import EXCHANGE_DDL
from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.worker.counters import counting, observe_reports, with_text
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.processors.distribution.exchange import COMPLETE, TICK
from millpond.processors.rows.unusable import SKIP_REASONS
from millpond.processors.runtime.counters import CounterName


@dataclass(frozen=True)
class Dataflow:
    """A plan and the DataFrames that it runs on.

    Attributes:
        runs: the plan, as workers run it.
        frames: for each topic, its rows on their way to workers.
        sinks: the rows that come out, in the order of the plan's sinks.
        completion: a DataFrame any row of which says that the inputs are complete; None if nothing ever does.
        metrics: the first part of the names of the query's metrics.
        ticks: a DataFrame any row of which wakes all tasks; None if only what comes to them does.
    """

    runs: OnWorkers
    frames: Mapping[str, FlatRows]
    sinks: Sequence[SinkColumns]
    completion: DataFrame | None = None
    metrics: str = "millpond"
    ticks: DataFrame | None = None

    def without_operators(self) -> DataFrame:
        """Return the only sink's rows, if everything happens on the map side."""
        return reduce(DataFrame.union, (self._map_only(*pair) for pair in self.frames.items()))

    def with_operators(self, settings: StateSettings, *, backfill: bool = False) -> DataFrame:
        """Return the only sink's rows, from operators whose state lives where ``settings`` say.

        Args:
            settings: where that is.
            backfill: whether the manifests of tasks come out, too: one more column, ``MANIFEST_COLUMN``, is null in the
                sink's rows, and has the manifest of each task in a row of its own. Any column may be null then.
        """
        (sink,) = self.sinks
        return self._chain(self.runs.stages(settings, sink, {}, backfill=backfill), self._arriving({}))

    def with_all_sinks(self, settings: StateSettings | None) -> DataFrame:
        """Return the rows of all sinks as blobs, of which ``rows_of`` makes those of each.

        Args:
            settings: where the state of the operators lives; None if there are none.
        """
        sinks = dict(enumerate(self.sinks))
        stages = [] if settings is None else self.runs.stages(settings, None, sinks)
        return self._chain(stages, self._arriving(sinks))

    def _arriving(self, sinks: Mapping[int, SinkColumns]) -> dict[int, list[DataFrame]]:
        """Return the blobs for each operator that no other operator makes; those for none of them come last."""
        arriving: dict[int, list[DataFrame]] = {0: self.signals()}
        plan = self.runs.plan
        for topic in self.frames:
            send = self.runs.sender(topic, sinks, tells_time=self.runs.one_clock)
            level = min(map(plan.entry_level, plan.all_readers(topic)))
            arriving.setdefault(level, []).append(self.sent(topic, send))
        return arriving

    def signals(self) -> list[DataFrame]:
        """Return the signals to all tasks, as blobs."""
        told = ((COMPLETE, self.completion), (TICK, self.ticks))
        return [in_workers(rows, self.runs.signal(one), EXCHANGE_DDL) for one, rows in told if rows is not None]

    def sent(self, topic: str, send: MapSide) -> DataFrame:
        """Return one input as the blobs that ``send`` makes of it."""
        return self._observed(self.frames[topic].in_workers(send, counting(EXCHANGE_DDL)), topic, SKIP_REASONS)

    def _map_only(self, topic: str, rows: FlatRows) -> DataFrame:
        source, (sink,) = self.runs.sources[topic], self.sinks
        assert isinstance(source, Source)
        process = ProcessToSink(self.runs.plan.readers[topic], source, sink, self.runs.handling)
        return self._observed(rows.in_workers(process, counting(sink.columns)), topic, SKIP_REASONS)

    def _chain(self, stages: Sequence[Stage], arriving: Mapping[int, list[DataFrame]]) -> DataFrame:
        """Chain the operators; each takes what the one before it made, and the inputs of its level."""
        flow: list[DataFrame] = []
        for level, stage in enumerate(stages):
            frames = reduce(DataFrame.unionByName, flow + arriving.get(level, []))
            rows = operated(frames, Operator(stage), _columns(stage))
            flow = [self._observed(rows, f"operator.{level}", [CounterName.WAITING])]
        return reduce(DataFrame.unionByName, flow + arriving.get(len(stages), []))

    def _observed(self, rows: DataFrame, name: str, totals: Iterable[CounterName]) -> DataFrame:
        return observe_reports(rows, f"{self.metrics}.{name}", self.runs.handling.application_id, totals)


def operated(blobs: DataFrame, operator: TablesOfGroups, columns: str | T.StructType) -> DataFrame:
    """Return the rows that an operator makes of blobs, in these columns."""
    packed = TaskOperator(InPandas(operator), (STATE_NAME, STATE_DDL))
    return blobs.groupBy("task").transformWithStateInPandas(packed, columns, "Append", "None")


def _columns(stage: Stage) -> str | T.StructType:
    """Return the columns that come out of an operator."""
    if stage.sink is None:
        return counting(EXCHANGE_DDL)
    if not stage.backfill:
        return counting(stage.sink.columns)
    columns = counting(with_text(stage.sink.columns, MANIFEST_COLUMN))
    if isinstance(columns, str):
        columns = cast(T.StructType, T.StructType.fromDDL(columns))
    return T.StructType([T.StructField(column.name, column.dataType) for column in columns])

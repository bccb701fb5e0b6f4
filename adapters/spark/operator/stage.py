"""``Stage``: the work of one operator for one plan, as it travels to the workers.

Rule of this module: it describes; who runs it is up to operators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa

from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.processors.distribution.exchange import EXCHANGE_SCHEMA
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.plan import Plan
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.verb import Input

MANIFEST_COLUMN: Final = "millpond_manifest"
"""The column of a backfill's rows with a task's manifest, in a row that is null in all columns of the sink."""

BEFORE_THE_STREAM: Final = -1
"""The number of the micro-batch that a backfill is, so that ``sequence`` goes on with the first one of the stream."""


@dataclass(frozen=True)
class Stage:
    """The work of one operator. Travels to the workers.

    Attributes:
        plan: the whole plan.
        group_keys: the integer that Spark groups by for each (sub-topology, partition) of the plan.
        parts: this operator's sub-topologies, by index.
        decoders: how the records of each topic that they read are decoded.
        sink: the sink's rows, if this operator is the one that writes them; None where blobs come out.
        sinks: the sinks, by number, whose rows come out as blobs, of those that its sub-topologies write.
        settings: where state lives.
        handling: what happens to records for which a user's function fails.
        backfill: whether manifests come out as rows.
        rows: of a verb, how the rows of each input are packed.
    """

    plan: Plan
    group_keys: dict[tuple[int, int], int]
    parts: dict[int, Subtopology]
    decoders: dict[str, Decoder]
    sink: SinkColumns | None
    sinks: Mapping[int, SinkColumns]
    settings: StateSettings
    handling: ErrorHandling
    backfill: bool = False
    rows: Mapping[str, Input] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the operator's output, without the column for the report."""
        if self.sink is None:
            return EXCHANGE_SCHEMA
        return self.sink.schema.append(pa.field(MANIFEST_COLUMN, pa.string())) if self.backfill else self.sink.schema

    @cached_property
    def tasks(self) -> dict[int, tuple[int, int]]:
        """The (sub-topology, partition) behind each group key."""
        return {number: task for task, number in self.group_keys.items()}

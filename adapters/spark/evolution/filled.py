"""The rows from before that results of an aggregate get: from a DataFrame to the tasks that fold them.

Rule of this module: Spark evaluates the columns, and sorts the rows by task; what becomes of them is up to
``millpond.processors.verbs.rekeying.past_rows``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from millpond.adapters.spark.evolution.texts import TEXTS_DDL, collected, to_rows
from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.worker.worker import tune_worker
from millpond.processors.rows.unusable import TopicSource
from millpond.processors.verbs.rekeying.past_rows import IN_ORDER, PAST_SCHEMA, PastRows
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.evolution.seeding import Sow, Sowing

_ROWS_DDL: Final = "task string, key binary, timestamp long, place long, value binary"
"""``PAST_SCHEMA`` as Spark writes it."""


@dataclass(frozen=True)
class SendPast:
    """The function of ``mapInArrow`` that packs rows and sends them to their tasks."""

    past: PastRows
    source: TopicSource

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        reader = self.source.reader(0)
        for batch in batches:
            for rows in reader.spread(reader.usable(pa.Table.from_batches([batch]))):
                records, _ = reader.packed(rows)
                yield from self.past.sent(records).to_batches()


@dataclass(frozen=True)
class FoldPast:
    """The function of ``mapInArrow`` that takes all rows of some tasks, and gives the manifests of what it wrote."""

    past: PastRows
    sowing: Sowing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        rows = pa.Table.from_batches(list(batches), PAST_SCHEMA)
        for task, manifest in self.past.written(self.sowing, rows).items():
            yield to_rows({task: manifest.to_json()})


def sow_past(past: PastRows, source: TopicSource, rows: DataFrame) -> Sow:
    """Return the job of Spark that folds rows into the state of a verb.

    Args:
        past: what is folded into what.
        source: how the rows are read.
        rows: the columns of the verb's input.
    """

    def sow(sowing: Sowing) -> Mapping[str, Manifest]:
        sent = in_workers(rows, SendPast(past, source), _ROWS_DDL)
        by_task = sent.repartition(past.partitions, "task").sortWithinPartitions(*IN_ORDER)
        written = collected(in_workers(by_task, FoldPast(past, sowing), TEXTS_DDL))
        return {task: Manifest.from_json(text) for task, text in written}

    return sow

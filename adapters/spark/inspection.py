"""A store's content at any micro-batch that the checkpoint retains, as a DataFrame.

Rule of this module: it reads what a query has committed and changes nothing, so the query may keep running.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.operator import STATE_NAME
from millpond.adapters.spark.sink import Sink
from millpond.errors import ConfigurationError
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.records import Produced
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.runtime.batch import Batch
from millpond.stores.durability.inspection import read_rows
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.storage import Storage
from millpond.stores.serdes import Serde
from millpond.stores.specs import KeyForm, StoreSpec

_ROWS = 10_000


@dataclass(frozen=True)
class ReadStore:
    """The function of ``mapInArrow`` that turns manifests into the rows of a store."""

    storage: Storage
    spec: StoreSpec
    rows: Sink

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                found = read_rows(self.storage, Manifest.from_json(str(text)), self.spec)
                while part := list(islice(found, _ROWS)):
                    yield from self.rows.to_table(Batch(*map(list, zip(*part, strict=True)))).to_batches()


def store_frame(
    session: SparkSession,
    plan: Plan,
    storage: Storage,
    store: str,
    checkpoint: str,
    batch_id: int | None,
    schema: str | None,
    optional: Collection[str],
) -> DataFrame:
    """The rows of ``store``; see ``SparkStreams.read_store``."""
    owner = next((part for part in plan.parts if store in part.stores), None)
    if owner is None:
        known = sorted(name for part in plan.parts for name in part.stores)
        raise ConfigurationError(f"the query for sink {plan.sink!r} has the stores {known}, not {store!r}")
    spec = owner.stores[store]
    rows = Sink.of(store, Produced(_row_key_serde(spec), spec.value_serde, schema, optional=optional))
    manifests = [
        (text,)
        for text in _manifests(session, checkpoint, batch_id, len(plan.stages))
        if Manifest.from_json(text).task_id.startswith(f"{owner.index}_")
    ]
    frame = session.createDataFrame(manifests, "manifest string").repartition(max(1, len(manifests)))
    return frame.mapInArrow(ReadStore(storage, spec, rows), rows.ddl)


def _row_key_serde(spec: StoreSpec) -> Serde[Any]:
    if spec.kind.key_form is KeyForm.WINDOW and spec.window_size is not None:
        return TimeWindowedSerde(spec.key_serde, spec.window_size)
    if spec.kind.key_form is KeyForm.SESSION:
        return SessionWindowedSerde(spec.key_serde)
    return spec.key_serde


def _manifests(session: SparkSession, checkpoint: str, batch_id: int | None, operators: int) -> Iterator[str]:
    """The manifests of all tasks of all operators of the query."""
    for operator in range(operators):
        reader = session.read.format("statestore").option("stateVarName", STATE_NAME).option("operatorId", operator)
        if batch_id is not None:
            reader = reader.option("batchId", batch_id)
        for row in reader.load(checkpoint).select("value.manifest").collect():
            yield row.manifest

"""The DataFrames with which new stores begin, or new results of an aggregate: from their columns to the files of tasks.

Rule of this module: columns are checked in the driver, and rows where they are read. Spark sorts the rows by task, so
that each task's file is written in one go. Nothing of a new store is written before all rows have been checked one by
one; what becomes of an aggregate's rows is up to ``millpond.processors.verbs.rekeying.past_rows``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark.evolution.texts import TEXTS_DDL, collected, to_rows
from millpond.adapters.spark.rows.flat_rows import FlatRows
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.source import in_milliseconds, select_source
from millpond.adapters.spark.session.sent import ArrowFunction, in_workers
from millpond.adapters.spark.worker.worker import tune_worker
from millpond.errors import StreamingOrStaticError, UnknownColumnError, UnknownNameError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.on_error import OnError
from millpond.processors.options.records import Consumed
from millpond.processors.rows.unusable import TopicSource
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.processors.verbs.rekeying.past_rows import IN_ORDER, PAST_SCHEMA, PastRows
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.evolution.seeding import SEED_SCHEMA, SORTED_BY, Entry, Seed, Seeds, Sow, Sowing, write_seeds
from millpond.stores.specs.store_spec import KeyForm, StoreSpec

_SEEDS_DDL: Final = "task string, store string, key binary, timestamp long, value binary"
"""``SEED_SCHEMA`` as Spark writes it."""

_PAST_DDL: Final = "task string, key binary, timestamp long, place long, value binary"
"""``PAST_SCHEMA`` as Spark writes it."""

_WINDOW: Final = ("window_start", "window_end")
_TOGETHER: Final = 10_000


@dataclass(frozen=True)
class EncodeSeed:
    """The function of ``mapInArrow`` that turns the entries of a store into rows of files.

    Attributes:
        seed: the store.
        source: how keys and values are read.
    """

    seed: Seed
    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        for entries in self._together(batches):
            for table in self.seed.tables(entries):
                yield from table.cast(SEED_SCHEMA).to_batches()

    def _together(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Sequence[Entry]]:
        """Yield some entries after the other; of a versioned store, those of a key are not parted."""
        entries = self._entries(batches)
        if not self.seed.spec.versioned:
            while some := list(islice(entries, _TOGETHER)):
                yield some
            return
        held: list[Entry] = []
        for entry in entries:
            if len(held) >= _TOGETHER and entry.key != held[-1].key:
                yield held
                held = []
            held.append(entry)
        if held:
            yield held

    def _entries(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Entry]:
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            reader = self.source.reader(0)
            records = [made.to_batch() for made in reader.batches(table.select(["key", "value", "timestamp"]))]
            windows = zip(*(table[name].to_pylist() for name in _WINDOW), strict=True)
            rows = (row for made in records for row in zip(made.keys, made.values, made.timestamps, strict=True))
            for row, window in zip(rows, windows, strict=True):
                yield Entry(*row, *window)


@dataclass(frozen=True)
class WriteSeeds:
    """The function of ``mapInArrow`` that takes the rows of whole tasks, and gives the manifests of what it wrote."""

    sowing: Sowing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        for task, manifest in write_seeds(self.sowing, batches):
            yield to_rows({task: manifest.to_json()})


def seeds_of(plan: Plan, frames: Mapping[str, DataFrame]) -> Seeds | None:
    """Return the seeds of a plan's stores; None for nothing.

    Args:
        plan: what is to run. Stores that only other sinks of the topology need are left to these.
        frames: the entries of each store, as ``SparkStreams.read_store`` gives them.

    Raises:
        ConfigurationError: there is no such store, it cannot be seeded, or a DataFrame has not the columns for it.
    """
    known = sorted({store for part in plan.topology.subtopologies for store in part.stores})
    unknown = sorted(frames.keys() - known)
    if unknown:
        raise UnknownNameError(f"seeds name the stores {unknown}, but the topology has {known}")
    mine = {store for part in plan.parts for store in part.stores}
    encoded = {name: _encoded(plan, name, frame) for name, frame in frames.items() if name in mine}
    if not encoded:
        return None

    def sow(sowing: Sowing) -> Mapping[str, Manifest]:
        rows = reduce(DataFrame.unionByName, (frame for name in sorted(sowing.stores) for frame in encoded[name]))
        sorted_rows = rows.repartition(len(sowing.shape.tasks), "task").sortWithinPartitions(*SORTED_BY)
        return _manifests(sorted_rows, WriteSeeds(sowing))

    return Seeds(frozenset(encoded), sow)


def _encoded(plan: Plan, name: str, frame: DataFrame) -> list[DataFrame]:
    """Return the rows of files for a store, in each sub-topology that has it."""
    owners = [part for part in plan.parts if name in part.stores]
    selected, source = _selected(owners[0].stores[name], frame)
    return [in_workers(selected, EncodeSeed(_seed(plan, part, name), source), _SEEDS_DDL) for part in owners]


def _seed(plan: Plan, part: Subtopology, name: str) -> Seed:
    spec = part.stores[name]
    (shape,) = (one for one in shape_of(plan).named(name) if one.subtopology == part.index)
    users = sum(name in node.stores for node in part.nodes.values())
    carriage = None if spec.layout is None else CARRIAGES[spec.layout.name]
    return Seed(spec, shape, plan.partitions, carriage, users)


def _selected(spec: StoreSpec, frame: DataFrame) -> tuple[DataFrame, Source]:
    """Return the columns of entries, with times in milliseconds, and how keys and values are read."""
    what = f"seed of store {spec.name!r}"
    windowed = spec.kind.key_form is not KeyForm.PLAIN
    wanted = ["key", "value", *(("timestamp",) if spec.kind.stamped else ()), *(_WINDOW if windowed else ())]
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        raise UnknownColumnError(
            f"{what}: the DataFrame has no column {', '.join(map(repr, missing))}, only {', '.join(frame.columns)}; "
            f"a store of kind {spec.kind.value} takes {', '.join(wanted)}, as read_store gives them"
        )
    if frame.isStreaming:
        raise StreamingOrStaticError(f"{what}: the DataFrame is streaming; give a static one")
    timed = frame if spec.kind.stamped else frame.withColumn("timestamp", F.lit(0).cast("long"))
    times = [
        (in_milliseconds(timed, what, name) if windowed else F.lit(None).cast("long")).alias(name) for name in _WINDOW
    ]
    consumed = Consumed(spec.key_serde, spec.value_serde, value="value")
    selected, source = select_source(timed, what, consumed, OnError.FAIL, keyed=True, beside=times, called=what)
    if spec.versioned:
        selected = selected.repartition(named("key")).sortWithinPartitions("key", "timestamp")
    return selected, source


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


def sow_past(past: PastRows, source: TopicSource, rows: FlatRows) -> Sow:
    """Return the job of Spark that folds rows into the state of a verb.

    Args:
        past: what is folded into what.
        source: how the rows are read.
        rows: the columns of the verb's input.
    """

    def sow(sowing: Sowing) -> Mapping[str, Manifest]:
        sent = rows.in_workers(SendPast(past, source), _PAST_DDL)
        by_task = sent.repartition(past.partitions, "task").sortWithinPartitions(*IN_ORDER)
        return _manifests(by_task, FoldPast(past, sowing))

    return sow


def _manifests(by_task: DataFrame, write: ArrowFunction) -> dict[str, Manifest]:
    """Return what workers write of rows, by task."""
    return {task: Manifest.from_json(text) for task, text in collected(in_workers(by_task, write, TEXTS_DDL))}

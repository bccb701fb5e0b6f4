"""Erasing keys from the state of a query that does not run: tasks are written anew without their rows.

Rule of this module: it writes into lineages of its own, so that once its record is kept, all files of the lineages
before may go. Nothing leads back then, neither to earlier micro-batches nor to earlier generations.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.evolution.history import History, applications_beside, commits_in, sinks_of
from millpond.stores.evolution.metadata import carried_metadata, metadata_rows
from millpond.stores.evolution.old_rows import OldRows
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.snapshots import Snapshots
from millpond.stores.specs.store_spec import StoreKind

pc: Any = _compute

Erased: TypeAlias = Callable[[Any], Any]
"""A function that returns, for an array of records' keys, a Boolean array of those whose rows go."""


def without_keys(
    storage: Storage,
    manifest: Manifest,
    stores: Collection[StoreShape],
    erased: Erased,
    layouts: Mapping[str, LayoutCarriage],
) -> tuple[Manifest, Counter[str]]:
    """Return a task written anew, and the number of rows that each store has lost.

    Args:
        storage: the place of its files.
        manifest: the task.
        stores: its stores.
        erased: the rows that go.
        layouts: the carriage of each layout, which tells the records' keys in its rows, by its name.

    Raises:
        MissingFileError, CorruptFileError, CorruptStoreError: the state is damaged.
        DurabilityError: the storage failed.
    """
    partition, counts = int(manifest.task_id.partition("_")[2]), Counter[str]()
    empty = Manifest.empty(manifest.application_id, manifest.task_id, manifest.fingerprint)
    with Snapshots(storage, {partition: empty}) as snapshots:
        for store in stores:
            old = OldRows(storage, manifest, store.name, _with_timestamps(store.kind))
            if not old.holds_any:
                continue
            keys = RecordKeys.of_store(store, [old], layouts)
            snapshots.begin_store(store.name, old.format_version)
            layout = None if store.layout is None else store.layout.name
            metadata = carried_metadata([old], partial(_stays, erased, keys), layouts, layout)
            snapshots.add([partition], *metadata_rows(metadata))
            for found, values in old.columns():
                gone, others = erased(keys.of_rows(found)), keys.others_of_rows(found)
                if others is not None:
                    gone = pc.or_(gone, erased(others))
                counts[store.name] += pc.sum(pc.and_(gone, pc.starts_with(found, DATA))).as_py() or 0
                kept = pc.invert(gone)
                snapshots.add([partition], found.filter(kept), values.filter(kept))
            snapshots.end_store()
    return snapshots.manifests().get(partition, empty), counts


def lineages_left(storage: Storage, histories: Collection[History], kept: Collection[Manifest]) -> list[str]:
    """Return the directories of the lineages that queries have had, without those of the manifests that stay.

    A lineage belongs to them if one of their records, also under a former name, names it or a commit in it. So the
    lineage of another query with the same tasks, which nobody here knows, stays.

    Args:
        storage: the place of the lineages.
        histories: the generations of all queries of one checkpoint.
        kept: the manifests that stay.
    """
    applications = applications_beside(storage, histories)
    staying = {manifest.directory for manifest in kept}
    found = {
        lineage: commits
        for application in applications
        for lineage, commits in commits_in(storage, application).items()
        if lineage not in staying
    }
    beside = [History.of(storage, one, sink) for one in applications for sink in sinks_of(storage, one)]
    records, more = list[EvolutionRecord](), [record for history in histories for record in history.records]
    left = list[str]()
    while more:
        records += more
        named = {base.directory for record in records for base in record.bases.values()}
        commits = {commit for record in records for commit in record.origins}
        left = [lineage for lineage, made in found.items() if lineage in named or not commits.isdisjoint(made)]
        more = [one for history in beside for one in _led_to(history, records, left) if one not in records]
    return left


def _led_to(history: History, records: Collection[EvolutionRecord], lineages: Collection[str]) -> list[EvolutionRecord]:
    """Return the generations of a history up to one that others were made from, or that had one of these lineages."""
    before = {record.previous.fingerprint for record in records if record.previous is not None}
    led = [
        number
        for number, record in enumerate(history.records, 1)
        if record.fingerprint in before or any(base.directory in lineages for base in record.bases.values())
    ]
    return list(history.records[: max(led, default=0)])


def _with_timestamps(kind: StoreKind) -> StoreKind:
    """Return the kind that reads all of a row: a store may have become timestamped since its shape was recorded."""
    twins = (one for one in StoreKind if one.family == kind.family and one.stamped)
    return next(twins, kind)


def _stays(erased: Erased, keys: RecordKeys, key: bytes) -> bool:
    return not erased(pa.array([keys.of_key(key)], pa.binary()))[0].as_py()

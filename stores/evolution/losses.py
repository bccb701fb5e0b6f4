"""The losses of stores that become another kind, counted before it is done.

Rule of this module: it only reads, each row once, part by part. A unit of work is one old partition; its counts go to
the driver as text. The caller decides whether a loss is accepted.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as _compute

from millpond.stores.durability.copies.damage import advising_of_files, task_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.conversion import Conversion, latest_versions, times_of
from millpond.stores.evolution.old_rows import Columns, OldRows
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP

pc: Any = _compute


class Loss(NamedTuple):
    """The losses of a store that becomes another kind, in one partition or in all of them.

    Attributes:
        versions: the number of versions that are lost, tombstones included.
        timestamps: the number of values that lose a known timestamp.
        undated: the number of values without a known timestamp that become versions.
        latest: the latest known timestamp of a store that becomes versioned; None if it has none.
    """

    versions: int = 0
    timestamps: int = 0
    undated: int = 0
    latest: int | None = None

    @property
    def any(self) -> bool:
        """True if something is lost."""
        return bool(self.versions or self.timestamps)

    def __str__(self) -> str:
        lost = {"versions": self.versions, "timestamps": self.timestamps}
        told = [f"{number} {what}" for what, number in lost.items() if number]
        return f"loses {' and '.join(told)}" if told else "loses nothing"


@dataclass(frozen=True)
class Counting:
    """The work of counting, an old partition a unit. Travels to the workers.

    Attributes:
        storage: the place of the durable files.
        units: the number of old partitions.
        origins: the origin of each store that becomes another kind, by its new name.
        manifests: the manifests of the old tasks that have state, by sub-topology and partition.
    """

    storage: Storage
    units: int
    origins: Mapping[str, Origin]
    manifests: Mapping[tuple[int, int], Manifest]

    def run(self, unit: int) -> dict[str, str]:
        """Return the loss of each store in one old partition, as text, by its new name.

        Raises:
            MissingFileError, CorruptFileError: a file of an old task is gone or damaged.
            UnreadableRowError: an old row is damaged.
            DurabilityError: the storage failed.
        """
        found = {}
        for name, origin in self.origins.items():
            manifest = self.manifests.get((origin.subtopology, unit))
            if manifest is not None and origin.conversion is not None:
                loss = loss_of(self.storage, manifest, origin.name, origin.conversion)
                found[name] = json.dumps([unit, *loss])
        return found


def loss_of(storage: Storage, manifest: Manifest, store: str, conversion: Conversion) -> Loss:
    """Return the loss of a store in one partition.

    Raises as ``Counting.run``.
    """
    with advising_of_files(task_of(manifest.application_id, manifest.task_id), storage):
        if conversion.before.versioned:
            return _of_versions(OldRows(storage, manifest, store, conversion.before), conversion.after)
        if conversion.after.stamped and not conversion.after.versioned:
            return Loss()
        return _of_values(OldRows(storage, manifest, store, StoreKind.TIMESTAMPED_KEY_VALUE), conversion.after)


def with_observed(
    origins: Mapping[str, Origin], found: Iterable[Mapping[str, str]], copied: Collection[str]
) -> tuple[dict[str, Origin], dict[str, Loss]]:
    """Return the counts of all units together.

    Args:
        origins: the origins that were counted.
        found: the results of the units.
        copied: the new names of stores whose rows are all in every partition.

    Returns:
        The origins, with the observed stream time of those that become versioned; and the loss of each store.
    """
    by_store: dict[str, dict[int, Loss]] = {name: {} for name in origins}
    for texts in found:
        for name, text in texts.items():
            unit, *loss = json.loads(text)
            by_store[name][unit] = Loss(*loss)
    known = {name: _observing(origin, by_store[name]) for name, origin in origins.items()}
    return known, {name: _total(losses.values(), copies=name in copied) for name, losses in by_store.items()}


def _of_versions(old: OldRows, after: StoreKind) -> Loss:
    rows = kept = dated = 0

    def counted() -> Iterator[Columns]:
        nonlocal rows
        for keys, values in old.columns():
            rows += pc.sum(pc.starts_with(keys, DATA)).as_py()
            yield keys, values

    for part in latest_versions(counted()):
        kept += len(part.stems)
        dated += int(np.count_nonzero(part.times != UNKNOWN_TIMESTAMP))
    return Loss(rows - kept, 0 if after.stamped else dated)


def _of_values(old: OldRows, after: StoreKind) -> Loss:
    dated = undated = 0
    latest: int | None = None
    for _, values in old.columns():
        times = times_of(values)
        known = times[times != UNKNOWN_TIMESTAMP]
        dated += len(known)
        undated += len(times) - len(known)
        if len(known):
            newest = int(known.max())
            latest = newest if latest is None else max(latest, newest)
    return Loss(undated=undated, latest=latest) if after.versioned else Loss(timestamps=dated)


def _observing(origin: Origin, losses: Mapping[int, Loss]) -> Origin:
    """Return the origin with the stream time that each partition of it would have observed."""
    conversion = origin.conversion
    if conversion is None or not conversion.after.versioned:
        return origin
    observed: dict[int, int] = {}
    for partition, loss in losses.items():
        times = [loss.latest, conversion.valid_from if loss.undated else None]
        if any(time is not None for time in times):
            observed[partition] = max(time for time in times if time is not None)
    return replace(origin, conversion=replace(conversion, observed=observed))


def _total(losses: Collection[Loss], *, copies: bool) -> Loss:
    """Return the sum of the losses in all partitions, or the greatest of them where all have the same rows."""
    if copies:
        return max(losses, default=Loss(), key=lambda loss: loss[:3])
    return Loss(*(sum(loss[what] or 0 for loss in losses) for what in range(3)))

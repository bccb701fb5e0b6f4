"""Carrying the state of a query over to another shape: other partitions, renamed and moved stores.

Rule of this module: it reads old manifests' files and writes new ones, in lineages of their own. Nothing that exists is
changed, and until its result is kept nobody knows of its files.

Rows of old partition p go only to new partitions that equal p modulo the greatest common divisor of the two numbers of
partitions. So each class of these is a unit of work: it reads its old partitions once, and writes its new ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.errors import ConfigurationError, MissingSerdeError, StoresChangedError
from millpond.stores.durability.copies.damage import advising_of_files
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sorted_runs import Rows
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA, TIME_SIZE, pack_time, unpack_time
from millpond.stores.encoding.partitions import partition_of, partitions_of
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.evolution.conversion import Conversion, ConvertedRows
from millpond.stores.evolution.metadata import carried_metadata, metadata_rows
from millpond.stores.evolution.old_rows import Columns, OldRows, as_columns, as_rows, merged
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.evolution.snapshots import Snapshots
from millpond.stores.typed.windows.segments import METADATA_NAME as INTERVAL

_HEAD = len(DATA) + TIME_SIZE


def relaid(rows: Iterator[Rows], interval: int, rest: int) -> Iterator[Rows]:
    """Yield rows in key order, laid into segments of ``interval`` milliseconds.

    A store has one length of segments, chosen at its first commit, so only partitions that began under different
    retentions differ. The rows of one segment are held at a time, of the longer of the two lengths.

    Args:
        rows: all rows of one store but metadata, in key order.
        interval: the length of the new segments.
        rest: the number of bytes after a row's key, the first eight of which are its time.
    """
    held: dict[bytes, bytes | None] = {}
    for keys, values in rows:
        bound = DATA + _segment(unpack_time(keys[0], len(DATA)), interval)
        over = sorted(row for row in held if row < bound)
        if over:
            yield over, [held.pop(row) for row in over]
        for key, value in zip(keys, values, strict=True):
            time = unpack_time(key, len(key) - rest)
            held[DATA + _segment(time, interval) + key[_HEAD:]] = value
    if held:
        last = sorted(held)
        yield last, list(map(held.__getitem__, last))


def _segment(time: int, interval: int) -> bytes:
    """Return the beginning of the segment that ``time`` lies in."""
    return pack_time(max(time - time % interval, MIN_TIME))


SomeRows: TypeAlias = OldRows | ConvertedRows
"""The rows of an old store, or of one converted to the kind that it has now."""

_NO_LAYOUTS: Final[Mapping[str, LayoutCarriage]] = {}


@dataclass(frozen=True)
class Origin:
    """The old store that a store of the new shape continues.

    Attributes:
        subtopology: the number of its sub-topology in the old shape; for a global table's store, of any copy.
        name: its name there.
        conversion: the conversion of its rows; None if they stay as they are, but for unknown timestamps.
    """

    subtopology: int
    name: str
    conversion: Conversion | None = None


def units(old_partitions: int, new_partitions: int) -> int:
    """Return the number of units of work.

    >>> units(4, 6)
    2
    """
    return gcd(old_partitions, new_partitions)


def goes_on(before: Shape, after: Shape, origins: Mapping[str, Origin], subtopology: int) -> bool:
    """Return whether a new sub-topology's tasks have the stores of its old ones, so that they keep their files."""
    old = {(store.name, store.record_key_serde) for store in before.stores if store.subtopology == subtopology}
    new = [store for store in after.stores if store.subtopology == subtopology]
    return (
        before.partitions == after.partitions
        and old == {(store.name, store.record_key_serde) for store in new}
        and all(_origin(before, store, origins) == Origin(subtopology, store.name) for store in new)
    )


def carry_unit(
    storage: Storage,
    unit: int,
    before: Shape,
    after: Shape,
    origins: Mapping[str, Origin],
    manifests: Mapping[tuple[int, int], Manifest],
    *,
    application_id: str,
    fingerprint: str,
    layouts: Mapping[str, LayoutCarriage] = _NO_LAYOUTS,
) -> dict[tuple[int, int], Manifest]:
    """Carry over the state of one unit.

    Memory is bounded: one part of each old file is held, and as much as one such part of all new files together.

    Args:
        storage: the place of all files.
        unit: its number, from 0 to ``units(...) - 1``.
        before, after: the old shape and the new one. Their stores agree in kind (but for timestamps, and unless there
            is a conversion), serdes, layout and whether they are global, as far as one continues the other.
        origins: the old store that each new one continues, by the new name; a store that is missing starts empty.
        manifests: the manifests of the old tasks, by sub-topology and partition; a task that is missing had no state.
        application_id, fingerprint: the application and the fingerprint in the new manifests.
        layouts: the carriage of each layout's rows, by its name.

    Returns:
        The manifests of the unit's new tasks, by sub-topology and partition. A task whose stores go on under their
        names in as many partitions keeps its files (``goes_on``), if it stays with its application; any other gets a
        first commit in a lineage of its own. A task without state is missing.

    Raises:
        ConfigurationError: nothing tells to which partition the rows of a store belong.
        StateConflictError: a store's rows do not lie in the partitions of the records' keys, or partitions that become
            one keep different metadata; the message names the store.
        MissingFileError, CorruptFileError, FormatError: an old file is gone, damaged, or of an unknown format.
        CorruptStoreError: an old row is damaged.
        DurabilityError: the storage failed.
    """
    carried: dict[tuple[int, int], Manifest] = {}
    work = _Unit(storage, unit, before, after, origins, manifests, layouts, application_id)
    for subtopology in sorted({store.subtopology for store in after.stores}):
        tasks = {
            partition: Manifest.empty(application_id, f"{subtopology}_{partition}", fingerprint)
            for partition in work.new
        }
        with advising_of_files(f"application {application_id!r}", storage):
            done = work.kept(subtopology, tasks) if work.goes_on(subtopology) else work.carried(subtopology, tasks)
        carried |= {(subtopology, partition): manifest for partition, manifest in done.items()}
    return carried


class _Unit:
    """The old partitions of one unit, and the new ones that get their rows."""

    def __init__(
        self,
        storage: Storage,
        unit: int,
        before: Shape,
        after: Shape,
        origins: Mapping[str, Origin],
        manifests: Mapping[tuple[int, int], Manifest],
        layouts: Mapping[str, LayoutCarriage],
        application_id: str,
    ) -> None:
        step = units(before.partitions, after.partitions)
        self.old = range(unit, before.partitions, step)
        self.new = range(unit, after.partitions, step)
        self._storage = storage
        self._before = before
        self._after = after
        self._origins = origins
        self._manifests = manifests
        self._layouts = layouts
        self._stays = all(manifest.application_id == application_id for manifest in manifests.values())

    def goes_on(self, subtopology: int) -> bool:
        return self._stays and goes_on(self._before, self._after, self._origins, subtopology)

    def kept(self, subtopology: int, tasks: Mapping[int, Manifest]) -> dict[int, Manifest]:
        """Return the old manifests of tasks that go on, as manifests of the new topology."""
        return {
            partition: replace(self._manifests[subtopology, partition], fingerprint=task.fingerprint)
            for partition, task in tasks.items()
            if (subtopology, partition) in self._manifests
        }

    def carried(self, subtopology: int, tasks: Mapping[int, Manifest]) -> dict[int, Manifest]:
        """Return the manifests of tasks whose stores are written anew."""
        with Snapshots(self._storage, tasks) as snapshots:
            for store in self._after.stores:
                if store.subtopology == subtopology:
                    self._carry(store, snapshots)
        return snapshots.manifests()

    def _carry(self, store: StoreShape, snapshots: Snapshots) -> None:
        olds = self._old_rows(store)
        if not olds:
            return
        snapshots.begin_store(store.name, next(iter(olds.values())).format_version)
        if store.is_global or len(self.old) == len(self.new) == 1:
            (old,) = olds.values()
            snapshots.add(self.new, *metadata_rows(old.metadata))
            for keys, values in old.columns():
                snapshots.add(self.new, keys, values)
        else:
            _Spread(store, olds, self._before.partitions, self._after.partitions, self._layouts).into(
                snapshots, self.new
            )
        snapshots.end_store()

    def _old_rows(self, store: StoreShape) -> dict[int, SomeRows]:
        """Return the old store in each old partition of the unit that has rows; of a global table, only the first."""
        origin = _origin(self._before, store, self._origins)
        if origin is None:
            return {}
        found = {
            partition: self._rows_of(partition, origin, store)
            for partition in (range(self._before.partitions) if store.is_global else self.old)
            if (origin.subtopology, partition) in self._manifests
        }
        found = {partition: old for partition, old in found.items() if old.holds_any}
        return dict(list(found.items())[:1]) if store.is_global else found

    def _rows_of(self, partition: int, origin: Origin, store: StoreShape) -> SomeRows:
        """Return the old store in one of its partitions, as a store of the new one's kind."""
        manifest, conversion = self._manifests[origin.subtopology, partition], origin.conversion
        if conversion is None:
            return OldRows(self._storage, manifest, origin.name, store.kind)
        old = OldRows(self._storage, manifest, origin.name, conversion.read_as)
        return ConvertedRows(old, conversion, conversion.observed_in(None if store.is_global else partition))


class _Spread:
    """The rows of one store on their way to other partitions."""

    def __init__(
        self,
        store: StoreShape,
        olds: Mapping[int, SomeRows],
        old_partitions: int,
        new_partitions: int,
        layouts: Mapping[str, LayoutCarriage],
    ) -> None:
        self._store = store
        self._olds = olds
        self._from = old_partitions
        self._to = new_partitions
        self._layouts = layouts
        self._layout = None if store.layout is None else store.layout.name
        try:
            self._keys = RecordKeys.of_store(store, olds.values(), layouts)
        except ConfigurationError as error:
            raise MissingSerdeError(
                f"{error}; keep the number of partitions, which was {old_partitions}, or give the store another name, "
                f"under which it begins empty, with dropped=[{store.name!r}]"
            ) from error

    def into(self, snapshots: Snapshots, partitions: Sequence[int]) -> None:
        for partition in partitions:
            snapshots.add([partition], *metadata_rows(self._metadata_of(partition)))
        for keys, values in merged([self._checked(number, old) for number, old in self._olds.items()]):
            targets = partitions_of(self._keys.of_rows(keys), self._to)
            order = np.argsort(targets, kind="stable")
            numbers, starts = np.unique(targets[order], return_index=True)
            stops = [*starts[1:].tolist(), len(order)]
            for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops, strict=True):
                mine = pa.array(order[start:stop])
                snapshots.add([number], keys.take(mine), values.take(mine))

    def _metadata_of(self, partition: int) -> dict[str, bytes]:
        def belongs(key: bytes) -> bool:
            return partition_of(self._keys.of_key(key), self._to) == partition

        return carried_metadata(list(self._olds.values()), belongs, self._layouts, self._layout)

    def _checked(self, number: int, old: SomeRows) -> Iterator[Columns]:
        """Yield the rows of an old partition, and check that all of their records belong to it."""
        for keys, values in self._in_segments(old):
            strays = np.flatnonzero(partitions_of(self._keys.of_rows(keys), self._from) != number)
            if len(strays):
                raise StoresChangedError(
                    f"store {self._store.name!r} has the row {keys[int(strays[0])].as_py()!r} in partition {number}, "
                    "where records of its key do not come: its rows do not lie by the records' keys, so nobody can "
                    "say which partition they belong to; keep the number of partitions, or drop the store"
                )
            yield keys, values

    def _in_segments(self, old: SomeRows) -> Iterator[Columns]:
        """Return the rows in segments of the first partition's length."""
        intervals = [data for one in self._olds.values() if (data := one.metadata.get(INTERVAL)) is not None]
        if not self._store.kind.in_segments or len(set(intervals)) < 2 or old.metadata.get(INTERVAL) == intervals[0]:
            return old.columns()
        return as_columns(relaid(as_rows(old.columns()), unpack_time(intervals[0]), self._keys.rest))


def _origin(before: Shape, store: StoreShape, origins: Mapping[str, Origin]) -> Origin | None:
    """Return the origin of a store's rows: for a global table, the copy in the same place if there is one."""
    origin = origins.get(store.name)
    if origin is None or not store.is_global:
        return origin
    beside = [one for one in before.named(origin.name) if one.subtopology == store.subtopology]
    return replace(origin, subtopology=store.subtopology) if beside else origin

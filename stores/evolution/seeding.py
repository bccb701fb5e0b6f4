"""Seeds: entries with which a new store begins, as rows of durable files.

Rule of this module: it puts entries into stores of the right kind, so rows are as if the entries had been put one after
the other, in the order of time; and it writes rows that come sorted. The caller chooses who sorts them. Its files count
once a record names them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import (
    BegunAlreadyError,
    CheckpointRewoundError,
    ConfigurationError,
    MissingSerdeError,
    RecordError,
    SerdeError,
    StoreKindError,
)
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.rows import SCHEMA, tables_of_changes
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.evolution.carriage import LayoutCarriage, greatest
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.evolution.snapshots import write_commit
from millpond.stores.specs.store_spec import KeyForm, StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed

pc: Any = _compute

SEED_SCHEMA: Final = pa.schema([pa.field("task", pa.string()), *SCHEMA])
"""The schema of rows on their way to the files of their tasks: the task, and the columns of durable files."""

_PLACE: Final = "/"
"""The mark between the name of a store, which has none, and the number of a place."""

SORTED_BY: Final = ("task", "store", "key")


class Entry(NamedTuple):
    """One entry of a seed.

    Attributes:
        key: the key, without a window.
        value: the value; None for a delete, which only versioned stores have.
        timestamp: the timestamp of the value, or the time from which it is valid; plain stores ignore it.
        start, end: the bounds of the window or session; None if there is none.
    """

    key: Any
    value: Any
    timestamp: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Sowing:
    """The tasks that are to get seeds.

    Attributes:
        storage: the place of the durable files.
        stores: the names of the stores that are seeded.
        shape: the shape of the state.
        bases: the manifests with which the tasks begin otherwise, by task id; a task that is missing begins empty.
        application_id, fingerprint: the application and the fingerprint in new manifests.
    """

    storage: Storage
    stores: Collection[str]
    shape: Shape
    bases: Mapping[str, Manifest]
    application_id: str
    fingerprint: str

    def base_of(self, task_id: str) -> Manifest:
        """Return the manifest with which a task begins without seeds."""
        known = self.bases.get(task_id)
        return Manifest.empty(self.application_id, task_id, self.fingerprint) if known is None else known


Sow: TypeAlias = Callable[[Sowing], Mapping[str, Manifest]]
"""A function that writes seeds, anywhere, and returns the manifests of the tasks that got some."""


@dataclass(frozen=True)
class Seeds:
    """The rows with which a user wants stores to begin.

    Attributes:
        stores: the names of the stores.
        sow: writes the rows.
    """

    stores: frozenset[str]
    sow: Sow

    def check_sown(self, record: EvolutionRecord) -> None:
        """Refuse seeds for stores of a generation that have begun without.

        Raises:
            StateConflictError: there is such a store.
        """
        late = sorted(self.stores - record.seeded)
        if late:
            raise BegunAlreadyError(
                f"the stores {late} have begun without seeds, so these would come too late; take them out of seeds, or "
                "give the stores other names, under which they begin anew, and drop the old ones"
            )

    def to_sow(self, before: EvolutionRecord, origins: Mapping[str, Origin]) -> frozenset[str]:
        """Return the stores that begin now, and not those that began with these seeds before.

        Args:
            before: the generation that is carried over.
            origins: the old store of each new one that continues one.

        Raises:
            StateConflictError: a store continues one that had no seeds.
        """
        new = self.stores - origins.keys()
        self.check_sown(replace(before, seeded=new | still_seeded(before, origins)))
        return new


def still_seeded(before: EvolutionRecord, origins: Mapping[str, Origin]) -> frozenset[str]:
    """Return the new names of stores that began with seeds in an earlier generation, and the places filled in them."""
    places = (place.partition(_PLACE) for place in before.seeded)
    return frozenset(
        f"{name}{mark}{number}"
        for store, mark, number in places
        for name, origin in origins.items()
        if origin.name == store
    )


def place_mark(store: str, place: int) -> str:
    """Return the mark in records for a place in a store's rows that was filled after these had begun.

    >>> place_mark("aggregate", 3)
    'aggregate/3'
    """
    return f"{store}{_PLACE}{place}"


def places_filled(store: str, record: EvolutionRecord) -> frozenset[int]:
    """Return the places in the rows of a store that were filled after these had begun."""
    parts = (mark.partition(_PLACE) for mark in record.seeded)
    return frozenset(int(number) for name, mark, number in parts if mark and name == store)


@dataclass(frozen=True)
class Filling(Seeds):
    """The places in the rows of a verb's store that are filled once the rows are carried over.

    ``stores`` has the marks of the places in records, including those that have been filled before.

    Attributes:
        new: the marks of the places that are filled now.
        verb: the verb, for errors.
        results: the result whose state a place has, by its mark.
    """

    new: frozenset[str]
    verb: str
    results: Mapping[str, str]

    def check_sown(self, record: EvolutionRecord) -> None:
        """Refuse to go on from a generation in which places have not been filled yet.

        Raises:
            StateConflictError: there is such a place.
        """
        for place in sorted(self.stores - self.new - record.seeded):
            name = self.results[place]
            raise CheckpointRewoundError(
                f"the verb {self.verb!r}: the checkpoint stands before the micro-batch after which {name!r} got the "
                f"rows so far, so its state lacks them; give the result another name, such as {name + '_again'!r}, "
                f"with added={{{name + '_again'!r}: history}}, where history has the rows up to where the checkpoint "
                f"stands, and dropped=[{name!r}]"
            )

    def to_sow(self, before: EvolutionRecord, origins: Mapping[str, Origin]) -> frozenset[str]:
        """Return the stores to sow, as ``Seeds.to_sow`` does."""
        self.check_sown(replace(before, seeded=still_seeded(before, origins)))
        return self.new


@dataclass(frozen=True)
class Seed:
    """The seeds of one store in one sub-topology. Travels to the workers.

    Attributes:
        spec: the spec of the store.
        shape: the shape of the store.
        partitions: the number of partitions.
        carriage: the carriage of its layout; None if it has none.
        users: the number of processors that may keep something in it.

    Raises:
        ConfigurationError: stores of that spec cannot be seeded.
    """

    spec: StoreSpec
    shape: StoreShape
    partitions: int
    carriage: LayoutCarriage | None
    users: int

    def __post_init__(self) -> None:
        refusal = f"the store {self.spec.name!r} cannot be seeded, because"
        if self.carriage is not None and self.carriage.seeded is None:
            raise StoreKindError(
                f"{refusal} its operator keeps more than keys and values in it; take {self.spec.name!r} out of seeds, "
                "so that it begins empty"
            )
        if self.spec.retain_duplicates:
            raise StoreKindError(
                f"{refusal} it keeps several values of a key and window; take {self.spec.name!r} out of seeds, so that "
                "it begins empty"
            )

    def tables(self, entries: Sequence[Entry]) -> Iterator[pa.Table]:
        """Yield the rows of some entries, as ``SEED_SCHEMA``; of versioned stores, all entries of each key.

        Raises:
            RecordError: a key or value cannot be stored, or an entry is there twice.
        """
        self._check(entries)
        for partition, mine in self._by_partition(entries).items():
            rows = pa.concat_tables(self._rows(sorted(mine, key=_time_of(self.spec.kind))))
            rows = rows.filter(rows["value"].is_valid())
            task = pa.repeat(pa.scalar(f"{self.shape.subtopology}_{partition}"), len(rows))
            yield rows.add_column(0, SEED_SCHEMA.field("task"), task)

    def refusal(self, what: object) -> RecordError:
        """Return the error for an entry that cannot be put."""
        return RecordError(f"seed of store {self.spec.name!r}: {what}")

    def _check(self, entries: Sequence[Entry]) -> None:
        form = self.spec.kind.key_form
        for entry in entries:
            if entry.key is None:
                raise self.refusal(f"the entry {entry} has no key; leave it out")
            if entry.value is None and not self.spec.versioned:
                raise self.refusal(f"the key {entry.key!r} has no value; leave it out")
            if form is KeyForm.PLAIN:
                continue
            if entry.start is None or entry.end is None:
                raise self.refusal(f"the key {entry.key!r} has no window; fill window_start and window_end")
            grid = self.spec.grid
            if form is KeyForm.WINDOW and grid is not None and entry.end != grid.end(entry.start):
                length = grid.end(entry.start) - entry.start
                raise self.refusal(
                    f"the window of {entry.key!r} from {entry.start} to {entry.end} is not {length} ms long, as that "
                    "of the store is; seed it from windows of its own size"
                )

    def _by_partition(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        """Return the entries by the partition of their records' keys."""
        try:
            keys, places = RecordKeys(self.shape, None, duplicates=False), set()
        except ConfigurationError as error:
            raise MissingSerdeError(f"{error}; give the input and the store one serde for their keys") from error
        found: dict[int, list[Entry]] = {}
        for entry in entries:
            try:
                key = self.spec.key_serde.serialize(entry.key)
            except SerdeError as error:
                raise self.refusal(f"the key {entry.key!r} cannot be stored: {error}") from error
            place = key, entry.start, entry.end, entry.timestamp if self.spec.versioned else None
            if place in places:
                raise self.refusal(f"the entry of {entry.key!r} is there twice; keep one of them")
            places.add(place)
            everywhere = range(self.partitions) if self.shape.is_global else ()
            for partition in everywhere or (partition_of(keys.of_key(key), self.partitions),):
                found.setdefault(partition, []).append(entry)
        return found

    def _rows(self, entries: Sequence[Entry]) -> Iterator[pa.Table]:
        """Yield the rows of entries in the order of time."""
        kind = self.spec.kind
        with Transaction(MemoryBackend()) as transaction:
            store: Any = self.spec.open(transaction)
            for entry in entries:
                try:
                    _put(store, kind, entry)
                except SerdeError as error:
                    raise self.refusal(f"the value of {entry.key!r} cannot be stored: {error}") from error
            if self.carriage is not None and self.carriage.seeded is not None:
                latest = max(entry.timestamp for entry in entries)
                for name, data in self.carriage.seeded(latest, self.users).items():
                    store.keep_metadata(name, data)
            store.flush()
            yield from tables_of_changes(self.spec.name, kind.format_version, transaction.changes)


def _put(store: Any, kind: StoreKind, entry: Entry) -> None:
    value = (entry.value, entry.timestamp) if kind.stamped else (entry.value,)
    if kind.key_form is KeyForm.SESSION:
        store.put(Windowed(entry.key, entry.start or 0, entry.end or 0), *value)
    elif kind.key_form is KeyForm.WINDOW:
        store.put(entry.key, *value, entry.start)
    else:
        store.put(entry.key, *value)


def _time_of(kind: StoreKind) -> Callable[[Entry], int]:
    """Return the function for the time that an entry is put at, which stream time goes by."""
    if kind.key_form is KeyForm.PLAIN:
        return lambda entry: entry.timestamp
    if kind.key_form is KeyForm.WINDOW:
        return lambda entry: MIN_TIME if entry.start is None else entry.start
    return lambda entry: MIN_TIME if entry.end is None else entry.end


def write_seeds(sowing: Sowing, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Manifest]]:
    """Write the seeds of whole tasks, from rows of ``SEED_SCHEMA`` in the order of ``SORTED_BY``, part by part.

    Yields:
        The id of each task, and the manifest with which it begins.

    Raises:
        RecordError: an entry is there twice.
        DurabilityError: the storage failed.
    """
    runs = (run for batch in batches for run in _runs(batch))
    for task_id, of_task in groupby(runs, key=attrgetter("task")):
        by_store = groupby(of_task, key=attrgetter("store"))
        tables = (table for store, of_store in by_store for table in _distinct(store, (run.rows for run in of_store)))
        yield task_id, write_commit(sowing.storage, sowing.base_of(task_id), tables)


class _Run(NamedTuple):
    """Rows of one store of one task."""

    task: str
    store: str
    rows: pa.Table


def _runs(batch: pa.RecordBatch) -> Iterator[_Run]:
    """Yield the rows of a batch, store by store."""
    rows = pa.Table.from_batches([batch])
    for task in pc.unique(rows["task"]).to_pylist():
        mine = rows.filter(pc.equal(rows["task"], task))
        for store in pc.unique(mine["store"]).to_pylist():
            yield _Run(task, store, mine.filter(pc.equal(mine["store"], store)).select(SCHEMA.names).cast(SCHEMA))


def _distinct(store: str, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of one store in key order, and metadata once: the latest of several times."""
    metadata: dict[bytes, bytes] = {}
    last = b""
    for table in tables:
        keys = table["key"].combine_chunks()
        number = pc.sum(pc.less(keys, DATA)).as_py() or 0
        found: Any = zip(keys[:number].to_pylist(), table["value"][:number].to_pylist(), strict=True)
        for row, data in found:
            metadata[row] = greatest([data, metadata.get(row, data)])
        if number == len(keys):
            continue
        if metadata:
            yield _metadata_table(store, metadata)
            metadata = {}
        keys = pa.concat_arrays([pa.array([last], pa.binary()), keys[number:]])
        again = pc.equal(keys[1:], keys[:-1])
        if pc.any(again).as_py():
            row = keys[1:].filter(again)[0].as_py()
            raise RecordError(f"seed of store {store!r}: the entry of the row {row!r} is there twice; keep one of them")
        last = keys[-1].as_py()
        yield table.slice(number)
    if metadata:
        yield _metadata_table(store, metadata)


def _metadata_table(store: str, metadata: Mapping[bytes, bytes]) -> pa.Table:
    rows = [{"store": store, "key": row, "value": data} for row, data in sorted(metadata.items())]
    return pa.Table.from_pylist(rows, schema=SCHEMA)

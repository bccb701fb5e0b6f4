"""A verb begins with the rows that another one has kept: by another key, or as another kind of verb.

The rows go through the new verb's own topology, one micro-batch in the order of time without results. So the
state is that of a verb that has had these rows from the beginning, and it is exact as far as the rows are there. What
may be missing follows from what the old verb keeps; it is told before anything counts.

Rule of this module: it decides what may begin with what, and writes the first state of tasks; a record makes it count.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import RekeyedRowsError
from millpond.processors.distribution.exchange import Blob, BlobWriter, time_blobs
from millpond.processors.distribution.execution import Decoder, run_blobs
from millpond.processors.distribution.plan import Plan
from millpond.processors.runtime.tasks.stream_time_reset import RESET
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.change_feed import Change
from millpond.processors.verbs.rekeying.kept_rows import DELETED, TIME, KeptRows
from millpond.processors.verbs.verb import PackedRows, struct_of
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.rows import tables_of_changes
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.partitions import partitions_of
from millpond.stores.encoding.rows.tuple_keys import null_rows
from millpond.stores.evolution.snapshots import write_commit
from millpond.stores.evolution.verbs.verb_sides import INPUT, Kept, KeptSide
from millpond.stores.typed.terms import Term

pc: Any = _compute

BACKFILL: Final = (
    "leave rekeyed out, drop the old verb, and backfill the new one from the rows themselves, with pond.backfill()"
)
"""The way that is always exact."""

_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("timestamp", pa.int64()),
]
_RECORDS: Final = pa.schema(_COLUMNS)

_TASK: Final = 0
"""The number of the only task that runs."""


@dataclass(frozen=True)
class NewInput:
    """One input of the verb that begins. Travels to the workers.

    Attributes:
        input: makes records of its rows.
        keyed: whether rows with a null in their key are left out before they come.
        expressions: the sources of its times, operations and orders, by parameter, as they are kept with the state.
    """

    input: PackedRows
    keyed: bool
    expressions: Mapping[str, str]


@dataclass(frozen=True)
class Beginning:
    """The rows with which one input begins. Travels to the workers.

    Attributes:
        new: the input.
        side: the place where the new verb keeps them.
        old: the rows.
    """

    new: NewInput
    side: KeptSide
    old: KeptRows

    @property
    def _keys(self) -> tuple[list[str], list[str]]:
        """The columns of the old key, and the columns of the new one."""
        return self.old.keys.schema.names, self.new.input.keys.schema.names

    @property
    def may_tie(self) -> bool:
        """True if rows of several old keys may have one key and time, of which only one counts."""
        old, new = map(set, self._keys)
        return self.side.kept.is_table and new != old

    @property
    def known(self) -> bool:
        """True if the old key has all columns of the new one, so that deletes, too, have a new key."""
        old, new = map(set, self._keys)
        return new <= old

    def check(self, name: str) -> None:
        """Refuse rows of which the new verb's rows cannot be made, whatever is accepted.

        Args:
            name: the new verb's name.

        Raises:
            StateConflictError: the old verb keeps other rows than the new one, they lack its columns, or their
                times, operations or orders differ from the new one's.
        """
        new, old = self.side, self.old.side
        where = f"rekeyed says that {new.role!r} of the verb {name!r} begins with the rows of {self.old.verb!r}"
        if new.kept is not old.kept and not (new.kept.is_table and old.kept.is_table):
            raise RekeyedRowsError(
                f"{where}, which keeps of {old.role!r} {_TOLD[old.kept]}, and not {_TOLD[new.kept]}; {BACKFILL}"
            )
        if new.kept is Kept.IN_WINDOWS:
            self._check_windows(where)
        if new.ordered or old.ordered or self.new.input.order is not None:
            raise RekeyedRowsError(f"{where}, and an order decides among them that is not kept with them; {BACKFILL}")
        self._check_columns(where)
        if self.old.times not in (None, self.new.input.times):
            raise RekeyedRowsError(
                f"{where}, whose times are of the type {self.old.times}, and not {self.new.input.times}; cast the new "
                f"verb's time to {self.old.times}"
            )
        for name_ in ("time", "op") if self.old.expressions is not None else ():
            before, now = (one.get(name_) for one in (self.old.expressions or {}, self.new.expressions))
            if not _agree(before, now):
                raise RekeyedRowsError(
                    f"{where}, which were put with {name_}={before}, and not {name_}={now}; give the new verb the same"
                )

    def lacking(self) -> Iterator[str]:
        """Yield descriptions of rows that may be missing, so that the new verb knows less than if it had had all rows.

        Raises:
            DurabilityError: the state could not be read.
        """
        (keys, wanted), kept = self._keys, (self.old.side.kept, self.side.kept)
        by, nullable = ", ".join(keys), [field.name for field in self.old.keys.schema if field.nullable]
        nulls = [name for name in nullable if not (self.new.keyed and name in wanted)]
        if nulls and self.old.side.role != INPUT:
            yield f"rows with a null in {', '.join(nulls)}, which the join may have left out"
        if not self.side.kept.is_table:
            return
        same = set(keys) == set(wanted)
        if not self.known:
            yield f"rows that a later one of the same {by} has replaced, and deletes"
        elif not same and "op" in (self.old.expressions or {}):
            yield "deletes that are older than the history"
        if Kept.LAST in kept and not (same and kept[0] is kept[1]):
            yield f"in which order the rows of a key came, or earlier versions of them: of each {by} there is one row"
        if self.old.expires:
            yield "rows whose ttl is over"

    def records(self) -> Iterator[pa.Table]:
        """Yield the rows as records of the new input, some after the other."""
        for rows in self.old.parts():
            if not self.known:
                rows = rows.filter(pc.invert(rows[DELETED]))
            key = rows.select(self.new.input.keys.schema.names)
            if self.new.keyed:
                kept: Any = pa.array(~null_rows(key))
                rows, key = rows.filter(kept), key.filter(kept)
            if rows.num_rows:
                yield self._records(rows, key)

    def _records(self, rows: pa.Table, key: pa.Table) -> pa.Table:
        value = rows.select(self.new.input.rows.schemas.current.names)
        whole: list[Any] = [_struct(key), _struct(value), rows[TIME]]
        given = pa.table(whole, names=["key", "value", "timestamp"])
        changes = [Change.DELETE if deleted else Change.UPSERT for deleted in rows[DELETED].to_pylist()]
        columns: list[Any] = [self.new.input.keys_of(given), self.new.input.values_of(given, changes), rows[TIME]]
        return pa.Table.from_arrays(columns, schema=_RECORDS)

    def _check_windows(self, where: str) -> None:
        """Refuse rows that were kept for as long as other windows need them."""
        before, now = (dict(one.terms.fixed) if one.terms else {} for one in (self.old.side.store, self.side.store))
        for name in ("before", "after", "at_most"):
            if before.get(name, now.get(name)) != now.get(name):
                kept, kept_now = (_length(one.get(name)) for one in (before, now))
                raise RekeyedRowsError(
                    f"{where}, which were kept for {name}={kept}, and not {kept_now}; write the old "
                    f"windows again, or {BACKFILL}"
                )

    def _check_columns(self, where: str) -> None:
        """Refuse rows that lack a column of the new input, or have it of another type."""
        there = self.old.columns
        wanted = {field.name: field for field in (*self.new.input.keys.schema, *self.new.input.rows.schemas.current)}
        missing = [name for name in wanted if name not in there.names]
        if missing:
            raise RekeyedRowsError(
                f"{where}, which have no column {', '.join(map(repr, missing))}, only {', '.join(there.names)}; leave "
                f"these out of the new verb's input, or {BACKFILL}"
            )
        for name, column in wanted.items():
            if there.field(name).type != column.type:
                raise RekeyedRowsError(
                    f"{where}, where {name!r} is {there.field(name).type}, and not {column.type}; cast it to that in "
                    f"the new verb's input, or {BACKFILL}"
                )


@dataclass(frozen=True)
class Rekeying:
    """The rows with which a verb's tasks begin, in units that do not depend on each other. Travels to the workers.

    Each unit reads all of the old rows, and keeps in memory those of its own task. Ties are counted before anything is
    written, so that a refusal leaves nothing.

    Attributes:
        storage: has the durable files.
        plan: the new verb's plan, with a single sub-topology.
        beginnings: by topic, the rows with which inputs begin.
        follows_time: whether the verb depends on how far its inputs have come in time.
        application_id, fingerprint: go into the new manifests.
        counting: whether ties are counted, by topic, in place of all else.
    """

    storage: Storage
    plan: Plan
    beginnings: Mapping[str, Beginning]
    follows_time: bool
    application_id: str
    fingerprint: str
    counting: bool = False

    @property
    def units(self) -> int:
        """The number of units: a task each."""
        return self.plan.partitions

    def run(self, unit: int) -> dict[str, str]:
        """Write the file of one task, and return its manifest as text by task id.

        Raises:
            MissingFileError, CorruptFileError: a file of the old state is gone or damaged.
            RecordError: a row does not fit the new input, such as a null where its column is NOT NULL.
            DurabilityError: the storage failed.
        """
        if self.counting:
            return {
                topic: str(_ties(self._records(one, unit))) for topic, one in self.beginnings.items() if one.may_tie
            }
        blobs = list[Blob]()
        for split, (topic, one) in enumerate(self.beginnings.items()):
            input_, clock = self.plan.input_of(topic), one.old.clock if self.follows_time else None
            blobs += BlobWriter(split).cut(self._records(one, unit), _TASK, input_)
            blobs += [] if clock is None else time_blobs(clock, input_, split, [_TASK])
        manifest = self._written(unit, blobs)
        return {} if manifest is None else {manifest.task_id: manifest.to_json()}

    def _records(self, beginning: Beginning, unit: int) -> pa.Table:
        """Return the records of one input that belong to a task."""
        mine = [_RECORDS.empty_table()]
        for records in beginning.records():
            belongs: Any = pa.array(partitions_of(records["key"].combine_chunks(), self.units) == unit)
            mine.append(records.filter(belongs))
        return pa.concat_tables(mine).combine_chunks()

    def _written(self, unit: int, blobs: Collection[Blob]) -> Manifest | None:
        """Return the manifest of the task after it has taken the blobs; None if it keeps nothing."""
        (part,) = self.plan.parts
        transactions = {name: Transaction(MemoryBackend()) for name in sorted(part.stores)}
        stores: dict[str, Any] = {name: part.stores[name].open(one) for name, one in transactions.items()}
        task = Task(part, stores, unit)
        decoders = {topic: Decoder(topic, None, None) for topic in part.sources}
        for _ in run_blobs(task, blobs, decoders, 0, settle_ties=True):
            pass  # They have come out of the old verb, or never will.
        resets = [reset for one in self.beginnings.values() if (reset := one.old.reset) is not None]
        for store in stores.values():
            if resets:
                store.keep_metadata(RESET, max(resets))
            store.flush()
        if not any(one.changes for one in transactions.values()):
            return None
        tables = (
            table
            for name, one in transactions.items()
            for table in tables_of_changes(name, part.stores[name].kind.format_version, one.changes)
        )
        base = Manifest.empty(self.application_id, f"{part.index}_{unit}", self.fingerprint)
        return write_commit(self.storage, base, tables)


_TOLD: Final = {
    Kept.VERSIONS: "the versions of a table",
    Kept.LAST: "the last row of each key",
    Kept.IN_WINDOWS: "the rows that may still meet others",
    Kept.WAITING: "the rows that wait",
}


def _length(term: Term | None) -> str:
    """Return the bound of a join's rows, for errors."""
    return f"{term} microseconds" if isinstance(term, int) else str(term)


def _ties(records: pa.Table) -> int:
    """Return how many records have the key and time of another one."""
    places = records.select(["key", "timestamp"]).group_by(["key", "timestamp"]).aggregate([])
    return records.num_rows - places.num_rows


def _struct(columns: pa.Table) -> Any:
    """Return the columns of a table as one."""
    whole = {name: columns[name].combine_chunks() for name in columns.column_names}
    return struct_of(whole, columns.num_rows)


def _agree(before: str | None, now: str | None) -> bool:
    """Return whether two expressions may be the same. Another release of Spark, named behind, may differ."""
    releases = [one.rpartition(" /* Spark ")[2] if one and " /* Spark " in one else "" for one in (before, now)]
    return before == now or (all(releases) and releases[0] != releases[1])

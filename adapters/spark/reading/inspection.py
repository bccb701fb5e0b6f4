"""A store's content at any micro-batch that the checkpoint retains, as a DataFrame.

Rule of this module: it reads what a query has committed and changes nothing, so the query may keep running. What a sink
would write as the bytes of a serde is meant to be looked at here, and is shown as text.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from millpond.adapters.inspect.text import TextSerde
from millpond.adapters.spark.rows.sink import Sink
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.session.sent import in_workers
from millpond.errors import UnknownNameError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.records import Produced
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.matching.retained import Kept, kept_in
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.checking.inspection import DurableRows, read_rows, read_versions
from millpond.stores.durability.copies.damage import advising_of_files, task_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES, JSON, STRING, Serde
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import same_state
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.directory import plain_name
from millpond.stores.specs.store_spec import KeyForm, StoreSpec

_ROWS = 10_000


class PackedSerde(Serde[Any]):
    """The bytes that another serde writes, shown as bytes although they are text."""

    name = "packed"

    def __init__(self, packed: Serde[Any]) -> None:
        self._packed = packed

    def serialize(self, value: Any) -> bytes:
        return self._packed.serialize(value)

    def deserialize(self, data: bytes) -> Any:
        return self._packed.deserialize(data)


class StoredRows(Protocol):
    """The conversion of a store's entries to rows. Travels to the workers."""

    def to_table(self, batch: Batch) -> pa.Table:
        """Return the rows of the entries: their keys, values and timestamps."""


@dataclass(frozen=True)
class ReadStore:
    """The function of ``mapInArrow`` that turns manifests into the rows of a store.

    Attributes:
        storage: the state directory.
        spec: the store.
        rows: makes rows of its entries.
        deletes: whether a versioned store gives its deletes, too.
        ends: the column with the ends of versions, in microseconds, behind the others; None for none.
    """

    storage: Storage
    spec: StoreSpec
    rows: StoredRows
    deletes: bool = False
    ends: "pa.Field[Any] | None" = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                found = self._entries(Manifest.from_json(str(text)))
                while part := list(islice(found, _ROWS)):
                    yield from self._table(*map(list, zip(*part, strict=True))).to_batches()

    def _entries(self, manifest: Manifest) -> Iterator[tuple[Any, ...]]:
        if self.ends is not None:
            return read_versions(self.storage, manifest, self.spec)
        return read_rows(self.storage, manifest, self.spec, deletes=self.deletes)

    def _table(self, keys: list[Any], values: list[Any], times: list[Any], *ends: list[Any]) -> pa.Table:
        made = self.rows.to_table(Batch(keys, values, times))
        if self.ends is None:
            return made
        (found,) = ends
        return made.append_column(self.ends, pa.array(found, pa.int64()).cast(self.ends.type))


@dataclass(frozen=True)
class CommittedStore:
    """A store as a query has committed it.

    Attributes:
        plan: the query's plan.
        application_id: the application's name.
        storage: where the durable state is.
        name: the store's.
        checkpoint: the query's ``checkpointLocation``.
        batch_id: after which micro-batch; None for the last one.
    """

    plan: Plan
    application_id: str
    storage: Storage
    name: str
    checkpoint: str
    batch_id: int | None

    @property
    def spec(self) -> StoreSpec:
        """The spec of the store.

        Raises:
            ConfigurationError: the query has no such store.
        """
        return self._owner.stores[self.name]

    @property
    def _owner(self) -> Subtopology:
        for part in self.plan.parts:
            if self.name in part.stores:
                return part
        known = sorted(name for part in self.plan.parts for name in part.stores)
        raise UnknownNameError(f"the query for sink {self.plan.sink!r} has the stores {known}, not {self.name!r}")

    def frame(
        self,
        session: SparkSession,
        rows: StoredRows,
        columns: str | T.StructType,
        *,
        deletes: bool = False,
        ends: "pa.Field[Any] | None" = None,
    ) -> DataFrame:
        """Return the store's rows, as ``rows`` makes them; of a versioned store, also the deletes if they are wanted.

        Args:
            session: the session.
            rows: makes rows of entries.
            columns: the columns.
            deletes: whether deletes of a versioned store are wanted.
            ends: the last column, if it is to be the ends of its versions; None if not.

        Raises:
            ConfigurationError: the checkpoint has no commit, not that micro-batch, or is that of another query.
        """
        return self._read(session, ReadStore(self.storage, self.spec, rows, deletes, ends), columns)

    def raw(self, session: SparkSession) -> DataFrame:
        """Return the entries as bytes, with times in the unit of the query; of a versioned store, also the deletes.

        Raises:
            ConfigurationError: as ``frame``.
        """
        spec = replace(self.spec, key_serde=BYTES, value_serde=BYTES)
        ddl = re.sub(r" timestamp(?=,|$)", " bigint", seed_rows(spec).columns)
        rows = Sink.of(spec.name, Produced(_row_key_serde(spec, BYTES), BYTES, ddl))
        return self._read(session, ReadStore(self.storage, spec, rows, spec.versioned), ddl)

    def _read(self, session: SparkSession, read: ReadStore, columns: str | T.StructType) -> DataFrame:
        manifests = [(one.to_json(),) for one in self.tasks(session)]
        frame = session.createDataFrame(manifests, "manifest string").repartition(max(1, len(manifests)))
        return in_workers(frame, read, columns)

    def tasks(self, session: SparkSession) -> list[Manifest]:
        """Return the versions of the tasks that have it.

        Raises:
            ConfigurationError: as ``frame``.
        """
        return self._having(self.manifests(session))

    def _having(self, manifests: Iterable[Manifest]) -> list[Manifest]:
        """Return the versions of the tasks that have it."""
        prefix = f"{self._owner.index}_"
        return [one for one in manifests if one.task_id.startswith(prefix)]

    def kept(self, manifests: Iterable[Manifest], key: bytes) -> Kept:
        """Return what the store has of a packed key; the files are read here, without a job of Spark's.

        Args:
            manifests: what ``manifests`` gives.
            key: the key.

        Raises:
            ConfigurationError: the query has no such store.
            MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
            FormatError: it is of a later release.
        """
        own = f"{self._owner.index}_{partition_of(key, self.plan.partitions)}"
        nothing = Kept()
        # Also the others: the checkpoint may be that of another number of partitions.
        for one in sorted(self._having(manifests), key=lambda one: one.task_id != own):
            kept = self._kept_by(one, key)
            if kept.rows:
                return kept
            nothing = kept if one.task_id == own else nothing
        return nothing

    def _kept_by(self, manifest: Manifest, key: bytes) -> Kept:
        """Return what a task has of a key."""
        spec = self.spec
        owner = task_of(manifest.application_id, manifest.task_id)
        with advising_of_files(owner, self.storage), Fetched(self.storage, manifest) as source:
            rows = DurableRows(source, manifest, spec.name, spec.kind.format_version)
            return kept_in(spec.open_read_only(Transaction(rows)), spec, key)

    def manifests(self, session: SparkSession) -> list[Manifest]:
        """Return the manifests of all tasks of this application that the checkpoint has.

        Raises:
            ConfigurationError: as ``frame``.
        """
        checkpoint = Checkpoint(session, self.checkpoint)
        found, batch = checkpoint.after(self.batch_id)
        current = current_manifests(self.storage, found, batch)
        history = History.of(self.storage, self.application_id, plain_name(self.plan.sink))
        mine = manifests_of(history, self.plan.fingerprint, shape_of(self.plan), current)
        if found and not mine:
            raise checkpoint.of_another_query(
                f"it holds the state of a topology of application {found[0].application_id!r}"
            )
        return mine


def manifests_of(history: History, fingerprint: str, shape: Shape, current: Collection[Manifest]) -> list[Manifest]:
    """Return the manifests that belong to a query.

    Args:
        history: the history of the query.
        fingerprint: the fingerprint of its plan, with any number of partitions.
        shape: what its state looks like, with any number of partitions.
        current: manifests of a checkpoint with which tasks go on.
    """
    topologies, newest = {_topology(fingerprint)}, history.newest
    if newest is not None and same_state(replace(newest.shape, partitions=shape.partitions), shape):
        topologies.add(_topology(newest.fingerprint))  # the rest of the topology has changed since
    mine = (one for one in current if one.application_id == history.application_id)
    return [one for one in mine if _topology(one.fingerprint) in topologies]


def plain_rows(spec: StoreSpec, schema: str | None, optional: Collection[str]) -> Sink:
    """Return the rows of a store with the columns key, value and timestamp, or those of ``schema``."""
    return Sink.of(
        spec.name,
        Produced(_row_key_serde(spec, _shown(spec.key_serde)), _shown(spec.value_serde), schema, optional=optional),
    )


def seed_rows(spec: StoreSpec) -> Sink:
    """Return the same rows with bytes, as the serde wrote them, where a column cannot hold what it reads."""
    key, value = _packed(spec.key_serde), _packed(spec.value_serde)
    return Sink.of(spec.name, Produced(_row_key_serde(spec, key), value))


def _row_key_serde(spec: StoreSpec, reader: Serde[Any]) -> Serde[Any]:
    if spec.kind.key_form is KeyForm.WINDOW and spec.window_size is not None:
        return TimeWindowedSerde(reader, spec.window_size, spec.calendar)
    if spec.kind.key_form is KeyForm.SESSION:
        return SessionWindowedSerde(reader)
    return reader


def _shown(reader: Serde[Any]) -> Serde[Any]:
    """Return the serde itself if a column of Spark can hold its values, or else one that makes text of them."""
    column = Sink.of("", Produced(STRING, reader)).schema.field("value")
    return TextSerde() if pa.types.is_binary(column.type) and reader.name != BYTES.name else reader


def _packed(reader: Serde[Any]) -> Serde[Any]:
    """Return the serde, under a name that makes its column one of bytes if its text would be taken for a value."""
    return PackedSerde(reader) if reader.name == JSON.name else reader


def _topology(fingerprint: str) -> str:
    """Return the fingerprint without the number of partitions, which need not be known to read."""
    return fingerprint.partition("/")[0]

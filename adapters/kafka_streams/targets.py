"""The targets of an import: a store of Millpond on any backend, or a Parquet file.

Rule of this module: a target is there when it is whole. It is built under a hidden name beside its place and renamed,
so what an error ends leaves nothing behind. What is there already is never touched.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.kafka_streams.conversion import COLUMN_TYPES, Conversion
from millpond.adapters.kafka_streams.entries import Entries, Entry
from millpond.errors import InvalidArgumentError, MissingArgumentError, PlaceTakenError, UnreadableRowError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import latest_row, pack_time
from millpond.stores.encoding.serdes import JSON, Serde
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import KeyForm, StoreKind, StoreSpec
from millpond.stores.typed.versions.version_rows import LIVE, TOMBSTONE

_CHUNK: Final = 10_000
_MICROS: Final = pa.timestamp("us", tz="UTC")
_LATEST: Final = (2**63 - 1) // 1000
"""The last millisecond that a column of microseconds can hold."""


@dataclass(frozen=True)
class Content:
    """The properties of the store that is imported.

    Attributes:
        name: the store's name.
        kind: its kind.
        conversion: how its keys and values are read.
        retention: how long windows and sessions stay, or how far back versions are kept, in milliseconds.
        window_size: how long windows are.
        retain_duplicates: whether a window has each put of its key.
    """

    name: str
    kind: StoreKind
    conversion: Conversion
    retention: int | None = None
    window_size: int | None = None
    retain_duplicates: bool = False

    def spec(self) -> StoreSpec:
        """Return the store of Millpond that holds it.

        Raises:
            ConfigurationError: the kind needs a retention, and there is none.
        """
        needed = self.kind.traits.needed
        retention = next((option for option in ("history_retention", "retention") if option in needed), None)
        if retention is not None and self.retention is None:
            raise MissingArgumentError(
                f"a store of kind {self.kind.value} needs its retention; say it with --retention"
            )
        options: dict[str, Any] = {} if retention is None else {retention: self.retention}
        if self.kind.key_form is KeyForm.WINDOW:
            options |= {"window_size": self.window_size, "retain_duplicates": self.retain_duplicates}
        return StoreSpec(self.name, self.kind, self.conversion.key_serde, self.conversion.value_serde, **options)


class Target(Protocol):
    """The target that entries are written to."""

    @property
    def place(self) -> Path:
        """The file or directory that is written to."""

    def check(self, content: Content) -> None:
        """Refuse what cannot be written, before anything is.

        Raises:
            ConfigurationError: there is something already, or an option is missing.
        """

    def write(self, content: Content, entries: Entries) -> Path:
        """Write all entries; returns the place where they are then.

        Raises:
            UnreadableRowError: the serdes cannot read an entry.
        """


@dataclass(frozen=True)
class StoreTarget:
    """A store in a directory of its own, ``<directory>/<store>``, with the suffix of its format.

    Attributes:
        directory: where the store's directory is made.
        backend: the name or URL of a backend that keeps files.
    """

    directory: Path
    backend: str = "rocksdb"

    @property
    def place(self) -> Path:
        return self.directory

    def check(self, content: Content) -> None:
        spec = content.spec()
        if not supplier(self.backend).persistent:
            raise InvalidArgumentError(f"the backend {self.backend!r} keeps no files; choose one that does")
        for version in FormatVersion:
            _refuse_existing(self.directory / version.directory_name(spec.name))

    def write(self, content: Content, entries: Entries) -> Path:
        spec = content.spec()
        place = self.directory / spec.directory_name
        opener = supplier(self.backend)
        with _built(place) as building:
            try:
                with StoreLocation(spec, opener, building / place.name).open() as backend:
                    fill(backend, content, entries)
                    backend.flush()
                (building / place.name).rename(place)
            finally:
                delete_local_copy(opener, building / place.name)
        return place


@dataclass(frozen=True)
class ParquetTarget:
    """A Parquet file, with the columns that ``read_store`` shows of a store.

    They are ``key``, of windows and sessions ``window_start`` and ``window_end``, ``value`` and ``timestamp``. The
    timestamp of a version is the time from which it is valid, and a tombstone is a null value. In stores without
    timestamps they are null.

    Attributes:
        path: the file.
    """

    path: Path

    @property
    def place(self) -> Path:
        return self.path

    def check(self, content: Content) -> None:
        _refuse_existing(self.path)

    def write(self, content: Content, entries: Entries) -> Path:
        schema = columns_of(content)
        with _built(self.path) as building:
            with pq.ParquetWriter(building, schema) as writer:
                for chunk in _chunks(entries):
                    writer.write_table(_table(content, chunk, schema))
            building.rename(self.path)
        return self.path


def columns_of(content: Content) -> pa.Schema:
    """Return the columns of the file."""
    windowed = content.kind.key_form is not KeyForm.PLAIN
    return pa.schema(
        [
            ("key", COLUMN_TYPES[content.conversion.key_serde]),
            *((name, _MICROS) for name in ("window_start", "window_end") if windowed),
            ("value", COLUMN_TYPES[content.conversion.value_serde]),
            ("timestamp", _MICROS),
        ]
    )


def fill(backend: Backend, content: Content, entries: Entries) -> None:
    """Put entries into a store that is new, whatever the order of their times.

    Args:
        backend: holds the store's rows; it is empty.
        content: what the store is.
        entries: none that has expired.

    Raises:
        UnreadableRowError: the serdes cannot read an entry.
    """
    with Transaction(backend) as transaction, content.spec().open(transaction) as store:
        put = _put_versions if content.kind.versioned else _put_entries
        for chunk in _chunks(entries):
            put(store, content, chunk)
            store.flush()
            transaction.commit()


def _put_entries(store: Any, content: Content, chunk: list[Entry]) -> None:
    keys = list(map(content.conversion.key, chunk))
    values = list(map(content.conversion.value, chunk))
    stamps = [[entry.timestamp for entry in chunk]] if content.kind.stamped else []
    if content.kind.key_form is KeyForm.SESSION:
        store.put_many(keys, [(entry.start, entry.end) for entry in chunk], values)
    elif content.kind.key_form is KeyForm.WINDOW:
        for arguments in zip(keys, values, *stamps, [entry.start for entry in chunk], strict=True):
            store.put(*arguments)
    else:
        store.put_many(keys, values, *stamps)


def _put_versions(store: Any, content: Content, chunk: list[Entry]) -> None:
    """Put them past the grace period, which says nothing here: each key's versions come after those of others."""
    rows = [latest_row(store.key_serde.serialize(content.conversion.key(entry))) for entry in chunk]
    latest = store.rows.latest(rows)
    for entry, row in zip(chunk, rows, strict=True):
        assert entry.start is not None, "a version has a start"
        value = content.conversion.value(entry)
        version = TOMBSTONE if value is None else LIVE + store.value_serde.serialize(value)
        latest[row], _ = store.rows.put(row, latest[row], pack_time(entry.start), version)
        store.observe(entry.start)


def _table(content: Content, chunk: list[Entry], schema: pa.Schema) -> pa.Table:
    conversion, ends = content.conversion, content.window_size
    keys = _shown(conversion.key_serde, map(conversion.key, chunk))
    values = _shown(conversion.value_serde, map(conversion.value, chunk))
    columns = {"key": keys, "value": values, "timestamp": _times(content, chunk, [one.timestamp for one in chunk])}
    if "window_start" in schema.names:
        starts = [entry.start or 0 for entry in chunk]
        sizes = [entry.end if ends is None else start + ends for entry, start in zip(chunk, starts, strict=True)]
        columns |= {"window_start": _times(content, chunk, starts), "window_end": _times(content, chunk, sizes)}
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _shown(serde: Serde[Any], values: Iterable[Any]) -> list[Any]:
    if serde is not JSON:
        return list(values)
    return [None if value is None else JSON.serialize(value).decode() for value in values]


def _times(content: Content, chunk: list[Entry], times: list[int | None] | list[int]) -> list[int | None]:
    for entry, time in zip(chunk, times, strict=True):
        if time is not None and time > _LATEST:
            raise UnreadableRowError(
                f"store {content.name!r}: the entry with the key 0x{entry.key.hex()} has the time {time}, but a column "
                f"of Parquet ends at {_LATEST}; bring it into a store, with --to DIRECTORY"
            )
    return [None if time is None else time * 1000 for time in times]


def _chunks(entries: Entries) -> Iterator[list[Entry]]:
    while chunk := list(islice(entries, _CHUNK)):
        yield chunk


def _refuse_existing(place: Path) -> None:
    if place.exists():
        raise PlaceTakenError(f"{place} exists already, and is not touched; delete it, or choose another place")


@contextmanager
def _built(place: Path) -> Iterator[Path]:
    """A hidden place beside ``place``, from which it is renamed. Whatever is there at the end is deleted."""
    building = place.with_name(f".{place.name}.building")
    place.parent.mkdir(parents=True, exist_ok=True)
    _delete(building)
    try:
        yield building
    finally:
        _delete(building)


def _delete(place: Path) -> None:
    if place.is_dir():
        rmtree(place)
    else:
        place.unlink(missing_ok=True)

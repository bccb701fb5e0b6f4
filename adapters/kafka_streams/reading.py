"""A store of Kafka Streams, open for reading: the entries of all its tasks, merged in the order of their keys.

Rule of this module: one pass needs no memory for what it has seen. RocksDB gives rows in the order of their keys, so
several directories are merged, and what is there twice comes one after the other, where it is refused.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import groupby
from math import gcd
from operator import attrgetter
from pathlib import Path
from typing import Final

from millpond.adapters.kafka_streams import segments, versions
from millpond.adapters.kafka_streams.database import DEFAULT, WITH_TIMESTAMP, Database, open_database
from millpond.adapters.kafka_streams.entries import (
    LONG,
    Entries,
    Entry,
    Row,
    Rows,
    plain_entry,
    timestamped_entry,
    unreadable,
    untimed_entry,
)
from millpond.adapters.kafka_streams.kinds import kind_of
from millpond.adapters.kafka_streams.locations import StorePart, find_parts
from millpond.adapters.kafka_streams.segments import InSegment, Span
from millpond.adapters.kafka_streams.versions import Interval, KeyedVersions
from millpond.errors import KafkaStreamsStateError, StoreKindError, UnreadableRowError
from millpond.stores.encoding.keys import after_prefix
from millpond.stores.specs.store_spec import KeyForm, StoreKind

_KEY_VALUES: Final[dict[StoreKind, dict[str, Callable[[Row], Entry]]]] = {
    StoreKind.KEY_VALUE: {DEFAULT: plain_entry},
    StoreKind.TIMESTAMPED_KEY_VALUE: {
        DEFAULT: untimed_entry,
        WITH_TIMESTAMP: timestamped_entry,
    },
}
_IN_SEGMENTS: Final[dict[StoreKind, dict[str, InSegment]]] = {
    StoreKind.WINDOW: {DEFAULT: segments.window_entry},
    StoreKind.TIMESTAMPED_WINDOW: {
        DEFAULT: segments.untimed_window_entry,
        WITH_TIMESTAMP: segments.timestamped_window_entry,
    },
    StoreKind.SESSION: {DEFAULT: segments.session_entry},
}


@dataclass
class KafkaStore:
    """A store, open for reading.

    Attributes:
        name: the store's name.
        kind: which kind it is; the words are those of Millpond's kinds.
        parts: its files, by task.
        databases: by task, its RocksDB directories, each with the times of its rows.
        rows_read: how many rows the last, or current, pass over ``entries`` has read.
    """

    name: str
    kind: StoreKind
    parts: list[StorePart]
    databases: list[list[tuple[Database, Span]]]
    rows_read: int = field(default=0, init=False)

    def entries(self) -> Entries:
        """Yield all entries, in the order of their rows' keys; those of a versioned store key by key, oldest first.

        Each row is checked. A versioned store also has tombstones: wherever a key had no value any more.

        Raises:
            UnreadableRowError: a row is not what the kind says, or is there twice, as where two tasks have a key.
            CorruptStoreError: a file is damaged.
            BackendInUseError: the application has been started meanwhile.
            ConfigurationError: the rows are those of a versioned store, and the kind is another.
        """
        self.rows_read = 0
        if self.kind.versioned:
            return self._versions()
        found = merge(*self._sources(), key=lambda each: each[0].key)
        values_alone = self.kind.key_form is KeyForm.PLAIN and not self.kind.stamped
        return self._single(self._refuse_versions(found) if values_alone else found)

    def _sources(self) -> Iterator[Iterator[tuple[Row, Entry]]]:
        for database, span in (each for task in self.databases for each in task):
            readers: dict[str, Callable[[Row], Entry]] = _KEY_VALUES.get(self.kind, {}) or {
                family: partial(_within, reader, span) for family, reader in _IN_SEGMENTS[self.kind].items()
            }
            for family, reader in readers.items():
                yield _read(reader, self._counted(database.rows(family)))

    def _counted(self, rows: Rows) -> Rows:
        for row in rows:
            self.rows_read += 1
            yield row

    def _single(self, found: Iterable[tuple[Row, Entry]]) -> Entries:
        last: Row | None = None
        for row, entry in found:
            if last is not None and last.key == row.key:
                raise _twice(last, row)
            last = row
            yield entry

    def _refuse_versions(self, found: Iterable[tuple[Row, Entry]]) -> Iterator[tuple[Row, Entry]]:
        """Refuse rows that are all versions: a versioned store can be read as a plain one, but not to any use."""
        interval, longer, plain = Interval(), False, False
        for row, entry in found:
            plain = plain or not _is_versions(row, interval)
            longer = longer or len(row.key) > LONG.size
            yield row, entry
        if longer and not plain:
            raise StoreKindError(
                f"store {self.name!r}: every row is one of a versioned store, so it is of no other kind; say --kind "
                "versioned"
            )

    def _versions(self) -> Entries:
        tasks = [_by_key(self._counted, database) for task in self.databases for database, _ in task]
        last: KeyedVersions | None = None
        for found in merge(*tasks, key=lambda rows: rows[0].key):
            if last is not None and last.key == found[0].key:
                raise _twice(last.row, found[0].row)
            last = found[0]
            yield from versions.history(found)


def _read(reader: Callable[[Row], Entry], rows: Rows) -> Iterator[tuple[Row, Entry]]:
    return ((row, reader(row)) for row in rows)


def _within(reader: InSegment, span: Span, row: Row) -> Entry:
    return reader(row, span)


def _is_versions(row: Row, interval: Interval) -> bool:
    try:
        versions.versions_of(row, interval)
    except UnreadableRowError:
        return False
    return True


def _by_key(counted: Callable[[Rows], Rows], database: Database) -> Iterator[list[KeyedVersions]]:
    """Yield the versions of each key in all segments, in the order of the keys."""
    interval = Interval()
    segments = [
        (versions.versions_of(row, interval) for row in counted(database.rows(DEFAULT, prefix)))
        for prefix in _segments_of(database)
    ]
    for _, found in groupby(merge(*segments, key=attrgetter("key")), attrgetter("key")):
        yield list(found)


def _segments_of(database: Database) -> Iterator[bytes]:
    """Yield the prefix of each segment's keys."""
    start: bytes | None = b""
    while start is not None:
        row = database.first(DEFAULT, start)
        if row is None:
            return
        # A row that is none of a versioned store ends this before each row counts as a segment of its own.
        versions.versions_of(row, Interval())
        prefix = row.key[: LONG.size]
        yield prefix
        start = after_prefix(prefix)


def _twice(first: Row, second: Row) -> UnreadableRowError:
    return unreadable(
        second,
        f"no second row of this key, but there is one in {first.where(first.key)}; where these are two tasks, which "
        "hold a key each, read the directory of one of them",
    )


@contextmanager
def open_store(
    state_dir: Path, store: str, kind: StoreKind | None = None, *, without_checkpoint: bool = False
) -> Iterator[KafkaStore]:
    """The store in the directory of an application, of a task, or of the store itself. The directory is only read.

    Args:
        state_dir: the directory.
        store: the store's name.
        kind: which kind it is, where its files do not tell.
        without_checkpoint: also read what has no ``.checkpoint``, or one that cannot be read.

    Raises:
        ConfigurationError: the store is not there, or its kind has to be said, or is another.
        BackendInUseError: the application is running.
        CorruptStoreError: a file is damaged, missing or not finished.
        FormatError: the directory is in a format that is not known.
    """
    parts = find_parts(state_dir, store, without_checkpoint=without_checkpoint)
    if len({part.segments is None for part in parts}) > 1:
        raise KafkaStreamsStateError(
            f"store {store!r} has segments in some tasks of {state_dir} and none in others, so the application was "
            "changed while these were there; give the directory of one of the tasks"
        )
    with ExitStack() as stack:
        databases = [
            [(stack.enter_context(open_database(directory, store)), span) for directory, span in _directories(part)]
            for part in parts
        ]
        each = [database for task in databases for database, _ in task]
        found = kind_of(store, each, parts[0].segments is not None, kind)
        yield KafkaStore(store, found, parts, databases)


def _directories(part: StorePart) -> Iterator[tuple[Path, Span]]:
    if part.segments is None:
        yield part.directory, Span(0, None)
        return
    # Each start is a multiple of the length of a segment, so no segment is longer than what divides all of them.
    longest = gcd(*(segment.start for segment in part.segments))
    for segment in part.segments:
        yield segment.directory, Span(segment.start, segment.start + longest if longest else None)

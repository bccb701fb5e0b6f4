"""``Retained``: the rows that a verb's stores still have of single keys, or a table that it looks up.

Rule of this module: it reads open stores, and tells one kind from another only by traits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from millpond.processors.tables.sorted_versions import ViewAt
from millpond.stores.specs.store_spec import StoreSpec


class Stored(NamedTuple):
    """A packed row in a store.

    Attributes:
        value: the row.
        time: its time, in microseconds; in a versioned store, the time since which it is valid.
        until: in a versioned store, the time at which it ended; None if it is valid still, or without versions.
    """

    value: bytes
    time: int
    until: int | None


class Kept(NamedTuple):
    """The rows that a store has of a key.

    Attributes:
        rows: its rows, the oldest first.
        since: the time before which others may have been forgotten; None if none have.
        outdone: rows that do not count, as another one of their time does.
        version: the version of a table that others keep, for sentences; None if it is the verb's state.
    """

    rows: Sequence[Stored] = ()
    since: int | None = None
    outdone: Sequence[Stored] = ()
    version: str | None = None


class Retained(Protocol):
    """The stores of a verb."""

    def of_key(self, store: str, key: bytes) -> Kept:
        """Return what the store of that name has of a packed key."""


@dataclass(frozen=True)
class LookedUp(Retained):
    """The tables that a verb looks up.

    Attributes:
        tables: the tables, by name.
        versions: by name, the version that is read.
        reader: the words for its reader, for sentences.
    """

    tables: Mapping[str, ViewAt]
    versions: Mapping[str, str]
    reader: str

    def of_key(self, store: str, key: bytes) -> Kept:
        table, version = self.tables[store], self.versions[store]
        rows = table.at(version).of_key(key)
        values, times = rows.values.to_pylist(), rows.times.tolist()
        following = [*times, None][1:]
        found = [
            Stored(value, time, until)
            for value, time, until in zip(values, times, following, strict=True)
            if value is not None
        ]
        counting = [one for one in found if one.time != one.until]
        outdone = [one for one in found if one.time == one.until]
        return Kept(counting, None, outdone, f"{table.told(version)}, as {self.reader} reads it")


def kept_in(store: Any, spec: StoreSpec, key: bytes) -> Kept:
    """Return what an open store has of a key.

    Args:
        store: a versioned, window or timestamped store with bytes as keys and values.
        spec: its spec.
        key: the key, packed.
    """
    if spec.kind.in_segments:
        observed = store.observed_stream_time
        since = None if observed is None else observed - store.retention + 1
        return Kept([Stored(value, time, None) for time, value in store.fetch_range(key)], since)
    if spec.versioned:
        return Kept([Stored(*version) for version in store.history(key)], store.horizon)
    found = store.get(key)
    return Kept([] if found is None else [Stored(found.value, found.timestamp, None)])

"""``Measured``: the measurements of a backend, as the judgement takes them.

Rule of this module: it is plain data, made by the measurements. Times are microseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The median of several runs, the least of them, and the most."""

    median: float
    low: float
    high: float

    def times(self, share: float) -> "Spread":
        """Return so many times as much."""
        return Spread(self.median * share, self.low * share, self.high * share)

    def and_(self, other: "Spread") -> "Spread":
        """Return both together, each at its least and at its most, so that it is never too narrow."""
        return Spread(self.median + other.median, self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Times:
    """The times of operations.

    Attributes:
        rows: how many rows the store had.
        read: to read a row.
        write: to write a row, in a commit of as many as the description says.
        seek: to find the first row of a scan and read it; None if no scans were asked for.
        step: to read the next row of a scan.
        expire: to put a new row behind all others, or to delete one of the first; None if that was not asked for.
    """

    rows: int
    read: Spread
    write: Spread
    seek: Spread | None = None
    step: Spread | None = None
    expire: Spread | None = None


@dataclass(frozen=True)
class Room:
    """The room that rows take, measured in a process of its own.

    Attributes:
        rows: how many there were.
        memory_per_row: by how many bytes the process grew with each row.
        disk_per_row: bytes on the disk for each row, once the store is closed.
        disk_peak_per_row: the most that there were, while each row was written a second time.
    """

    rows: int
    memory_per_row: float
    disk_per_row: float
    disk_peak_per_row: float


@dataclass(frozen=True)
class Choice:
    """An option of a backend, its value as it stands in a URL, and the reason for it."""

    option: str
    value: str
    reason: str


@dataclass(frozen=True)
class Measured:
    """A backend and its measurements.

    Attributes:
        backend: its name or URL as it was asked for, without secrets.
        persistent: whether its local copy outlives the process.
        checksums: whether its engine has checksums of its own.
        cache_scaled: whether it was measured with a cache as much smaller as the data was.
        times: what operations take; None if that failed.
        room: what rows take; None if that failed.
        choices: options to give it.
        notes: what was measured of options that are not given.
        failure: why something could not be measured.
    """

    backend: str
    persistent: bool
    checksums: bool
    cache_scaled: bool
    times: Times | None = None
    room: Room | None = None
    choices: tuple[Choice, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def url(self) -> str:
        """The URL to give as ``backend=``."""
        return with_options(self.backend, ((one.option, one.value) for one in self.choices))


def with_options(backend: str, options: Iterable[tuple[str, Any]]) -> str:
    """Return the URL of a backend with more options.

    >>> with_options("lmdb", []), with_options("lmdb", [("sync", "true")])
    ('lmdb', 'lmdb://?sync=true')
    >>> with_options("lmdb://?sync=true", [("readahead", "false")])
    'lmdb://?sync=true&readahead=false'
    """
    more = "&".join(f"{name}={value}" for name, value in options)
    if not more:
        return backend
    name, _, given = backend.partition("?")
    name = name if "://" in name else f"{name}://"
    return f"{name}?{given}&{more}" if given else f"{name}?{more}"

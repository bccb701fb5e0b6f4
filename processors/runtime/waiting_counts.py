"""The amount that waits in a store, kept in the store's metadata, so that it is known without a scan.

The bytes::

    0x01, time (8 bytes), then each count (8 bytes, big-endian)

The first byte is the version of these bytes. The time is the one by which what is in the store waits, such as its
stream time. Counts and time are put together, whenever one of them changes. So counts that were kept at another time
than the store's own are not those of its rows: somebody who does not keep counts has written the store since.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from millpond.processors.runtime.kept_time import read_versioned, versioned
from millpond.stores.encoding.keys import TIME_SIZE, pack_time, unpack_time

WAITING: Final = "waiting"
"""The name under which a store's only user keeps its counts."""


def waiting_of(number: int | str) -> str:
    """Return the name under which processor ``number`` on a store keeps its counts."""
    return f"{WAITING}-{number}"


def counted_at(store: Any, name: str, size: int) -> int | None:
    """Return the time as of which ``size`` counts are kept under ``name``; None if there are none.

    Raises:
        FormatError: they were written in a version that this release does not know.
        CorruptStoreError: the bytes are no counts.
    """
    data = read_versioned(store, name, TIME_SIZE * (1 + size), "counts")
    return None if data is None else unpack_time(data)


def bytes_of_counts(time: int, counts: Sequence[int]) -> bytes:
    """Return counts as of a time as bytes, for the store's metadata."""
    return versioned(pack_time(time) + Struct(f">{len(counts)}q").pack(*counts))


class WaitingCounts:
    """The counts of what waits in a store.

    Args:
        store: the store.
        name: the name of the metadata.
        size: how many counts there are.
        scan: counts what is in the store, which may take long.
    """

    def __init__(self, store: Any, name: str, size: int, scan: Callable[[], Sequence[int]]) -> None:
        self._store = store
        self._name = name
        self._counts = Struct(f">{size}q")
        self._scan = scan

    def bring_up(self, time: int | None) -> list[int]:
        """Return the counts as of ``time``, None if nothing was ever put; scan for them and keep them if need be.

        Raises:
            FormatError: they were written in a version that this release does not know.
            CorruptStoreError: the bytes are no counts.
        """
        if time is None:
            return [0] * (self._counts.size // 8)
        data = read_versioned(self._store, self._name, TIME_SIZE + self._counts.size, "counts")
        if data is not None and unpack_time(data) == time:
            return list(self._counts.unpack_from(data, TIME_SIZE))
        counts = list(self._scan())
        self.put(time, counts)
        return counts

    def put(self, time: int, counts: Sequence[int]) -> None:
        """Keep the counts as of ``time``."""
        self._store.keep_metadata(self._name, bytes_of_counts(time, counts))

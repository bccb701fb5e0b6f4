"""``RecentVersions``: the versions that others have replaced as their key's latest since the last flush.

What is looked up from before the latest version is most often one of these, and is found here without a search among
rows. Rule of this module: of a key that is known here, it knows every older version from the first of its times on.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from millpond.stores.keys import pack_time
from millpond.stores.typed.versions.version_rows import JUST_ABOVE, TOMBSTONE, Entry

_NOTHING: Final = (b"", TOMBSTONE)
"""Comes before all times."""


class RecentVersions:
    """Older versions by the row of their key's latest, each as its packed time and its bytes."""

    def __init__(self) -> None:
        self._by_row: dict[bytes, list[Entry]] = {}
        self._later: list[Callable[[RecentVersions], None]] = []

    def later(self, note: Callable[["RecentVersions"], None]) -> None:
        """Call ``note``, which notes many versions, if somebody looks for one: before, no object is made of them."""
        self._later.append(note)

    def replaced(self, row: bytes, start: bytes, version: bytes, *, alone: bool) -> None:
        """Note that the latest version at ``row`` became an older one; ``alone`` if there was none before it."""
        if self._later:
            self._later.append(lambda recent: recent.replaced(row, start, version, alone=alone))
            return
        entries = self._by_row.get(row)
        if entries is not None:
            entries.append((start, version))
        elif alone:
            self._by_row[row] = [_NOTHING, (start, version)]
        else:
            self._by_row[row] = [(start, version)]

    def put(self, row: bytes, start: bytes, version: bytes) -> None:
        """Note that an older version was put, or replaced."""
        if self._later:
            self._later.append(lambda recent: recent.put(row, start, version))
            return
        entries = self._by_row.get(row)
        if entries is None or start < entries[0][0]:
            return
        place = bisect_left(entries, (start,))
        end = place + 1 if entries[place : place + 1] and entries[place][0] == start else place
        entries[place:end] = [(start, version)]

    def forget(self, row: bytes) -> None:
        """Know nothing of a key any more."""
        if self._later:
            self._later.append(lambda recent: recent.forget(row))
        else:
            self._by_row.pop(row, None)

    def clear(self) -> None:
        """Know nothing any more."""
        self._by_row.clear()
        self._later.clear()

    def at(self, row: bytes, time: int) -> Entry | None:
        """The version that was valid at ``time``, which is before the latest; None if it is not known here.

        >>> recent = RecentVersions()
        >>> recent.replaced(b"row", pack_time(5), b"five", alone=False)
        >>> recent.at(b"row", 4), recent.at(b"row", 7)[1]
        (None, b'five')
        """
        waiting, self._later = self._later, []
        for note in waiting:
            note(self)
        entries = self._by_row.get(row)
        place = 0 if entries is None else bisect_left(entries, (pack_time(time) + JUST_ABOVE,))
        return entries[place - 1] if entries is not None and place else None

"""``RecentVersions``: the versions that others have replaced as their keys' latest since the last flush.

A look-up before the latest version most often finds one of these, without a search among rows. Rule of this module: for
a key that is known here, it knows every older version from the first of its times on.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sortedcontainers import SortedDict

from millpond.stores.encoding.keys import pack_time
from millpond.stores.typed.versions.version_rows import JUST_ABOVE, TOMBSTONE, Entry

_NOTHING: Final = (b"", TOMBSTONE)
"""A value before all times."""


class _Known:
    """The known versions of one key: many may come in order and many out of it, and none moves the others.

    Args:
        entries: the first versions that became older ones.
    """

    __slots__ = ("in_order", "late")

    def __init__(self, *entries: Entry) -> None:
        self.in_order = list(entries)
        """Versions in the order of time, as they have been replaced."""
        self.late: Any = None
        """The bytes of versions that were older ones from the beginning, by their packed times; None without any."""

    def __len__(self) -> int:
        return len(self.in_order) + (0 if self.late is None else len(self.late))

    def entries(self) -> list[Entry]:
        """Return all versions in the order of time."""
        return self.in_order if self.late is None else sorted([*self.in_order, *self.late.items()])

    def put(self, start: bytes, version: bytes) -> None:
        """Note a version that is not before all others."""
        place = bisect_left(self.in_order, (start,))
        if place < len(self.in_order) and self.in_order[place][0] == start:
            self.in_order[place] = start, version
        else:
            if self.late is None:
                self.late = SortedDict()
            self.late[start] = version

    def at(self, time: bytes) -> Entry | None:
        """Return the last version up to the packed ``time``; None if it is not known."""
        place = bisect_left(self.in_order, (time + JUST_ABOVE,))
        entry = self.in_order[place - 1] if place else None
        if entry is None or self.late is None:
            return entry
        start = next(self.late.irange(None, time, reverse=True), None)
        return entry if start is None or start < entry[0] else (start, self.late[start])


class RecentVersions:
    """Older versions by the row of their key's latest, each as its packed time and its bytes."""

    def __init__(self) -> None:
        self._by_row: dict[bytes, _Known] = {}
        self._later: list[Callable[[RecentVersions], None]] = []

    def later(self, note: Callable[["RecentVersions"], None]) -> None:
        """Call ``note``, which notes many versions, once somebody looks for one: until then, none becomes an object."""
        self._later.append(note)

    def replaced(self, row: bytes, start: bytes, version: bytes, *, alone: bool) -> None:
        """Note that the latest version at ``row`` became an older one; ``alone`` if there was none before it."""
        if self._later:
            self._later.append(lambda recent: recent.replaced(row, start, version, alone=alone))
            return
        known = self._by_row.get(row)
        if known is not None:
            known.in_order.append((start, version))
        elif alone:
            self._by_row[row] = _Known(_NOTHING, (start, version))
        else:
            self._by_row[row] = _Known((start, version))

    def replaced_many(self, rows: Iterable[bytes], entries: Iterable[Entry], alone: Iterable[bool]) -> None:
        """Note many as ``replaced`` does, those of a row in the order of time; only for what ``later`` calls."""
        by_row = self._by_row
        for row, entry, first in zip(rows, entries, alone, strict=True):
            known = by_row.get(row)
            if known is not None:
                known.in_order.append(entry)
            else:
                by_row[row] = _Known(_NOTHING, entry) if first else _Known(entry)

    def put(self, row: bytes, start: bytes, version: bytes) -> None:
        """Note that an older version was put, or replaced."""
        if self._later:
            self._later.append(lambda recent: recent.put(row, start, version))
            return
        known = self._by_row.get(row)
        if known is not None and start >= known.in_order[0][0]:
            known.put(start, version)

    def forget(self, row: bytes) -> None:
        """Forget a key."""
        if self._later:
            self._later.append(lambda recent: recent.forget(row))
        else:
            self._by_row.pop(row, None)

    def clear(self) -> None:
        """Forget all keys."""
        self._by_row.clear()
        self._later.clear()

    def at(self, row: bytes, time: int) -> Entry | None:
        """Return the version that was valid at ``time``, which is before the latest; None if it is not known here.

        >>> recent = RecentVersions()
        >>> recent.replaced(b"row", pack_time(5), b"five", alone=False)
        >>> recent.at(b"row", 4), recent.at(b"row", 7)[1]
        (None, b'five')
        """
        known = self._known(row)
        return None if known is None else known.at(pack_time(time))

    def of_key(self, row: bytes, most: int) -> Sequence[Entry] | None:
        """Return all known versions of a key in the order of time, the first an empty one if there are no others.

        Returns:
            None if they are more than ``most``.
        """
        known = self._known(row)
        if known is None:
            return []
        return known.entries() if len(known) <= most else None

    def _known(self, row: bytes) -> _Known | None:
        """Return the known versions of the key, once all have been noted."""
        waiting, self._later = self._later, []
        for note in waiting:
            note(self)
        return self._by_row.get(row)

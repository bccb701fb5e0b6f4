"""Look-ups of the versions before a key's latest: of those replaced since the last flush, then among rows.

A look-up before the latest version most often finds one of ``RecentVersions``. A ``VersionWalk`` makes many look-ups of
one key, and reads rows for those that find none. Rule of this module: for a key that is known here, every older version
from the first of its times on is known; and nothing is written.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from sortedcontainers import SortedDict

from millpond.stores.backend.contract import Entries
from millpond.stores.encoding.keys import TIME_SIZE, last_time, pack_time
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.versions.version_rows import JUST_ABOVE, TOMBSTONE, Entry, history_prefix

_NOTHING: Final = (b"", TOMBSTONE)
"""A value before all times."""

_SEEKS: Final = 2
"""The number of look-ups of a key that find a version faster alone than by a scan; most find one or two versions."""
_STEPS_BEFORE_SEEK: Final = 32


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
    """Versions that others have replaced as their keys' latest since the last flush, by the row of that.

    Each is its packed time and its bytes.
    """

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


class VersionWalk:
    """A walk through one key's versions from new to old, for many as-of look-ups at once.

    Args:
        last: finds the last row of a range.
        scan: reads the rows of a range.
        latest: the row of the key's latest version.
        recent: the versions that are known without reading rows; None for none.
    """

    def __init__(
        self,
        last: Callable[[bytes, bytes], Entry | None],
        scan: Callable[..., Entries],
        latest: bytes,
        recent: RecentVersions | None,
    ) -> None:
        self._last = last
        self._scan = scan
        self._latest = latest
        self._prefix = history_prefix(latest)
        self._recent = recent
        self._seeks = 0
        self._rows: Entries = iter(())
        self._row: Entry | None = None
        self._time = MAX_TIME

    def back_to(self, time: int) -> Entry | None:
        """Return the version that was valid at ``time``, which never increases from call to call.

        Returns:
            Its bytes behind a row that ends with the time from which it is valid.
        """
        known = None if self._recent is None else self._recent.at(self._latest, time)
        if known is not None:
            return known
        self._recent, steps = None, 0
        while self._seeks == 0 or (self._row is not None and self._time > time):
            if self._seeks < _SEEKS:
                self._move_to(self._last(self._prefix, self._up_to(time)))
                self._seeks += 1
            elif self._seeks == _SEEKS or steps == _STEPS_BEFORE_SEEK:
                self._rows = self._scan(self._prefix, self._up_to(time), reverse=True)
                self._move_to(next(self._rows, None))
                self._seeks += 1
            else:
                self._move_to(next(self._rows, None))
            steps += 1
        return self._row

    def between(self, oldest: int, newest: int, most: int) -> tuple[list[Entry], bool]:
        """Return the versions that were valid at some time from ``oldest`` to ``newest``, read as one range.

        Returns:
            Packed times and versions, newest first, perhaps with some newer ones; and whether there are no others,
            since not many more than ``most`` are read.
        """
        known = [] if self._recent is None else self._recent.of_key(self._latest, most)
        if known is None:
            return [], False
        entries = [entry for entry in reversed(known) if entry[0]]
        if known and known[0][0] <= pack_time(oldest):
            return entries, True
        valid_then = self._last(self._prefix, self._up_to(oldest))
        start = self._prefix if valid_then is None else valid_then[0]
        stop = min(self._prefix + known[0][0], self._up_to(newest)) if known else self._up_to(newest)
        read = list(islice(self._scan(start, stop, reverse=True), most + 1))
        return [*entries, *((row[-TIME_SIZE:], version) for row, version in read)], len(read) <= most

    def _up_to(self, time: int) -> bytes:
        return self._prefix + pack_time(time) + JUST_ABOVE

    def _move_to(self, row: Entry | None) -> None:
        self._row = row
        if row is not None:
            self._time = last_time(row[0])

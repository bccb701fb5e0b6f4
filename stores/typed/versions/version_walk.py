"""A walk back through the versions of one key, for many as-of lookups at once."""

from collections.abc import Callable
from itertools import islice
from typing import Final

from millpond.stores.backend.contract import Entries
from millpond.stores.encoding.keys import TIME_SIZE, last_time, pack_time
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.versions.recent_versions import RecentVersions
from millpond.stores.typed.versions.version_rows import JUST_ABOVE, Entry, history_prefix

_SEEKS: Final = 2
"""The number of look-ups of a key that find a version faster alone than by a scan; most find one or two versions."""
_STEPS_BEFORE_SEEK: Final = 32


class VersionWalk:
    """A walk through one key's versions from new to old.

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

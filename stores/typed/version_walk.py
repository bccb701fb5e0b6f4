"""A walk back through the versions of one key, for many as-of lookups at once."""

from collections.abc import Callable
from typing import Final

from millpond.stores.backend import Entries
from millpond.stores.keys import last_time, pack_time
from millpond.stores.times import MAX_TIME

_JUST_ABOVE: Final = b"\x00"
_SEEKS: Final = 2
"""Most lookups of a key find one version or two, each of which is found faster alone than by a scan."""
_STEPS_BEFORE_SEEK: Final = 32


class VersionWalk:
    """Goes through one key's versions from new to old.

    Args:
        last: finds the last row of a range.
        scan: reads the rows of a range.
        prefix: what the key's rows begin with.
    """

    def __init__(
        self, last: Callable[[bytes, bytes], tuple[bytes, bytes] | None], scan: Callable[..., Entries], prefix: bytes
    ) -> None:
        self._last = last
        self._scan = scan
        self._prefix = prefix
        self._seeks = 0
        self._rows: Entries = iter(())
        self._row: tuple[bytes, bytes] | None = None
        self._time = MAX_TIME

    def back_to(self, time: int) -> tuple[bytes, bytes] | None:
        """The version that was valid at ``time``, which never increases from call to call."""
        steps = 0
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

    def _up_to(self, time: int) -> bytes:
        return self._prefix + pack_time(time) + _JUST_ABOVE

    def _move_to(self, row: tuple[bytes, bytes] | None) -> None:
        self._row = row
        if row is not None:
            self._time = last_time(row[0])

"""A walk back through the versions of one key, for many as-of lookups at once."""

from collections.abc import Callable
from typing import Final

from millpond.stores.backend import Entries
from millpond.stores.keys import last_time, pack_time
from millpond.stores.times import MAX_TIME

_JUST_ABOVE: Final = b"\x00"
_STEPS_BEFORE_SEEK: Final = 32


class VersionWalk:
    """Walks one key's versions from new to old, and seeks again if many lie between two lookups."""

    def __init__(self, scan: Callable[..., Entries], prefix: bytes) -> None:
        self._scan = scan
        self._prefix = prefix
        self._rows: Entries | None = None
        self._row: tuple[bytes, bytes] | None = None
        self._time = MAX_TIME

    def back_to(self, time: int) -> tuple[bytes, bytes] | None:
        """The version that was valid at ``time``, which never increases from call to call."""
        if self._rows is None:
            self._seek(time)
        steps = 0
        while self._row is not None and self._time > time:
            if steps == _STEPS_BEFORE_SEEK:
                self._seek(time)
            else:
                self._step()
            steps += 1
        return self._row

    def _seek(self, time: int) -> None:
        self._rows = self._scan(self._prefix, self._prefix + pack_time(time) + _JUST_ABOVE, reverse=True)
        self._step()

    def _step(self) -> None:
        assert self._rows is not None
        self._row = next(self._rows, None)
        if self._row is not None:
            self._time = last_time(self._row[0])

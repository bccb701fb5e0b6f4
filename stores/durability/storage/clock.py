"""The clock that dates a storage's files, beside this host's.

Rule of this module: the clock that dates the files tells their age. A host may be hours ahead of it or behind, so its
own clock ages nothing. Code that looks at many files first and deletes afterwards, as a person does, deletes nothing
while the two are apart.
"""

import logging
import re
import time
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from millpond.errors import DurabilityError, StorageError
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import TimeUnit

APART_MS: Final = 300_000
"""The difference from which two clocks are apart: far more than a request takes, far less than any retention."""

_SUFFIX: Final = ".clock"
"""The end of the names of files that are written only to see their time."""

_PROBE: Final = re.compile(r"[0-9a-f]{32}\.clock")
_NS: Final = 1_000_000
_MINUTE_MS: Final = 60_000
_MEASURED_EVERY: Final = 3600.0
_MEASURED_AGAIN: Final = 60.0
"""The seconds after which the clocks are compared again: while they agree, and while they do not."""

_log = logging.getLogger(__name__)


def host_ms() -> int:
    """Return the time by this host's clock, in milliseconds since 1970."""
    return time.time_ns() // _NS


def clocks_apart(dating_ms: int, place: str) -> str | None:
    """Return a message if the clock that dates the files of a place is not this host's; None if the two agree.

    Args:
        dating_ms: the time by that clock, now.
        place: the place's name.
    """
    ahead = host_ms() - dating_ms
    if abs(ahead) <= APART_MS:
        return None
    length = TimeUnit.MILLISECOND.length(round(abs(ahead) / _MINUTE_MS) * _MINUTE_MS)
    side = "ahead of" if ahead > 0 else "behind"
    return f"the clock of this host is {length} {side} the one that dates files in {place}"


def storage_ms(storage: Storage, path: str) -> int:
    """Return the time by the storage's clock; ``path`` is written for it, and deleted again.

    Raises:
        DurabilityError: the storage failed, or dates no files.
    """
    now = storage.clock_ms(path)
    if now <= 0:
        raise StorageError(
            f"the storage does not say when {storage.describe(path)} was written, so nothing tells how old its files "
            "are; put the state directory on one that does, such as s3://, gs:// or a path"
        )
    apart = clocks_apart(now, storage.describe("").rstrip("/"))
    if apart is not None:
        _log.warning("%s; files are as old as that one says. Set this host's clock", apart)
    return now


def probe(directory: str = "") -> str:
    """Return the path of a new file in a directory, to be written for its time alone."""
    return f"{directory}/{uuid4().hex}{_SUFFIX}".lstrip("/")


def is_probe(name: str) -> bool:
    """Return whether a file of that name was written for its time alone; one that is left is of a process that died."""
    return _PROBE.fullmatch(name) is not None


@dataclass
class _Seen:
    """A look at a storage's clock.

    Attributes:
        at: the time of the look, in seconds on the monotonic clock.
        storage_ms: the time by the storage's clock, or None if it could not be seen.
    """

    at: float
    storage_ms: int | None


_seen: Final[dict[str, _Seen]] = {}


def wall_clock_us(storage: Storage | None) -> int:
    """Return the wall-clock time in microseconds since 1970: this host's, or if that is apart from it, the storage's.

    The two are compared in each process once an hour. While the storage cannot be asked, the host's counts.
    """
    host = time.time_ns() // 1_000
    if storage is None:
        return host
    seen, now = _seen.get(storage.uri), time.monotonic()
    if seen is None or now - seen.at > (_MEASURED_EVERY if _estimate(seen, now, host) is None else _MEASURED_AGAIN):
        seen = _seen[storage.uri] = _Seen(now, _looked_at(storage))
    estimate = _estimate(seen, now, host)
    return host if estimate is None else estimate


def _looked_at(storage: Storage) -> int | None:
    try:
        return storage_ms(storage, probe())
    except DurabilityError as error:
        _log.warning("this host's clock is taken for right: %s", error)
        return None


def _estimate(seen: _Seen, now: float, host: int) -> int | None:
    """Return the time by the storage's clock, in microseconds; None if it agrees with the host's, or is unknown."""
    if seen.storage_ms is None:
        return None
    estimate = seen.storage_ms * 1_000 + int((now - seen.at) * 1e6)
    return None if abs(host - estimate) <= APART_MS * 1_000 else estimate

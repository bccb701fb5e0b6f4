"""The position of a local copy: the commit that its rows belong to, in the row ``COMMIT_ROW``.

Rule of this module: a position is written in the same atomic write as the changes that lead to it. It also names the
boot of the machine, because local copies are not flushed: after a crash of the machine an engine may show anything,
after a crash of the process only what it wrote. A position from another boot is not trusted.
"""

from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

from millpond.stores.backend import Backend
from millpond.stores.durability.manifest import NO_COMMIT
from millpond.stores.keys import COMMIT_ROW

_LINUX_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """The id of this boot; if the system has none, one that is valid only in this process."""
    try:
        return _LINUX_BOOT_ID.read_text().strip()
    except OSError:
        return uuid4().hex


def encode_position(commit: str) -> bytes:
    """The row's value for a copy that stands at ``commit``."""
    return f"{commit} {boot_id()}".encode()


def position_of(backend: Backend) -> str | None:
    """The commit that the backend's rows belong to: ``NO_COMMIT`` for an empty one, None if that is unknown."""
    row = backend.get(COMMIT_ROW)
    if row is None:
        return NO_COMMIT if next(iter(backend.scan()), None) is None else None
    commit, _, boot = row.partition(b" ")
    return commit.decode(errors="replace") if boot.decode(errors="replace") == boot_id() else None

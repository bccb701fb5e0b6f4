"""The position of a local copy: the commit that its rows belong to, in the row ``COMMIT_ROW``.

Rule of this module: a position is written in the same atomic write as the changes that lead to it. It also names the
boot of the machine, because local copies are not flushed: after a crash of the machine an engine may show anything,
after a crash of the process only what it wrote. A position from another boot is not trusted. The last file is named as
a manifest would name it, so that its commit can be undone although no manifest was kept: it is the delta, if the commit
wrote a snapshot and a delta beside it.

The row's value is JSON::

    {"boot":"…","parent":"the commit before","kind":"delta","file":[sequence,"commit id",rows,bytes,checksum]}
"""

import json
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from millpond.stores.backend.contract import Backend
from millpond.stores.durability.manifests.manifest import NO_COMMIT, Manifest
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, durable_file, read_id
from millpond.stores.encoding.keys import COMMIT_ROW

_LINUX_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Position(NamedTuple):
    """The position of a copy: the file of the last commit, and the commit before, if that is known.

    No file stands for the empty state.
    """

    file: DurableFile | None
    parent: str | None

    @classmethod
    def of(cls, manifest: Manifest) -> "Position":
        """Return the position of a copy with the content of ``manifest``."""
        if not manifest.files:
            return NOWHERE
        if manifest.bridge is not None and not manifest.deltas:
            return cls(manifest.bridge.deltas[-1], manifest.bridge.commits[-2])
        *before, last = (file for file in (manifest.snapshot, *manifest.deltas) if file is not None)
        return cls(last, before[-1].commit if before else None)

    @property
    def commit(self) -> str:
        return NO_COMMIT if self.file is None else self.file.commit

    def branched_from(self, manifest: Manifest) -> Manifest | None:
        """Return the version before the last commit, if ``manifest`` leads on from there."""
        if self.file is None or self.parent is None or self.file.kind is not FileKind.DELTA:
            return None
        return None if manifest.after(self.parent) is None else manifest.up_to(self.parent)

    def encoded(self) -> bytes:
        """Return the row's value, for a position that has a file."""
        assert self.file is not None
        content = {"boot": boot_id(), "parent": self.parent, "kind": self.file.kind, "file": self.file.fields}
        return json.dumps(content, separators=(",", ":")).encode()


NOWHERE: Final = Position(None, None)
"""The position of an empty copy."""


@cache
def boot_id() -> str:
    """Return the id of this boot; if the system has none, one that is valid only in this process."""
    try:
        return _LINUX_BOOT_ID.read_text().strip()
    except OSError:
        return uuid4().hex


def encode_position(manifest: Manifest) -> bytes:
    """Return the row's value for a copy with the content of ``manifest``, which has at least one file."""
    return Position.of(manifest).encoded()


def position_of(backend: Backend, *, of_any_boot: bool = False) -> Position | None:
    """Return the position of the backend's rows: ``NOWHERE`` for an empty one, None if that is unknown.

    Args:
        backend: the rows.
        of_any_boot: whether a position from another boot counts, which suffices if only the commit matters.
    """
    row = backend.get(COMMIT_ROW)
    if row is None:
        return NOWHERE if next(iter(backend.scan()), None) is None else None
    return _decoded(row, of_any_boot)


def _decoded(row: bytes, of_any_boot: bool) -> Position | None:
    try:
        content = json.loads(row.decode())
        file = durable_file(FileKind(content["kind"]), content["file"])
        parent = content["parent"]
        parent = parent if parent in (None, NO_COMMIT) else read_id(parent)
        return Position(file, parent) if of_any_boot or content["boot"] == boot_id() else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None

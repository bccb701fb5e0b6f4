"""Pins: the files of a lineage that each run which shares it may still open.

Rule of this module: a lineage has one owner, the keeper of its manifests, but may have several runs: the one before a
restart, one that is still dying, and one that continues from a copy of the checkpoint and is a fork from then on.
Nobody can tell these apart, so each protects the files that it names, and ends that only by not renewing its pin any
more.

A pin is an empty file in the lineage's directory, ``<base>-<run>.pin`` with twelve digits, so that one listing tells
all pins and when they were renewed. The base is the sequence of the earliest file that the run may still open.
"""

import re
import time
from typing import Final, NamedTuple, Self

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy, garbage_base
from millpond.stores.durability.storage.storage import Storage, StoredFile

_NAME: Final = re.compile(r"(\d{12})-([0-9a-f]{32})\.pin")
_RENEWALS: Final = 8
"""The number of renewals in the life of a pin, so that a slow micro-batch or two do not let it die."""


def pin_path(manifest: Manifest, base: int, run: str) -> str:
    """Return the path of the pin that a run has on the files of a manifest's lineage from ``base`` on."""
    return f"{manifest.directory}/{base:012d}-{run}.pin"


class Pin(NamedTuple):
    """A run's pin, as a listing shows it."""

    file: StoredFile
    base: int
    run: str

    @classmethod
    def of(cls, file: StoredFile) -> Self | None:
        """Return the pin in a file of a listing; None if it is none."""
        match = _NAME.fullmatch(file.path.rpartition("/")[2])
        return None if match is None else cls(file, int(match[1]), match[2])

    def alive(self, policy: DurabilityPolicy, now_ms: int) -> bool:
        """Return whether its run has renewed it lately."""
        return self.file.modified_ms > now_ms - policy.retained_forks_ms


class Protection:
    """The protection of the files that one run of one task may open, by a pin that is kept alive.

    Args:
        storage: the place of the task's files.
        policy: the retention.
        run: the run's id.
    """

    def __init__(self, storage: Storage, policy: DurabilityPolicy, run: str) -> None:
        self._storage = storage
        self._policy = policy
        self._run = run
        self._pinned = ""
        self._renewed = 0.0

    def renew(self, manifest: Manifest) -> None:
        """Protect the files that the run may still open from ``manifest`` on; write a pin only now and then.

        Raises:
            DurabilityError: the storage failed.
        """
        path = pin_path(manifest, garbage_base(manifest, self._policy) or 0, self._run)
        now = time.monotonic()
        if path == self._pinned and (now - self._renewed) * 1000 < self._policy.retained_forks_ms / _RENEWALS:
            return
        with self._storage.writing(path, keep=True):
            pass  # its name says it all
        self._pinned, self._renewed = path, now

"""The progress of a restore, for the log.

Rule of this module: it logs only restores that take long enough for somebody to wonder.
"""

import logging
import time
from collections.abc import Iterator
from typing import Final

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sorted_runs import Rows

_log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 10.0


class Progress:
    """The count of the rows that are read for one store.

    Args:
        store: its name.
        manifest: the version that it is restored at.

    Attributes:
        read: the number of rows so far.
    """

    def __init__(self, store: str, manifest: Manifest) -> None:
        self._store = store
        self._most = sum(file.own_rows for file in manifest.files)
        self.read = 0
        self._began = self._told = time.monotonic()

    def watched(self, run: Iterator[Rows]) -> Iterator[Rows]:
        """Yield the parts of a run, and count them."""
        for part in run:
            self.read += len(part[0])
            now = time.monotonic()
            if now - self._told >= EVERY_SECONDS:
                self._told = now
                _log.info(
                    "restoring store %r: %d of at most %d rows read in %.0f s",
                    self._store,
                    self.read,
                    self._most,
                    now - self._began,
                )
            yield part

"""``TableVersions``: which version of a table each micro-batch of a query reads.

Rule of this module: the first task of a micro-batch settles it, and all others of it read the same, also when it is
repeated after a crash. A version is settled by a file that is put once, before a row is read, as::

    <application_id>/table-versions/<table>/<query>-<micro-batch>

whose content is the version. Those of the last micro-batches are kept, for as many as Spark can go back to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.adapters.spark.worker.attempt import Attempt
from millpond.errors import MissingFileError
from millpond.stores.durability.storage.storage import Storage

TABLE_VERSIONS: Final = "table-versions"
"""The directory of such files, within that of the application."""

RETAINED: Final = 100
"""The number of micro-batches whose versions are kept: as many as Spark retains by itself."""


@dataclass(frozen=True)
class TableVersions:
    """The versions that the micro-batches of a verb's queries read of one table. Travels to the workers.

    Attributes:
        storage: where the durable state is.
        application_id: the verb's.
        table: the name of the table in the verb.
        static: the version that static DataFrames meet; None for those of micro-batches.
    """

    storage: Storage
    application_id: str
    table: str
    static: str | None = None

    def of(self, attempt: Attempt, newest: Callable[[], str]) -> str:
        """Return the version that the micro-batch of an attempt reads; the newest one, if nobody has settled it.

        Raises:
            DurabilityError: the storage failed.
        """
        if self.static is not None:
            return self.static
        path = self._path(attempt.query, attempt.batch or 0)
        settled = self._settled(path)
        if settled is not None:
            return settled
        self.storage.put_once(path, newest().encode())
        self._forget(attempt)
        return self.storage.read(path).decode()

    def read_by(self, query: str, batch: int) -> tuple[str, int] | None:
        """Return the version, and its micro-batch's number, that a micro-batch or the last one before it has read.

        None if there is none, or it was forgotten.

        Raises:
            DurabilityError: the storage failed.
        """
        own, last = f"{self._directory}/{query}-", self._path(query, batch)
        found = [file.path for file in self.storage.list(self._directory) if file.path.startswith(own)]
        path = max((one for one in found if one <= last), default=None)
        return None if path is None else (self.storage.read(path).decode(), int(path.removeprefix(own)))

    def _settled(self, path: str) -> str | None:
        try:
            return self.storage.read(path).decode()
        except MissingFileError:
            return None

    def _forget(self, attempt: Attempt) -> None:
        """Delete the versions of micro-batches to which Spark does not go back any more."""
        first = self._path(attempt.query, max(0, (attempt.batch or 0) - RETAINED))
        for file in self.storage.list(self._directory):
            if file.path.startswith(f"{self._directory}/{attempt.query}-") and file.path < first:
                self.storage.delete(file.path)

    def _path(self, query: str | None, batch: int) -> str:
        return f"{self._directory}/{query}-{batch:010d}"

    @property
    def _directory(self) -> str:
        return f"{self.application_id}/{TABLE_VERSIONS}/{self.table}"

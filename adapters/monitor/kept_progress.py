"""Where the progress of queries is kept: one small file for each of the last micro-batches of a query.

Rule of this module: it knows files and not what they say::

    <directory>/<query id>/<batch>.json

A file appears whole or not at all. A micro-batch that is repeated replaces its own. Who writes is the only one that
deletes: what is older than the last ``KEPT``, and, once the query has gone back, what it has not reached again.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from millpond.adapters.monitor.micro_batch import MicroBatch
from millpond.errors import FormatError, MissingFileError
from millpond.stores.durability.storage.storage import Storage, StoredFile

KEPT: Final = 500
"""How many micro-batches of a query are kept."""

_NAME: Final = re.compile(r"(\d{1,18})\.json")


@dataclass
class ProgressWriter:
    """Keeps the progress of the queries of one process.

    Attributes:
        storage: the directory.
        kept: how many micro-batches of each query are kept.
    """

    storage: Storage
    kept: int = KEPT
    _runs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, directory: str) -> "ProgressWriter":
        """Into a directory, a path or URI.

        Raises:
            ConfigurationError: no file system is known for it.
        """
        return cls(Storage(Storage.from_uri(directory).uri, sync=False))

    def keep(self, one: MicroBatch) -> None:
        """Keep the progress of a micro-batch, and no more than ``kept`` of its query.

        Raises:
            DurabilityError: the storage failed.
        """
        self.storage.put(f"{one.query}/{one.batch}.json", one.to_json().encode())
        if self._runs.get(one.query) == one.run:
            self.storage.delete(f"{one.query}/{one.batch - self.kept}.json")
            return
        for batch, file in _files(self.storage, one.query).items():
            if not one.batch - self.kept < batch <= one.batch:
                self.storage.delete(file.path)
        self._runs[one.query] = one.run


@dataclass
class ProgressReader:
    """Reads what is kept of one query, and each file once.

    Attributes:
        storage: the directory.
        query: the query's id.
    """

    storage: Storage
    query: str
    _known: dict[int, tuple[StoredFile, MicroBatch]] = field(default_factory=dict)

    def newest(self, count: int) -> list[MicroBatch]:
        """The last micro-batches, the first one first.

        Args:
            count: of how many numbers, up to the last one; what was not kept is missing.

        Raises:
            FormatError: a file is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        files = _files(self.storage, self.query)
        wanted = {batch: file for batch, file in files.items() if batch > max(files) - count}
        self._known = {batch: known for batch, known in self._known.items() if wanted.get(batch) == known[0]}
        for batch, file in wanted.items():
            if batch not in self._known:
                self._read(batch, file)
        return [self._known[batch][1] for batch in sorted(self._known)]

    def _read(self, batch: int, file: StoredFile) -> None:
        try:
            text = self.storage.read(file.path).decode(errors="replace")
        except MissingFileError:
            return  # the query has gone on, and deleted it
        try:
            self._known[batch] = (file, MicroBatch.from_json(text))
        except FormatError as error:
            raise FormatError(f"{self.storage.describe(file.path)}: {error}") from error


def _files(storage: Storage, query: str) -> dict[int, StoredFile]:
    named = ((_NAME.fullmatch(file.path.rpartition("/")[2]), file) for file in storage.list(query))
    return {int(match[1]): file for match, file in named if match is not None}

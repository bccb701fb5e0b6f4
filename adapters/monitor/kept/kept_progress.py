"""The files in which the progress of queries is kept: one for each of the last micro-batches, runs, history.

Rule of this module: it knows files and not what they say::

    <directory>/<query id>/<batch>.json
    <directory>/<query id>/runs.json
    <directory>/<query id>/history.json

A file appears whole or not at all. A micro-batch that is repeated replaces its own. Who writes is the only one that
deletes: what is older than the last ``KEPT``, and, once the query has gone back, what it has not reached again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millpond.adapters.monitor.kept.history import MINUTE, History
from millpond.adapters.monitor.kept.micro_batch import MicroBatch
from millpond.adapters.monitor.kept.runs import Runs
from millpond.errors import FormatError, MissingFileError
from millpond.stores.durability.storage.storage import Storage, StoredFile

_Kept = TypeVar("_Kept", MicroBatch, Runs, History)

KEPT: Final = 500
"""The number of micro-batches of a query that are kept."""

_NAME: Final = re.compile(r"(\d{1,18})\.json")
_RUNS: Final = "runs.json"
_HISTORY: Final = "history.json"


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
    _histories: dict[str, tuple[History, int]] = field(default_factory=dict)

    @classmethod
    def at(cls, directory: str) -> "ProgressWriter":
        """Return the writer into a directory, a path or URI.

        Raises:
            ConfigurationError: no file system is known for it.
        """
        return cls(Storage(Storage.from_uri(directory).uri, sync=False))

    def keep(self, one: MicroBatch) -> None:
        """Keep the progress of a micro-batch, and no more than ``kept`` of its query; its history once a minute.

        Raises:
            DurabilityError: the storage failed.
        """
        self.storage.put(f"{one.query}/{one.batch}.json", one.to_json().encode())
        self._add(one)
        if self._runs.get(one.query) == one.run:
            self.storage.delete(f"{one.query}/{one.batch - self.kept}.json")
            return
        for batch, file in _files(self.storage, one.query).items():
            if not one.batch - self.kept < batch <= one.batch:
                self.storage.delete(file.path)
        self._runs[one.query] = one.run

    def runs(self, query: str) -> Runs:
        """Return the kept runs of a query; none if its file is damaged, because nobody can use that.

        Raises:
            DurabilityError: the storage failed.
        """
        try:
            return _runs(self.storage, query)
        except FormatError:
            return Runs(query)

    def keep_runs(self, runs: Runs) -> None:
        """Keep the runs of a query.

        Raises:
            DurabilityError: the storage failed.
        """
        self.storage.put(f"{runs.query}/{_RUNS}", runs.to_json().encode())

    def _add(self, one: MicroBatch) -> None:
        """Add a micro-batch to the history, which is written at the first one of a run, and then once a minute."""
        history, due = self._histories.get(one.query) or (self._history(one.query), 0)
        if self._runs.get(one.query) != one.run:
            due = 0
        history = history.with_batch(one)
        if one.started >= due:
            self.storage.put(f"{one.query}/{_HISTORY}", history.to_json().encode())
            due = one.started + MINUTE
        self._histories[one.query] = history, due

    def _history(self, query: str) -> History:
        """Return the kept history of a query; an empty one if there is none, or nobody can read it."""
        try:
            return _history(self.storage, query)
        except FormatError:
            return History(query)

    def end(self, query: str) -> None:
        """Keep the history of a query that has ended, and forget it.

        Raises:
            DurabilityError: the storage failed.
        """
        known = self._histories.pop(query, None)
        if known is not None:
            self.storage.put(f"{query}/{_HISTORY}", known[0].to_json().encode())


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
        """Return the last micro-batches, the first one first.

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

    def runs(self) -> Runs:
        """Return the runs of the query; none if its progress was kept by a release that did not tell.

        Raises:
            FormatError: the file is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        return _runs(self.storage, self.query)

    def history(self) -> History:
        """Return the history of the query, likewise.

        Raises:
            FormatError: the file is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        return _history(self.storage, self.query)

    def _read(self, batch: int, file: StoredFile) -> None:
        one = _read(self.storage, file.path, MicroBatch.from_json)
        if one is not None:  # else the query has gone on, and deleted it
            self._known[batch] = (file, one)


def _runs(storage: Storage, query: str) -> Runs:
    return _read(storage, f"{query}/{_RUNS}", Runs.from_json) or Runs(query)


def _history(storage: Storage, query: str) -> History:
    return _read(storage, f"{query}/{_HISTORY}", History.from_json) or History(query)


def _read(storage: Storage, path: str, read: Callable[[str], _Kept]) -> _Kept | None:
    """Return the content of a file; None if there is no file.

    Raises:
        FormatError: it is damaged, or of another release.
    """
    try:
        return read(storage.read(path).decode(errors="replace"))
    except MissingFileError:
        return None
    except FormatError as error:
        raise type(error)(f"{storage.describe(path)}: {error}") from error


def _files(storage: Storage, query: str) -> dict[int, StoredFile]:
    named = ((_NAME.fullmatch(file.path.rpartition("/")[2]), file) for file in storage.list(query))
    return {int(match[1]): file for match, file in named if match is not None}

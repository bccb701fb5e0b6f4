"""``CheckpointCopy``: a copy of a checkpoint that stands after one of its earlier micro-batches.

Rule of this module: it knows which of Spark's files make a version, and copies no others. The checkpoint may be in use:
what Spark deletes meanwhile is either older than that, or has been replaced by a file that is found at another look.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from millpond.adapters.backup.copied_files import CopiedFiles, at_once
from millpond.adapters.inspect.checkpoint.clone_note import NOTE, CloneNote
from millpond.errors import CannotContinueError, DurabilityError, MicroBatchNotKeptError

_VERSION: Final = re.compile(r"(\d+)(?:_[^.]*)?\.(zip|changelog)(?:\..*)?")
"""A micro-batch's files in a state store: its number plus one, maybe an id, and maybe a checksum beside it."""

_SNAPSHOT: Final = "zip"
_METADATA: Final = "_metadata/v2"
SINKS: Final = "millpond-sinks.json"
"""Millpond's note of a query that writes several sinks: their names, and the id by which they know their rows."""
NAMED_SOURCES: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""The setting by which a query's sources have names, and Spark keeps their logs by these."""
_SCHEMA: Final = re.compile(r'[^"\\]*/(state/\d+/_stateSchema/)')
"""The path before the file of a schema, which Spark finds by its full path."""


def has_named_sources(offsets: str) -> bool:
    """Return whether a file of ``offsets`` is of a query whose sources have names.

    PySpark 4.3 writes such a file as ``v2``. 4.2 writes ``v1``, and only the settings there tell.
    """
    version, _, rest = offsets.partition("\n")
    return version != "v1" or json.loads(rest.partition("\n")[0]).get("conf", {}).get(NAMED_SOURCES) == "true"


@dataclass(frozen=True)
class CheckpointCopy:
    """A copy of a checkpoint.

    Attributes:
        files: the files of both checkpoints.
        old, new: their locations.
        batch: the micro-batch after which the copy stands.
        same: whether it is the checkpoint of the same query; otherwise of one with an id of its own.
        renamed: the application id of the job, and that which it has in the copy; None if it keeps it.
    """

    files: CopiedFiles
    old: str
    new: str
    batch: int
    same: bool = False
    renamed: tuple[str, str] | None = None

    def offsets(self, batches: Iterable[int]) -> dict[int, str]:
        """Return what the original has read in some micro-batches, as Spark has written it.

        Raises:
            ConfigurationError: one of them is not retained, or its sources have names.
            DurabilityError: the file system failed.
        """
        found = {batch: self._log("offsets", batch) for batch in batches}
        if any(map(has_named_sources, found.values())):
            raise CannotContinueError(
                f"in the checkpoint {self.old} sources have names ({NAMED_SOURCES}), and micro-batches of such a query "
                "cannot be run again elsewhere; compare what it has written by verify"
            )
        return found

    def make(self) -> None:
        """Make it. The id of its query comes last, without which it is none.

        Raises:
            ConfigurationError: the micro-batch is not retained.
            DurabilityError: the file system failed.
        """
        logs = {f"{log}/{self.batch}": self._log(log, self.batch) for log in ("offsets", "commits")}
        if self.batch:  # where nothing is planned, Spark begins by looking at what it read before
            logs[f"offsets/{self.batch - 1}"] = self._log("offsets", self.batch - 1)
        for directory in ("sources", "state"):
            self._copy(directory)
        id_ = self.files.read(f"{self.old}/metadata") if self.same else json.dumps({"id": str(uuid4())})
        for path, text in {**logs, **self._notes(), "metadata": id_}.items():
            self.files.write(f"{self.new}/{path}", text)

    def _notes(self) -> dict[str, str]:
        """Return the files that Millpond keeps beside Spark's, by name, as the copy is to have them."""
        found = {name: self.files.read(f"{self.old}/{name}") for name in (SINKS, NOTE) if self._has(name)}
        if SINKS in found and not self.same:  # another query, whose rows no sink has taken yet
            found[SINKS] = json.dumps({**json.loads(found[SINKS]), "query": uuid4().hex})
        if self.renamed is not None:
            before, now = self.renamed
            note = CloneNote.from_json(found[NOTE]) if NOTE in found else CloneNote(before, ())
            found[NOTE] = note.cloned(now).to_json()
        return found

    def _has(self, name: str) -> bool:
        return self.files.exists(f"{self.old}/{name}")

    def _log(self, log: str, batch: int) -> str:
        path = f"{self.old}/{log}/{batch}"
        if not self.files.exists(path):
            raise MicroBatchNotKeptError(
                f"the checkpoint {self.old} retains no {log}/{batch}, so that the query cannot be run again from "
                "there; choose a later micro-batch"
            )
        return self.files.read(path)

    def _copy(self, directory: str) -> None:
        """Copy what counts in a directory; as long as something has gone meanwhile, look again for what is there."""
        done: set[str] = set()
        while True:
            paths = [path for path in self._wanted(directory) if path not in done]
            copied = at_once(self._copied, paths)
            done |= {path for path, there in zip(paths, copied, strict=True) if there}
            if all(copied):
                return

    def _copied(self, path: str) -> bool:
        """Return whether a file was copied; if not, it has gone."""
        source, target = f"{self.old}/{path}", f"{self.new}/{path}"
        try:
            if f"/{_METADATA}/" in path:
                self.files.write(target, self._moved(source))
            else:
                self.files.copy(source, target)
        except DurabilityError:
            if self.files.exists(source):
                raise
            self.files.delete(target)
            return False
        return True

    def _moved(self, path: str) -> str:
        """Return the metadata of an operator, with the paths that they have in the copy."""
        return _SCHEMA.sub(lambda found: f"{self.files.qualified(self.new)}/{found[1]}", self.files.read(path))

    def _wanted(self, directory: str) -> Iterator[str]:
        """Yield the files that count in a directory of the checkpoint, below that."""
        names = self.files.files(f"{self.old}/{directory}")
        yield from (f"{directory}/{name}" for name in self._of_version(directory, names))
        for name in self.files.directories(f"{self.old}/{directory}"):
            yield from self._wanted(f"{directory}/{name}")

    def _of_version(self, directory: str, names: Iterable[str]) -> list[str]:
        """Return the files of a directory that the version needs, and all that belong to no version."""
        if directory.endswith(_METADATA):
            return [name for name in names if name.isdecimal() and int(name) <= self.batch]
        numbers = {name: int(found[1]) for name in names if (found := _VERSION.fullmatch(name))}
        last = self.batch + 1
        snapshots = [number for name, number in numbers.items() if f".{_SNAPSHOT}" in name and number <= last]
        first = max(snapshots, default=0)
        return [name for name in names if first <= numbers.get(name, last) <= last]

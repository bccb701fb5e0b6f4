"""A query's checkpoint, read without Spark: its micro-batches, and the manifests that Spark's state holds after each.

Rule of this module: it shows what was committed and nothing else. Spark names a micro-batch in ``commits/`` once all of
its state is kept; after micro-batch n, the state of each partition is at version n + 1. What it cannot read for certain
is refused.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from millpond.adapters.inspect.checkpoint.changelogs import StateVersion
from millpond.adapters.inspect.checkpoint.clone_note import NOTE, CloneNote
from millpond.adapters.inspect.checkpoint.kept_manifest import STATE_NAME
from millpond.adapters.inspect.checkpoint.partition_state import OTHER_WAY, PartitionState
from millpond.adapters.inspect.checkpoint.retained_batches import no_checkpoint, why_not_retained
from millpond.errors import CorruptFileError, SparkStateError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.checked_text import MOST_PARTITIONS, read_count
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown

_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_LOCAL: Final = re.compile(r"file:(?:///|/(?!/))")
"""The beginning of a path that Spark takes as it is, with all blanks and signs in it."""
_CONF: Final = "spark.sql.streaming.stateStore."
_EXPECTED: Final = {
    f"{_CONF}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_CONF}encodingFormat": "unsaferow",
}
"""The settings of a query whose state can be read here; a setting that the query does not tell is as here."""


class _Operator(NamedTuple):
    """An operator that keeps manifests."""

    number: int
    partitions: int


@dataclass(frozen=True)
class SparkCheckpoint:
    """The checkpoint of a query.

    Attributes:
        storage: where it is.
        workers: how many partitions are read at the same time.
    """

    storage: Storage
    workers: int

    @classmethod
    def at(cls, location: str, workers: int) -> "SparkCheckpoint":
        """Return the checkpoint at a path or URI, as Spark takes it.

        Raises:
            ConfigurationError: no file system is known for it, or there is none.
        """
        found = cls(storage_at(location), workers)
        if not found._is_there():
            raise no_checkpoint(location)
        return found

    @classmethod
    def exists(cls, location: str) -> bool:
        """Return whether there is one.

        Raises:
            ConfigurationError: no file system is known for the location.
            DurabilityError: the storage failed.
        """
        return cls(storage_at(location), 1)._is_there()

    @classmethod
    def names_in(cls, location: str, part: str) -> list[str]:
        """Return the names of the files in a directory of the checkpoint, or that of a file that is there itself.

        Raises:
            ConfigurationError: no file system is known for the location.
            DurabilityError: the storage failed.
        """
        storage = storage_at(location)
        if part in storage.sizes("", [part]):
            return [part]
        return [file.path.rpartition("/")[2] for file in storage.list(part)]

    def batches(self) -> list[int]:
        """Return the micro-batches that were committed and are retained, the first one first."""
        return sorted(self.committed())

    def begun(self) -> dict[int, int]:
        """Return when each retained micro-batch was begun, by its number, in milliseconds since 1970: a file's time."""
        return self._times("offsets")

    def committed(self) -> dict[int, int]:
        """Return when each retained micro-batch was committed, likewise."""
        return self._times("commits")

    def query_id(self) -> str:
        """Return the id of the query, which it keeps over restarts.

        Raises:
            MissingFileError, CorruptFileError: the file that has it is gone or damaged.
        """
        try:
            found = str(json.loads(self.storage.read("metadata"))["id"])
            if not _ID.fullmatch(found):
                raise ValueError(f"{found!r} is no id of a query")
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            place = self.storage.describe("metadata")
            raise CorruptFileError(f"{place} is damaged ({error!r}); put an undamaged copy back") from error
        return found

    def chosen(self, batch: int | None) -> int:
        """Return the number of a micro-batch that was committed; that of the last one for None.

        Raises:
            ConfigurationError: there is none yet, or not that one.
        """
        batches = self.batches()
        refusal = why_not_retained(shown(self.storage.uri), batches, batch)
        if refusal is not None:
            raise refusal
        return batches[-1] if batch is None else batch

    def manifests(self, batch: int) -> list[Manifest]:
        """Return the manifests of all tasks of all operators, of all applications of the query, after a micro-batch.

        Raises:
            FormatError: the state is kept in a way that is not known here.
            MissingFileError: the state after that micro-batch is gone.
            CorruptFileError: a file is damaged.
            DurabilityError: the checkpoint cannot be read.
        """
        return [manifest for manifests in self.held(batch).values() for manifest in manifests]

    def held(self, batch: int) -> dict[int, list[Manifest]]:
        """Return the manifests by the number of the operator.

        Raises as ``manifests``.
        """
        self._check_settings(batch)
        ids, operators = self._unique_ids(batch), list(self._operators(batch))
        held: dict[int, list[Manifest]] = {operator.number: [] for operator in operators}
        parts = [
            (operator.number, PartitionState(self.storage, f"state/{operator.number}/{partition}"), id_)
            for operator in operators
            for partition, id_ in enumerate(self._ids_of(ids, operator, batch))
        ]
        with ThreadPoolExecutor(self.workers, "millpond-inspect") as pool:
            found = pool.map(lambda part: part[1].manifests(StateVersion(batch + 1, part[2])), parts)
            for (number, *_), manifests in zip(parts, found, strict=True):
                held[number] += manifests
        note = self.clone_note()
        return held if note is None else {number: note.renamed(manifests) for number, manifests in held.items()}

    def clone_note(self) -> CloneNote | None:
        """Return the note with the names of a cloned query; None for any other query.

        Raises:
            FormatError: it is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        there = self.storage.sizes("", [NOTE])
        return CloneNote.from_json(self.storage.read(NOTE).decode(errors="replace")) if there else None

    def progress_of(self, batch: int) -> tuple[int, int, int | None]:
        """Return how far the tasks of a micro-batch are that is not committed, by the state that Spark keeps of them.

        Returns:
            How many partitions have its state, of how many that had that of the one before, and when the last of them
            got it, in milliseconds since 1970; None if none has. Operators of others count, too.

        Raises:
            DurabilityError: the storage failed.
        """
        places = [
            f"state/{number}/{partition}"
            for number in self.storage.directories("state")
            if _NUMBER.fullmatch(number)
            for partition in self.storage.directories(f"state/{number}")
            if _NUMBER.fullmatch(partition)
        ]
        with ThreadPoolExecutor(self.workers, "millpond-inspect") as pool:
            written = list(pool.map(lambda place: PartitionState(self.storage, place).written(batch + 1), places))
        times = [at for at in written if at is not None]
        return len(times), len(places), max(times, default=None)

    def foreign_operators(self) -> list[str]:
        """Return the operators that have state here and keep no manifests in it, as ``1 (dedupe)``.

        Raises:
            CorruptFileError: a file is damaged.
            DurabilityError: the checkpoint cannot be read.
        """
        kept = {operator.number for operator in self._operators(self.chosen(None))}
        numbers = sorted(int(name) for name in self.storage.directories("state") if _NUMBER.fullmatch(name))
        return [f"{number} ({self._name_of(number)})" for number in numbers if number not in kept]

    def _name_of(self, number: int) -> str:
        """Return Spark's name of an operator, from its only metadata file or from the newest of several."""
        directory = f"state/{number}/_metadata"
        known = self._numbers(f"{directory}/v2")
        path = f"{directory}/v2/{known[-1]}" if known else f"{directory}/metadata"
        try:
            return str(self._json(path)["operatorInfo"]["operatorName"])
        except (LookupError, TypeError) as error:
            raise self._damaged(path, error) from error

    def _operators(self, batch: int) -> Iterator[_Operator]:
        """Yield the operators that keep manifests and were there at a micro-batch."""
        for number in sorted(int(name) for name in self.storage.directories("state") if _NUMBER.fullmatch(name)):
            directory = f"state/{number}/_metadata/v2"
            known = [since for since in self._numbers(directory) if since <= batch]
            if known:
                yield from self._operator(number, f"{directory}/{known[-1]}")

    def _operator(self, number: int, path: str) -> Iterator[_Operator]:
        content = self._json(path)
        try:
            properties = json.loads(content["operatorPropertiesJson"] or "{}")
            names = [str(one["stateName"]) for one in properties.get("stateVariables", [])]
            if content["operatorInfo"]["operatorName"].startswith("transformWithState") and STATE_NAME in names:
                (store,) = content["stateStoreInfo"]
                yield _Operator(number, read_count(store["numPartitions"], MOST_PARTITIONS))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(path, error) from error

    def _is_there(self) -> bool:
        return "metadata" in self.storage.sizes("", ["metadata"])

    def _check_settings(self, batch: int) -> None:
        """Refuse a query whose state is kept in another way than is known here."""
        path = f"offsets/{batch}"
        settings = self._json(path).get("conf") or {}
        for name, expected in _EXPECTED.items():
            if settings.get(name, expected) != expected:
                raise SparkStateError(
                    f"the query of {shown(self.storage.uri)} has {name}={settings[name]}, and only {expected} can be "
                    f"read without Spark; {OTHER_WAY.removeprefix('or ')}"
                )

    def _unique_ids(self, batch: int) -> dict[str, Any]:
        """Return, for each operator, the ids of its partitions' state; empty where state has no ids."""
        return self._json(f"commits/{batch}").get("stateUniqueIds") or {}

    def _ids_of(self, ids: dict[str, Any], operator: _Operator, batch: int) -> list[str | None]:
        """Return the id of the state of each partition of an operator; None where state has no ids."""
        if not ids:
            return [None] * operator.partitions
        try:
            return [str(stores[0]) for stores in ids[str(operator.number)]]
        except (LookupError, TypeError) as error:
            raise self._damaged(f"commits/{batch}", error) from error

    def _json(self, path: str) -> dict[str, Any]:
        """Return the first object of one of Spark's files, which begin with a line that has their version."""
        text = self.storage.read(path).decode(errors="replace")
        try:
            found = json.loads(text.split("\n", 2)[1])
        except (LookupError, ValueError, RecursionError) as error:
            raise self._damaged(path, error) from error
        if not isinstance(found, dict):
            raise self._damaged(path, "it is no object")
        return found

    def _numbers(self, directory: str) -> list[int]:
        return sorted(self._times(directory))

    def _times(self, directory: str) -> dict[int, int]:
        """Return the files of a directory whose names are numbers, and when each was written."""
        named = ((file.path.rpartition("/")[2], file.modified_ms) for file in self.storage.list(directory))
        return {int(name): time for name, time in named if _NUMBER.fullmatch(name)}

    def _damaged(self, path: str, error: object) -> CorruptFileError:
        others = "" if path.startswith("state/") else ", or look at another micro-batch"
        return CorruptFileError(
            f"{self.storage.describe(path)} is damaged ({error!r}); put an undamaged copy back{others}"
        )


def storage_at(location: str) -> Storage:
    """Return the storage that Spark takes ``location`` to be."""
    local = _LOCAL.match(location)
    return Storage.from_uri(location if local is None else location[local.end() - 1 :])

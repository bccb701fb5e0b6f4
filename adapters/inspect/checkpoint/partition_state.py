"""The state that Spark keeps for one partition of one operator: its snapshots, and the changelogs after them.

Rule of this module: it puts together the state at one version, and only from files that lead to that very version. The
files are named::

    <version>.zip, <version>.changelog
    <version>_<unique id>.zip, <version>_<unique id>.changelog     where checkpoints have unique ids
    SSTs/<name>.sst                                                the tables of snapshots
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from millpond.adapters.inspect.checkpoint.changelogs import Changelog, StateVersion
from millpond.adapters.inspect.checkpoint.kept_manifest import STATE_NAME, kept_manifests
from millpond.adapters.inspect.checkpoint.snapshots import Snapshot, read_snapshot
from millpond.adapters.inspect.checkpoint.state_values import columns_in, family_of
from millpond.errors import CorruptFileError, FormatError, MissingFileError, SparkStateError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage

T = TypeVar("T")

_NAME: Final = re.compile(r"(\d{1,18})(?:_([0-9A-Za-z-]+))?\.(zip|changelog)")
_BEGINNING: Final = StateVersion(0)
OTHER_WAY: Final = "or let Spark read it (SparkStreams.read_store, or Millpond's read_store)"


class _Files(NamedTuple):
    snapshots: frozenset[StateVersion]
    changelogs: frozenset[StateVersion]


@dataclass(frozen=True)
class PartitionState:
    """The state of one partition.

    Attributes:
        storage: the checkpoint.
        directory: where the files are in it.
    """

    storage: Storage
    directory: str

    def written(self, version: int) -> int | None:
        """Return when the files of a version were written, in milliseconds since 1970; None if there are none.

        Raises:
            DurabilityError: the checkpoint cannot be read.
        """
        named = ((_NAME.fullmatch(file.path.rpartition("/")[2]), file) for file in self.storage.list(self.directory))
        return max((file.modified_ms for match, file in named if match and int(match[1]) == version), default=None)

    def manifests(self, version: StateVersion) -> list[Manifest]:
        """Return the manifests of the tasks that the partition has at a version.

        Raises:
            MissingFileError: files that lead there are gone.
            CorruptFileError: a file is damaged.
            FormatError: a file is in a form that is not known here.
            DurabilityError: the checkpoint cannot be read.
        """
        base, changes = self._way_to(version)
        snapshot = Snapshot({}, {}) if base == _BEGINNING else self._snapshot(base)
        rows: dict[bytes, bytes | None] = {**snapshot.rows}
        for changelog in changes:
            rows.update(changelog.changes)
        kept = {key: value for key, value in rows.items() if value is not None}
        family = self._family(snapshot, kept)
        where = f"the state of Spark in {self.storage.describe(self.directory)} at version {version.number}"
        own = [value for key, value in kept.items() if family_of(key) == family]
        return [manifest for value in own for manifest in _kept(where, *_blamed(where, columns_in, value))]

    def _family(self, snapshot: Snapshot, keys: Iterable[bytes]) -> int | None:
        """Return the id of the manifests' column family: from the snapshot, or, before the first one, the only id."""
        if snapshot.families:
            return snapshot.families.get(STATE_NAME)
        found = set(map(family_of, keys))
        if len(found) > 1:
            raise SparkStateError(
                f"the state of Spark in {self.storage.describe(self.directory)} has more than its operator keeps, and "
                f"nothing tells what is whose; wait for Spark's next snapshot, {OTHER_WAY}"
            )
        return next(iter(found), None)

    def _way_to(self, version: StateVersion) -> tuple[StateVersion, list[Changelog]]:
        """Return the last snapshot before a version, and the changelogs that lead from there."""
        if version in self._files.snapshots:
            return version, []
        if version.unique is None:
            numbers = (one.number for one in self._files.snapshots if one.unique is None)
            base = StateVersion(max((number for number in numbers if number < version.number), default=0))
            # One after the other, so that the first that is missing ends it, however far the last one is.
            between = range(base.number + 1, version.number + 1)
            return base, [self._changelog(StateVersion(number)) for number in between]
        newest = self._changelog(version)
        before = [one for one in newest.lineage if one.number < version.number]
        places = [place for place, one in enumerate(before) if one in self._files.snapshots]
        if not places and before and before[0].number > 1:
            raise self._missing(self._path(before[0], "zip"))
        base, steps = (before[places[-1]], before[places[-1] + 1 :]) if places else (_BEGINNING, before)
        return base, [*map(self._changelog, steps), newest]

    @cached_property
    def _files(self) -> _Files:
        names = (file.path.rpartition("/")[2] for file in self.storage.list(self.directory))
        found = [match.groups() for match in map(_NAME.fullmatch, names) if match is not None]
        kinds = ({StateVersion(int(one), id_) for one, id_, kind in found if kind == what} for what in _SUFFIXES)
        return _Files(*map(frozenset, kinds))

    def _snapshot(self, version: StateVersion) -> Snapshot:
        def table(name: str) -> bytes:
            path = f"{self.directory}/SSTs/{name}"
            try:
                return self.storage.read(path)
            except MissingFileError as error:
                raise self._missing(path) from error

        path = self._path(version, "zip")
        return _blamed(self.storage.describe(path), lambda data: read_snapshot(data, table), self.storage.read(path))

    def _changelog(self, version: StateVersion) -> Changelog:
        if version not in self._files.changelogs:
            raise self._missing(self._path(version, "changelog"))
        path = self._path(version, "changelog")
        return _blamed(self.storage.describe(path), Changelog.of, self.storage.read(path))

    def _path(self, version: StateVersion, suffix: str) -> str:
        name = str(version.number) if version.unique is None else f"{version.number}_{version.unique}"
        return f"{self.directory}/{name}.{suffix}"

    def _missing(self, path: str) -> MissingFileError:
        return MissingFileError(
            f"the file {self.storage.describe(path)} of Spark's state does not exist; put "
            "it back, or look at another micro-batch"
        )


_SUFFIXES: Final = ("zip", "changelog")


def _blamed(where: str, read: Callable[[bytes], T], data: bytes) -> T:
    """Return ``read(data)``; errors name the file and say what to do."""
    try:
        return read(data)
    except FormatError as error:
        raise SparkStateError(f"{where}: {error}; {OTHER_WAY.removeprefix('or ')}") from error
    except ValueError as error:
        raise CorruptFileError(
            f"{where} is damaged: {error}; put an undamaged copy back, or look at another micro-batch"
        ) from error


def _kept(where: str, version: int, text: str) -> list[Manifest]:
    """Return the manifests of a value; errors name where it is, and say themselves what to do."""
    try:
        return kept_manifests(version, text)
    except FormatError as error:
        raise SparkStateError(f"{where}: {error}") from error

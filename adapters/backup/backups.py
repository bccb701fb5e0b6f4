"""``Backups``: a directory with backups of a query, each of them whole by itself.

    <directory>/20261129T203000.125Z/checkpoint/...    the checkpoint
    <directory>/20261129T203000.125Z/state/...         the state
    <directory>/20261129T203000.125Z/backup.json       written last; without it there is no backup

Rule of this module: what was interrupted is no backup, and is told from one by the file that comes last.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from millpond.adapters.backup.query_copy import QueryCopy, QueryPlace, copy_query
from millpond.errors import CorruptFileError, InvalidArgumentError, MissingFileError, NoCheckpointError
from millpond.stores.durability.storage.checked_text import check_text, checked_text, read_count, read_text
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import below, shown

_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z")
_MARK: Final = "backup.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class Backup:
    """A backup that is complete.

    Attributes:
        name: the name of its directory, which is the time when it was begun.
        copy: what it has.
        checkpoint, state_dir: where the query was, as messages show it.
    """

    name: str
    copy: QueryCopy
    checkpoint: str
    state_dir: str

    def __str__(self) -> str:
        return f"{self.name}  {self.copy}, of {self.checkpoint}"

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the backup."""
        yield str(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return {"name": self.name, **self.copy.to_dict(), "of": self.checkpoint}

    def to_json(self) -> str:
        """Return the text that is kept in the backup's directory and says what it contains."""
        origin = {"checkpoint": self.checkpoint, "state_dir": self.state_dir}
        return checked_text({"backup": _VERSION, "batch": self.copy.batch, **origin, "files": self.copy.files})


@dataclass(frozen=True)
class Backups:
    """The backups in a directory.

    Attributes:
        directory: a path or URI.
        storage: what is there.
    """

    directory: str
    storage: Storage

    @classmethod
    def at(cls, directory: str) -> Self:
        """Return the backups at a path or URI.

        Raises:
            ConfigurationError: no file system is known for it.
        """
        return cls(directory, Storage.from_uri(directory))

    def all(self) -> list[Backup]:
        """Return the complete backups, the oldest one first, without damaged ones.

        Raises:
            DurabilityError: the storage failed.
        """
        return [one for one in self._each().values() if isinstance(one, Backup)]

    def damaged(self) -> dict[str, CorruptFileError]:
        """Return the errors of backups that were complete and whose description is damaged, by name.

        Raises:
            DurabilityError: the storage failed.
        """
        return {name: one for name, one in self._each().items() if isinstance(one, CorruptFileError)}

    def make(self, original: QueryPlace, batch: int | None = None, *, keep: int | None = None) -> Backup:
        """Back up a query, which may be running.

        Args:
            original: where it is.
            batch: the micro-batch after which it is backed up; None for the last one that is committed.
            keep: how many backups are to stay, this one among them; None for all. Older ones are deleted when this one
                is complete, and so are those that were interrupted, or are damaged, before the oldest of them.

        Raises what ``copy_query`` raises.
        """
        if keep is not None and keep < 1:
            raise InvalidArgumentError(f"keep is {keep}; give at least 1, which is the backup that is made")
        now = datetime.now(UTC)
        name = f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z"
        copy = copy_query(original, self._place(name), batch, same=True)
        backup = Backup(name, copy, shown(original.checkpoint), shown(original.state_dir))
        self.storage.put(f"{name}/{_MARK}", backup.to_json().encode())
        if keep is not None:
            self._delete_before(self.all()[-keep:][0].name)
        return backup

    def restore(self, into: QueryPlace, name: str | None = None) -> QueryCopy:
        """Put a query back as it was.

        Args:
            into: where it is to be: nothing of it may be there.
            name: the backup; None for the last one.

        Raises:
            ConfigurationError: there is no such backup, or something is there already.
            MissingFileError, CorruptFileError: the backup has lost a file, or has one of another size; nothing is
                written.
            DurabilityError: a storage failed.
        """
        there = self._complete()
        if not there or name not in (None, *there):
            which = "no backup" if name is None else f"no backup {name!r}"
            known = f"only {', '.join(there)}" if there else "make one by millpond state backup"
            raise NoCheckpointError(f"{shown(self.directory)} has {which} that is complete; {known}")
        backup = self._read(name or there[-1])
        self._check(backup)
        return copy_query(backup.copy.place, into, backup.copy.batch, same=True)

    def _place(self, name: str) -> QueryPlace:
        return QueryPlace.below(below(self.directory, name))

    def _names(self) -> list[str]:
        """Return the names of all backups that were begun."""
        return [name for name in self.storage.directories("") if _NAME.fullmatch(name)]

    def _complete(self) -> list[str]:
        """Return the names of the complete backups."""
        return [name for name in self._names() if _MARK in self.storage.sizes(name, [_MARK])]

    def _each(self) -> dict[str, Backup | CorruptFileError]:
        """Return the complete backups, or the errors of damaged ones, by name, the oldest one first."""
        found: dict[str, Backup | CorruptFileError] = {}
        for name in self._complete():
            try:
                found[name] = self._read(name)
            except CorruptFileError as error:
                found[name] = error
        return found

    def _read(self, name: str) -> Backup:
        path = f"{name}/{_MARK}"
        text = self.storage.read(path).decode(errors="replace")
        try:
            content = json.loads(text)
            if content["backup"] != _VERSION:
                raise ValueError(f"its version is {content['backup']!r}, and this release knows {_VERSION}")
            check_text(text)
            files = {read_text(file): read_count(size) for file, size in content["files"].items()}
            copy = QueryCopy(self._place(name), read_count(content["batch"]), files)
            return Backup(name, copy, read_text(content["checkpoint"]), read_text(content["state_dir"]))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CorruptFileError(
                f"{self.storage.describe(path)} is damaged ({error!r}); restore another backup, or delete this one"
            ) from error

    def _check(self, backup: Backup) -> None:
        """Refuse a backup that has lost something of its state."""
        by_directory: dict[str, dict[str, int]] = defaultdict(dict)
        for path, size in backup.copy.files.items():
            directory, _, file = path.rpartition("/")
            by_directory[directory][file] = size
        state = backup.copy.place.state
        for directory, sizes in by_directory.items():
            there = state.sizes(directory, list(sizes))
            for file, size in sizes.items():
                place = state.describe(f"{directory}/{file}")
                if file not in there:
                    raise MissingFileError(f"{place} is gone; put it back, or restore another backup, with --backup")
                if there[file] != size:
                    raise CorruptFileError(
                        f"{place} has {there[file]} bytes, and had {size}; put it back, or restore another backup, "
                        "with --backup"
                    )

    def _delete_before(self, name: str) -> None:
        """Delete all backups that were begun before another; what says that one is complete goes first."""
        for one in self._names():
            if one < name:
                self.storage.delete(f"{one}/{_MARK}")
                self.storage.delete_directory(one)

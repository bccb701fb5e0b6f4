"""The cleaning of a directory of local copies.

Rule of this module: a copy is a cache, so one that nobody has used for long may go, unless its durable files are not
whole: then it stands in for them. A deletion holds the lease of the task, and looks again first. No link is followed
out of the directory, and a file or directory with an unknown name stays, with all that is in it. Ages are taken by this
host's clock, and nothing goes where that clock differs from the one that dates the files.
"""

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Final, NamedTuple

from millpond.errors import LocalDirectoryError, MillpondError, NotCleanedError, StateConflictError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.own_files import FOLLOWED_NOT, is_link
from millpond.stores.backend.registry import supplier
from millpond.stores.cleaning.leftover import Age, GarbageKind, Leftover
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease, lease_holder
from millpond.stores.durability.manifests.manifest import TASK_ID
from millpond.stores.durability.storage.clock import clocks_apart
from millpond.stores.specs.directory import delete_local_copy, state_of_query

_HIDDEN: Final = re.compile(r"\.(.+)\.(seal|prepared|preparing|backlog|building|removing)")
_FILES: Final = {"seal"}
_OF_NO_ENGINE: Final = {"backlog"}


@dataclass(frozen=True)
class CopiesCleaning:
    """The cleaning of a job's ``local_dir`` on this machine.

    Attributes:
        local_dir: the directory.
        place: the place of the state directory (``Storage.place``) whose queries are meant; None for all.
        broken: the faults of the tasks whose durable files are not whole, by application and task.
        age: the age at which an unused copy may go.
    """

    local_dir: Path
    place: str | None
    broken: Mapping[tuple[str, str], str]
    age: Age

    def leftovers(self) -> Iterator[Leftover]:
        """Yield the leftovers, query by query, task by task.

        Raises:
            StoreError: the directory cannot be read.
        """
        try:
            for query in _entries(self.local_dir):
                yield from self._of_query(query)
        except OSError as error:
            raise LocalDirectoryError(
                f"{self.local_dir} cannot be read: {error}; give a directory that this process may read"
            ) from error

    def _of_query(self, query: Path) -> Iterator[Leftover]:
        place = state_of_query(query.name)
        tasks = list(_tasks_below(query)) if _is_directory(query) else []
        if not tasks:
            yield _unknown(query)
        elif self.place is not None and place not in (None, self.place):
            yield Leftover(
                GarbageKind.COPY, str(query), _Size.of([query]).size, "its state is in another state directory"
            )
        else:
            for path in tasks:
                yield from _Task(self, path).leftovers() if _is_task(path) else [_unknown(path)]


class _Task:
    """The local directory of one task."""

    def __init__(self, cleaning: CopiesCleaning, path: Path) -> None:
        self._path = path
        self._age = cleaning.age
        self._top = cleaning.local_dir
        self._broken = cleaning.broken.get((path.parent.name, path.name))

    def leftovers(self) -> Iterator[Leftover]:
        holder = lease_holder(self._path)
        if holder is not None:
            size = _Size.of([self._path]).size
            yield Leftover(GarbageKind.COPY, str(self._path), size, f"process {holder} has it open")
            return
        entries = [path for path in _entries(self._path) if path.name != LEASE_FILE]
        for backend in entries:
            if _is_directory(backend):
                yield from self._of_backend(backend)
            else:
                yield _unknown(backend)
        if not any(not _is_directory(path) or _entries(path) for path in entries):
            found = _Size.of([self._path])
            retire = self._retire if self._old(found) else None
            yield Leftover(GarbageKind.TASK, str(self._path), found.size, self._age.told(found.latest_ms), retire)

    def _of_backend(self, directory: Path) -> Iterator[Leftover]:
        families: dict[str, list[Path]] = {}
        for path in _entries(directory):
            name = _copy_of(path)
            if name is None:
                yield _unknown(path)
            else:
                families.setdefault(name, []).append(path)
        engine: BackendSupplier | MillpondError
        try:
            engine = supplier(directory.name)
        except MillpondError as error:
            engine = error
        for name, paths in families.items():
            yield self._of_copy(directory / name, paths, engine)

    def _of_copy(self, copy: Path, paths: list[Path], engine: BackendSupplier | MillpondError) -> Leftover:
        found = _Size.of(paths)
        leftover = Leftover(_kind_of(copy, paths), str(copy), found.size, self._age.told(found.latest_ms))
        if isinstance(engine, MillpondError):
            return leftover.kept(str(engine))
        if found.links:
            return leftover.kept(f"{found.links[0]} is a symbolic link, which no engine makes")
        strangers = (
            CleanShutdownMarker(copy, checked_by_engine=engine.checksums, limit=0).strangers() if copy.is_dir() else []
        )
        if strangers:
            return leftover.kept(f"its file {strangers[0]} was not there when it was closed; move it away first")
        if self._broken is not None:
            return leftover.kept(f"it may stand in for durable files: {self._broken}")
        if not self._old(found):
            return leftover
        return replace(leftover, delete=partial(self._delete, engine, copy, paths))

    def _old(self, found: "_Size") -> bool:
        return self._age.reached(found.latest_ms)

    def _delete(self, engine: BackendSupplier, copy: Path, paths: list[Path]) -> None:
        """Delete a copy, and its task's directory if it was the last one.

        Raises:
            BackendInUseError: somebody has the task open.
            StateConflictError: somebody has used the copy since it was found, or the clocks are apart.
            StoreError: it cannot be deleted.
        """
        lease = Lease(self._path, timeout=0.0)
        lease.acquire()
        try:
            self._check_clocks(lease)
            if not self._old(_Size.of(paths)):
                raise NotCleanedError(f"{copy} has been used meanwhile, so it stays")
            # A directory with the name of a copy is whole: it gets another name before its seal goes.
            removing = copy.with_name(f".{copy.name}.removing")
            delete_local_copy(engine, removing)
            if copy.is_dir():
                copy.rename(removing)
            for path in (removing, *paths):
                _delete_part(engine, path)
        except OSError as error:
            raise LocalDirectoryError(f"the idle copy {copy} cannot be deleted: {error}; delete it by hand") from error
        finally:
            self._let_go(lease)

    def _retire(self) -> None:
        """Delete the directory of a task without copies.

        Raises:
            BackendInUseError: somebody has the task open.
            StateConflictError: the clocks are apart.
        """
        lease = Lease(self._path, timeout=0.0)
        lease.acquire()
        try:
            self._check_clocks(lease)
        except StateConflictError:
            lease.release()
            raise
        self._let_go(lease)

    def _check_clocks(self, lease: Lease) -> None:
        """Refuse to delete copies that were found old by a clock that does not date the files here."""
        apart = clocks_apart(lease.clock_ms(), str(self._path))
        if apart is not None:
            raise NotCleanedError(f"{apart}, so nothing tells how old they are; set this host's clock and clean again")

    def _let_go(self, lease: Lease) -> None:
        """Release the lease; if no copy is left, remove all directories that are empty now."""
        for path in _entries(self._path):
            with suppress(OSError):
                path.rmdir()
        if [path.name for path in _entries(self._path)] != [LEASE_FILE]:
            lease.release()
            return
        lease.retire()
        for above in (self._path.parent, self._path.parent.parent):
            if above != self._top:
                with suppress(OSError):
                    above.rmdir()


class _Size(NamedTuple):
    """The size, age and links of some files and directories.

    Attributes:
        size: the bytes.
        latest_ms: the time of the last write to any of them.
        links: the symbolic links.
    """

    size: int
    latest_ms: int
    links: list[Path]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> "_Size":
        size = latest = 0
        links: list[Path] = []
        waiting = list(paths)
        while waiting:
            path = waiting.pop()
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # somebody uses it
            latest = max(latest, status.st_mtime_ns // 1_000_000)
            if stat.S_ISDIR(status.st_mode):
                waiting += _entries(path)
            elif stat.S_ISREG(status.st_mode):
                size += status.st_size
            else:
                links.append(path)
        return cls(size, latest, links)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _tasks_below(query: Path) -> Iterator[Path]:
    """Yield the contents of the applications in a query's directory, if there is a task among them."""
    applications = [path for path in _entries(query) if _is_directory(path)]
    below = [path for application in applications for path in _entries(application)]
    if any(map(_is_task, below)):
        yield from below


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not is_link(path)


def _is_task(path: Path) -> bool:
    lease = path / LEASE_FILE
    known = TASK_ID.fullmatch(path.name) is not None and _is_directory(path)
    return known and lease.is_file() and not is_link(lease)


def _copy_of(path: Path) -> str | None:
    """Return the name of the directory that a path in a backend's directory belongs to; None if it is unknown."""
    status = path.lstat().st_mode
    hidden = _HIDDEN.fullmatch(path.name)
    is_file = hidden is not None and hidden[2] in _FILES
    if not (stat.S_ISREG(status) if is_file else stat.S_ISDIR(status)):
        return None
    name = path.name
    while (part := _HIDDEN.fullmatch(name)) is not None:
        name = part[1]
    return None if name.startswith(".") else name


def _kind_of(copy: Path, paths: Iterable[Path]) -> GarbageKind:
    if copy.is_dir():
        return GarbageKind.COPY
    kinds = {match[2] for path in paths if (match := _HIDDEN.fullmatch(path.name)) is not None}
    return GarbageKind.PREPARATION if kinds & {"prepared", "preparing", "backlog"} else GarbageKind.REMNANT


def _delete_part(engine: BackendSupplier, path: Path) -> None:
    hidden = _HIDDEN.fullmatch(path.name)
    if hidden is not None and hidden[2] in _FILES:
        path.unlink(missing_ok=True)
    elif hidden is not None and hidden[2] in _OF_NO_ENGINE:
        if path.is_dir():
            rmtree(path)
    else:
        delete_local_copy(engine, path)


def _unknown(path: Path) -> Leftover:
    why = FOLLOWED_NOT if is_link(path) else "not understood, so it stays"
    return Leftover(GarbageKind.UNKNOWN, str(path), 0, why)

"""The commits since a directory in a new format was last brought up to date: files beside it, one a commit.

Rule of this module: it knows changes and commits, no engine. The names alone tell where a backlog begins and where it
ends, so a micro-batch that does nothing else for the new format reads no byte of it. A file has its name only once it
is whole, and nothing is flushed: after a crash of the machine, local copies are not trusted, and neither are these
files::

    .<store>-v<n>.backlog/000000000041-<commit>.reached    up to here, all is in the directory; an empty file
    .<store>-v<n>.backlog/000000000042-<commit>.changes    the changes of the next commit, …

A file of changes is the XXH3 (64 bits, big-endian) of all that follows, and an Arrow IPC stream of the columns ``key``
and ``value``, in key order, a null for a deletion. The position that the commit leads to is one of the rows.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from xxhash import xxh3_64_digest

from millpond.errors import CorruptStoreError, LocalDirectoryError, StoreError
from millpond.stores.backend.column_changes import ColumnChanges, as_columns
from millpond.stores.backend.contract import Changes
from millpond.stores.backend.own_files import is_link, make_private, no_link, refuse_links
from millpond.stores.durability.copies.position import Position
from millpond.stores.durability.manifests.manifest import Manifest

_NAME: Final = re.compile(r"(\d{12})-([0-9a-f]+)\.(reached|changes)", re.ASCII)
_COMMIT: Final = re.compile(rb"(\d{12})-([0-9a-f]+)", re.ASCII)
_CHECKSUM: Final = 8

BYTES_TOGETHER: Final = 1 << 25
"""The bytes of a backlog that are in memory at a time; at least one commit is."""

_READ_AHEAD: Final = 2


class Commit(NamedTuple):
    """A commit of a task: its number, and its id. Later ones compare as greater."""

    sequence: int
    id: str

    @classmethod
    def of(cls, position: Position) -> Self | None:
        """Return the commit of a position; None for an empty copy's."""
        return None if position.file is None else cls(position.file.sequence, position.file.commit)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the commit that ``bytes`` of one wrote.

        Raises:
            ValueError: it is no commit.
        """
        found = _COMMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:80]!r} is no commit")
        return cls(int(found[1]), found[2].decode())

    def __str__(self) -> str:
        return f"{self.sequence:012d}-{self.id}"

    def __bytes__(self) -> bytes:
        return str(self).encode()


class CatchupLog:
    """The backlog in ``directory``, which need not be there.

    Attributes:
        reached: the commit up to which all is in the directory in the new format; None if there is no backlog.
        waiting: the commits that are here, in order.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.reached: Commit | None = None
        self.waiting: list[Commit] = []
        self._read: dict[Commit, tuple[Any, Any]] = {}

    @property
    def exists(self) -> bool:
        """True if any part of the log is on the disk."""
        return self._directory.is_dir()

    @property
    def end(self) -> Commit | None:
        """The last commit in the log, or else the one that is reached."""
        return self.waiting[-1] if self.waiting else self.reached

    @property
    def _following(self) -> int:
        """The number of the commit that comes next."""
        return 0 if self.end is None else self.end.sequence + 1

    def look(self) -> None:
        """Read what is on the disk, up to the first gap; delete the rest, links, and what a kill has left.

        A process looks when it opens the task, because another process may have served the task since.

        Raises:
            StoreError: the directory cannot be read, or is a link.
        """
        try:
            refuse_links(self._directory)
            there = list(self._directory.iterdir()) if self.exists else []
        except OSError as error:
            raise self._failed(error) from error
        files = (path.name for path in there if not is_link(path))
        found = [match.groups() for match in map(_NAME.fullmatch, files) if match is not None]
        commits = sorted((Commit(int(sequence), commit), kind) for sequence, commit, kind in found)
        self.reached = max((commit for commit, kind in commits if kind == "reached"), default=None)
        self.waiting = []
        for commit, kind in commits if self.reached is not None else ():
            if kind == "changes" and commit.sequence == self._following:
                self.waiting.append(commit)
        for path in set(there).difference(self._paths()):
            with suppress(OSError):
                path.unlink()

    def begin(self, commit: Commit) -> None:
        """Begin anew: the directory in the new format has all up to ``commit``, and nothing waits.

        Raises:
            StoreError: the disk takes no file, or gives none up.
        """
        try:
            make_private(self._directory)
            path = self._path(commit, "reached")
            _touch(path)
            for other in self._directory.iterdir():
                if other != path:
                    other.unlink()
        except OSError as error:
            raise self._failed(error) from error
        self.reached, self.waiting = commit, []

    def append(self, commit: Commit, changes: Changes) -> None:
        """Let the changes of ``commit`` wait.

        Raises:
            StoreError: the changes cannot be written, and do not wait.
        """
        columns = as_columns(changes)
        if not isinstance(columns, ColumnChanges):
            raise StoreError(f"the changes of commit {commit.sequence} are too large to wait in {self._directory}")
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([columns.keys_column, columns.values_column], ["key", "value"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        content = sink.getvalue()
        path = self._path(commit, "changes")
        whole = path.with_suffix(".new")
        try:
            with open(whole, "wb", opener=no_link) as file:
                file.write(xxh3_64_digest(content))
                file.write(content)
            whole.rename(path)
        except OSError as error:
            raise self._failed(error) from error
        self.waiting.append(commit)

    def changes(self, commit: Commit) -> tuple[Any, Any]:
        """Return the keys and the values of a commit that waits, as Arrow arrays.

        Raises:
            CorruptStoreError: they are damaged, or gone.
        """
        if commit not in self._read:
            self._keep(commit, self._content(commit))
        return self._read[commit]

    def read_ahead(self) -> None:
        """Read a few of the commits that wait, which other processes have written, before all are needed at once.

        Raises:
            CorruptStoreError: they are damaged, or gone.
        """
        if sum(keys.nbytes + values.nbytes for keys, values in self._read.values()) < BYTES_TOGETHER:
            for commit in [one for one in self.waiting if one not in self._read][:_READ_AHEAD]:
                self.changes(commit)

    def _keep(self, commit: Commit, changes: tuple[Any, Any]) -> None:
        """Keep the changes of a commit in memory for as long as it waits."""
        self._read = {one: self._read[one] for one in self.waiting if one in self._read}
        self._read[commit] = changes

    def _content(self, commit: Commit) -> tuple[Any, Any]:
        path = self._path(commit, "changes")
        try:
            with open(path, "rb", opener=no_link) as file:
                content = file.read()
            if xxh3_64_digest(memoryview(content)[_CHECKSUM:]) != content[:_CHECKSUM]:
                raise CorruptStoreError(f"{path} fails its checksum")
            table = pa.ipc.open_stream(pa.py_buffer(content).slice(_CHECKSUM)).read_all().combine_chunks()
            return table["key"].chunk(0), table["value"].chunk(0)
        except (OSError, pa.ArrowException, LookupError) as error:
            raise CorruptStoreError(f"{path} cannot be read: {error}") from error

    def size(self, commit: Commit) -> int:
        """Return how many bytes the changes of a commit that waits take.

        Raises:
            CorruptStoreError: they are gone.
        """
        path = self._path(commit, "changes")
        try:
            return path.lstat().st_size
        except OSError as error:
            raise CorruptStoreError(f"{path} cannot be read: {error}") from error

    def reach(self, commit: Commit) -> None:
        """Take ``commit`` and all before it off the log, as the directory in the new format has them.

        Raises:
            StoreError: the disk takes no file, or gives none up. Nothing is lost.
        """
        passed = [(before, "changes") for before in self.waiting if before <= commit]
        if self.reached is not None:
            passed.append((self.reached, "reached"))
        try:
            _touch(self._path(commit, "reached"))
        except OSError as error:
            raise self._failed(error) from error
        self.reached, self.waiting = commit, [after for after in self.waiting if after > commit]
        self._delete(passed)

    def cut(self, manifest: Manifest) -> bool:
        """Take away what comes after the last commit that ``manifest`` includes, such as an attempt that failed.

        Returns:
            Whether anything has been taken away.

        Raises:
            StoreError: it cannot be.
        """
        kept = list(self.waiting)
        while kept and not manifest.includes(kept[-1].id):
            kept.pop()
        taken = self.waiting[len(kept) :]
        self.waiting = kept
        self._delete((commit, "changes") for commit in taken)
        return bool(taken)

    def delete(self) -> None:
        """Delete the log.

        Raises:
            StoreError: it cannot be deleted.
        """
        self.reached, self.waiting = None, []
        try:
            if self.exists:
                rmtree(self._directory)
        except OSError as error:
            raise self._failed(error) from error

    def _paths(self) -> Iterator[Path]:
        if self.reached is not None:
            yield self._path(self.reached, "reached")
        for commit in self.waiting:
            yield self._path(commit, "changes")

    def _path(self, commit: Commit, kind: str) -> Path:
        return self._directory / f"{commit}.{kind}"

    def _delete(self, files: Iterable[tuple[Commit, str]]) -> None:
        try:
            for commit, kind in files:
                self._path(commit, kind).unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreError:
        return LocalDirectoryError(f"{self._directory} cannot be used: {error}; check room and access")


def _touch(path: Path) -> None:
    """Make an empty file."""
    with open(path, "wb", opener=no_link):
        pass

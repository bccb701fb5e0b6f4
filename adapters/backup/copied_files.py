"""The files of a checkpoint that is copied, on any file system, and the copying of many at once.

Rule of this module: it moves files and does not know what they mean.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from millpond.stores.durability.storage.storage import Storage

_Result = TypeVar("_Result")

_AT_ONCE: Final = 8
"""The number of files copied at the same time, each by a thread that waits for a file system."""

_CHUNK: Final = 1 << 24


class CopiedFiles(Protocol):
    """The file operations that copying a checkpoint needs. Paths are full; errors are ``DurabilityError``."""

    def qualified(self, path: str) -> str:
        """Return the path as Spark writes it into files: with its scheme, and without a slash at its end."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory."""

    def files(self, directory: str) -> Sequence[str]:
        """Return the names of the files directly in a directory, sorted; none if it does not exist."""

    def directories(self, directory: str) -> Sequence[str]:
        """Return the names of the directories directly in a directory, sorted; none if it does not exist."""

    def read(self, path: str) -> str:
        """Return the text of a file."""

    def write(self, path: str, text: str) -> None:
        """Write a file that does not exist yet, and the directories above it."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file to a place that does not exist yet."""

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is no error."""


@dataclass(frozen=True)
class StorageFiles:
    """``CopiedFiles`` of two checkpoints, without Spark.

    Hidden files, such as the checksums that Hadoop keeps beside those of a local file system, are not shown: Hadoop
    reads files without them.

    Attributes:
        old, new: the locations.
        source, target: what is there.
    """

    old: str
    source: Storage
    new: str
    target: Storage

    def qualified(self, path: str) -> str:
        return path if ":" in path.partition("/")[0] else f"file:{path}"

    def exists(self, path: str) -> bool:
        storage, place = self._at(path)
        directory, _, name = place.rpartition("/")
        return name in storage.sizes(directory, [name]) or name in storage.directories(directory)

    def files(self, directory: str) -> Sequence[str]:
        storage, place = self._at(directory)
        names = (file.path.rpartition("/")[2] for file in storage.list(place))
        return [name for name in names if not name.startswith(".")]

    def directories(self, directory: str) -> Sequence[str]:
        storage, place = self._at(directory)
        return storage.directories(place)

    def read(self, path: str) -> str:
        storage, place = self._at(path)
        return storage.read(place).decode()

    def write(self, path: str, text: str) -> None:
        storage, place = self._at(path)
        storage.put(place, text.encode())

    def copy(self, source: str, target: str) -> None:
        copy_file(*self._at(source), *self._at(target))

    def delete(self, path: str) -> None:
        storage, place = self._at(path)
        storage.delete(place)

    def _at(self, path: str) -> tuple[Storage, str]:
        """Return the checkpoint in which a path is, and where it is there."""
        if path.startswith(f"{self.new}/"):
            return self.target, path.removeprefix(f"{self.new}/")
        return self.source, path.removeprefix(f"{self.old}/")


def copy_file(source: Storage, path: str, target: Storage, place: str) -> int:
    """Copy a file; returns its size in bytes.

    Raises:
        MissingFileError: it is not there.
        DurabilityError: a storage failed.
    """
    size = 0
    with source.reading(path) as file, target.writing(place) as copy:
        while part := file.read(_CHUNK):
            size += copy.write(part)
    return size


def at_once(copy: Callable[[str], _Result], paths: Iterable[str]) -> list[_Result]:
    """Copy several files at the same time; return the results in their order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(copy, paths))

"""The sources of durable files: the storage, or a memory of it while several stores are opened.

Rule of this module: bytes are passed on as they are. The reader of a file proves it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from threading import Lock
from types import TracebackType
from typing import Any, Final, Protocol, Self

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage

WHOLE: Final = 1 << 23
"""Files up to this size are read whole: an object store takes longer to answer than to send."""

_KEPT_BYTES: Final = 1 << 26
_AT_ONCE: Final = 8


class FileSource(Protocol):
    """The storage as readers of durable files see it; the methods work as those of ``Storage``, and raise the same."""

    @property
    def remote(self) -> bool:
        """True if several reads at once take less time than one after the other."""

    def describe(self, path: str) -> str:
        """Return the full name of a file, for messages."""

    def reading(self, path: str) -> AbstractContextManager[Any]:
        """Return the file, open for reading at any position, by several threads at once."""

    def read(self, path: str) -> bytes:
        """Return the whole content of a small file."""

    def probe(self, path: str) -> None:
        """Read the file to its end, to tell a failing storage from a damaged file."""


class Fetched(FileSource):
    """The files of one version, each opened once, and read once if it is small, however many stores it is read for.

    From a remote storage several small files are fetched at once: the reader of one will soon read those that follow.
    At most 64 MiB are remembered. Use it as a context manager, whose end frees the memory.

    Args:
        storage: the place of the files.
        manifest: the version.
    """

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        self._storage = storage
        self._ahead = _AT_ONCE if storage.remote else 1
        small = [file for file in manifest.stored if file.size <= WHOLE]
        sizes = accumulate(file.size for file in small)
        self._paths: Sequence[str] = [
            manifest.path(file) for file, size in zip(small, sizes, strict=True) if size <= _KEPT_BYTES
        ]
        self._places: Mapping[str, int] = {path: place for place, path in enumerate(self._paths)}
        self._fetched: dict[str, Future[bytes]] = {}
        self._open: dict[str, Any] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(self._ahead, "millpond-fetch")

    @property
    def remote(self) -> bool:
        return self._storage.remote

    def describe(self, path: str) -> str:
        return self._storage.describe(path)

    def reading(self, path: str) -> AbstractContextManager[Any]:
        with self._lock:
            if path not in self._open:
                self._open[path] = self._storage.reading(path)
            return nullcontext(self._open[path])

    def read(self, path: str) -> bytes:
        place = self._places.get(path)
        if place is None:
            return self._storage.read(path)
        with self._lock:
            for following in self._paths[place : place + self._ahead]:
                if following not in self._fetched:
                    self._fetched[following] = self._pool.submit(self._storage.read, following)
            fetched = self._fetched[path]
        try:
            return fetched.result()
        except BaseException:
            self._fetched.pop(path, None)
            raise

    def probe(self, path: str) -> None:
        self._storage.probe(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        for file in self._open.values():
            file.close()

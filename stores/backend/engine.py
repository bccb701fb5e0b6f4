"""The parts of adapters: scans over an engine's own iterator, translated errors, what is closed, directories.

Rule of this module: it knows no engine. A cursor stands between a scan that a caller holds and the engine's iterator
under it, so that the backend can take the iterator away: when it closes, or when the engine is about to invalidate all
of its iterators, as LMDB does when its map grows.
"""

import errno
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, TypeAlias
from weakref import ref

from millpond.errors import BackendError, StoreClosedError, StoreError, StoreFullError
from millpond.stores.backend.own_files import make_private

Entry: TypeAlias = tuple[bytes, bytes]

_FIRST_CHUNK = 4
_LARGEST_CHUNK = 1024
_KEY = itemgetter(0)

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The system's numbers for having no room left."""


class Cursor:
    """The rest of one scan.

    Args:
        entries: the engine's iterator, placed on the first entry of the scan. It sees one snapshot.
        bound: the key at which to stop: excluded going up, included going down. None goes on to the end.
        reverse: whether ``entries`` come in descending order.
        translate: turns an engine's exception into a Millpond error, or gives None for one that is not the engine's.
        keep: an object that must live as long as ``entries`` does.
        prove: for an engine whose iterator ends in the same way at the last entry and at damage. It is called where
            ``entries`` ends before the bound, with the last key that came, or None if none did, and raises if that is
            not the end. Its exceptions are translated as the engine's are.
    """

    __slots__ = (
        "__weakref__",
        "_bound",
        "_detached",
        "_entries",
        "_error",
        "_keep",
        "_last",
        "_prove",
        "_reverse",
        "_translate",
    )

    def __init__(
        self,
        entries: Iterator[Entry],
        bound: bytes | None,
        reverse: bool,
        translate: Callable[[BaseException], Exception | None],
        keep: object = None,
        prove: Callable[[bytes | None], None] | None = None,
    ) -> None:
        self._keep = keep
        self._prove = prove
        self._last: bytes | None = None
        self._entries = entries
        self._bound = bound
        self._reverse = reverse
        self._translate = translate
        self._error: str | None = None
        self._detached = False

    def first(self) -> Entry | None:
        """Return the first entry; None where there is none. A scan for one entry reads no other, and makes no list."""
        if self._error is not None:
            raise StoreClosedError(self._error)
        try:
            entry = next(self._entries, None)
            if entry is None:
                self._note([], 1)
                return None
        except Exception as error:
            self._fail(error)
        key, bound = entry[0], self._bound
        if bound is not None and (key < bound if self._reverse else key >= bound):
            self._finish()
            return None
        self._last = key
        return entry

    def take(self, count: int | None) -> list[Entry]:
        """Return the next entries, at most ``count``; none at the end."""
        if self._error is not None:
            raise StoreClosedError(self._error)
        try:
            if count == _FIRST_CHUNK and self._bound is not None:
                return self._take_singly(count, self._bound)
            chunk = list(islice(self._entries, count))
            if self._prove is not None:
                self._note(chunk, count)
        except Exception as error:
            self._fail(error)
        return chunk if self._bound is None else self._inside(chunk, self._bound)

    def _take_singly(self, count: int, bound: bytes) -> list[Entry]:
        """Return the next entries up to the bound; read only to the first one past it, as most scans are short."""
        chunk: list[Entry] = []
        reverse = self._reverse
        for entry in self._entries:
            if entry[0] < bound if reverse else entry[0] >= bound:
                self._finish()
                return chunk
            chunk.append(entry)
            if len(chunk) == count:
                break
        if self._prove is not None:
            self._note(chunk, count)
        return chunk

    def _fail(self, error: Exception) -> NoReturn:
        """Raise ``error``, or its translation if it is the engine's."""
        translated = self._translate(error)
        if translated is None:
            raise error
        raise translated from error

    def _note(self, chunk: list[Entry], count: int | None) -> None:
        """Note the last key of ``chunk``, and if the engine's iterator has ended, have that proven."""
        if chunk:
            self._last = chunk[-1][0]
        if len(chunk) == count or self._prove is None:
            return
        if not self._beyond(self._last):
            self._prove(self._last)
        self._finish()

    def _beyond(self, key: bytes | None) -> bool:
        if key is None or self._bound is None:
            return False
        return key < self._bound if self._reverse else key >= self._bound

    def _finish(self) -> None:
        """Let go of the engine's iterator, and of the proof of its end."""
        self._entries = iter(())
        self._prove = None

    def _inside(self, chunk: list[Entry], bound: bytes) -> list[Entry]:
        """Return the entries of ``chunk`` before the bound; if one lies beyond it, the walk is over."""
        if not chunk or not self._beyond(chunk[-1][0]):
            return chunk
        self._finish()
        if not self._reverse:
            return chunk[: bisect_left(chunk, bound, key=_KEY)]
        chunk.reverse()
        kept = chunk[bisect_left(chunk, bound, key=_KEY) :]
        kept.reverse()
        return kept

    def detach(self) -> None:
        """Read all that is left into memory and let go of the engine's iterator; once, however often it is called."""
        if self._detached:
            return
        rest = self.take(None)
        self._detached = True
        self._finish()
        self._entries = iter(rest)
        self._bound = None

    def end(self, message: str) -> None:
        """Let go of the engine's iterator, and end the scan with a ``StoreClosedError`` that says ``message``."""
        self._finish()
        self._error = message


def walk(cursor: Cursor) -> Generator[Entry, None, None]:
    """Yield the entries of ``cursor``: the first alone, the others in growing chunks, which makes many cheap."""
    first = cursor.first()
    if first is None:
        return
    yield first
    count = _FIRST_CHUNK
    while chunk := cursor.take(count):
        yield from chunk
        count = min(count * 2, _LARGEST_CHUNK)


def nothing() -> Generator[Entry, None, None]:
    """Yield the scan of an empty range."""
    yield from ()


class OpenCursors:
    """The cursors of one backend whose scans somebody still holds."""

    def __init__(self) -> None:
        self._cursors: set[ref[Cursor]] = set()
        self._forget = self._cursors.discard

    def walk(self, cursor: Cursor) -> Generator[Entry, None, None]:
        """Return the scan over ``cursor``, which ``detach`` and ``end`` reach as long as the scan is held."""
        self._cursors.add(ref(cursor, self._forget))
        return walk(cursor)

    def detach(self) -> None:
        """Read the rest of each scan into memory."""
        if self._cursors:
            for cursor in self._held():
                cursor.detach()

    def end(self, message: str) -> None:
        """End each scan with a ``StoreClosedError``."""
        for cursor in self._held():
            cursor.end(message)

    def _held(self) -> list[Cursor]:
        """Return the cursors as they are now: one that is dropped meanwhile leaves the set."""
        return [cursor for found in tuple(self._cursors) if (cursor := found()) is not None]


class Closed:
    """The stand-in for the parts of an object that is closed: raises ``StoreClosedError`` with ``message`` at any use.

    An object that closes puts one in place of its handle, its methods or its changes. So none of its methods has to
    check first, and while it is open, being closable costs nothing.

    >>> Closed("store 'counts' is closed").get("a")
    Traceback (most recent call last):
    millpond.errors.StoreClosedError: store 'counts' is closed [MILLPOND-STORE-CLOSED]
    """

    def __init__(self, message: str) -> None:
        self.__dict__["message"] = message

    def _refuse(self) -> NoReturn:
        raise StoreClosedError(self.__dict__["message"])

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __contains__(self, key: object) -> NoReturn:
        self._refuse()

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse()

    def __setitem__(self, key: object, value: object) -> NoReturn:
        self._refuse()


class ClosedEngine(Closed):
    """The stand-in for an engine's handle once its backend is closed.

    Args:
        name: the name of the engine for the error, such as ``LMDB in /data/counts``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is closed; open a new backend from its supplier")


class ErrorTranslator(ABC):
    """Within it, an engine's exceptions become Millpond's, so that none of them leaves the adapter.

    An adapter's subclass translates, and wraps every call of the engine as a context manager.
    One object serves all calls of a backend.

    Args:
        directory: the directory that the errors name.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (translated := self.translated(error)) is not None:
            raise translated from error

    @abstractmethod
    def translated(self, error: BaseException) -> StoreError | None:
        """Return the error to raise instead of ``error``, or None if that is not the engine's."""


def make_directory(directory: Path) -> None:
    """Make the directory of a store, and those above it, unless it is there; those that are new, for this user alone.

    Raises:
        StoreFullError: there is no room for it.
        BackendError: something else has its name, or the system refuses it.
    """
    try:
        make_private(directory)
    except OSError as error:
        where = f"the directory {directory} of a store cannot be made ({error.strerror})"
        if error.errno in FULL:
            raise StoreFullError(f"{where}; free some space there") from error
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise BackendError(f"{where}: a file has its name, or that of one above; move the file away") from error
        raise BackendError(f"{where}; see that those above it may be written, or choose another place") from error

"""The measured operations of an engine, and the facts that every measured engine tells of itself.

Rule of this module: keys and values are bytes, and it knows no engine. Each engine here is used the way its
own documentation says is fast; what is measured is the engine, not the class around it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from millpond.stores.backend.contract import BackendSupplier

Row: TypeAlias = tuple[bytes, bytes]

LEAST_BUFFER: Final = 2**20
"""Bytes of a table of writes; a smaller one would cost more for its files than for its rows."""


def buffer_beside(cache_bytes: int, given: int) -> int:
    """Return the bytes of a table of writes beside a cache of a size that was asked for.

    Args:
        cache_bytes: of the cache.
        given: of the table as it is otherwise.
    """
    return min(given, max(LEAST_BUFFER, cache_bytes))


@dataclass(frozen=True)
class Use:
    """The way in which an engine is to be opened.

    Args:
        supplier: the backend whose options an engine below one has to have; a peer has none.
        cache_bytes: of the engine's cache, if it has one that can be set; None leaves it as it comes.
        synced: whether each write has reached the disk when it returns.
    """

    supplier: BackendSupplier | None = None
    cache_bytes: int | None = None
    synced: bool = False


class Engine(ABC):
    """One engine, open on a directory of its own, which does not exist yet."""

    package: ClassVar[str]
    """The distribution that the engine comes from."""

    cache: ClassVar[str] = "unknown"
    """The cache of rows that were read."""

    getter_lasts: ClassVar[bool] = True
    """Whether the function that ``getter`` gives is still good after a write."""

    def __init__(self, directory: Path, use: Use) -> None:
        self.directory = directory
        self.use = use

    @classmethod
    def durability(cls, use: Use) -> str:
        """Return what a write has done when it returns, if the engine is opened for ``use``."""
        return "each write synced" if use.synced else "not synced"

    @classmethod
    def bytes_written(cls, directory: Path) -> int | None:
        """Return the bytes of tables that the engine says it has written to its directory, now closed; or None."""
        return None

    @abstractmethod
    def getter(self) -> Callable[[bytes], Any]:
        """Return the engine's own function for one read."""

    def prepared(self, rows: Sequence[Row]) -> Any:
        """Return rows in the form that ``put_each`` takes, which is made before the clock starts."""
        return rows

    @abstractmethod
    def put_each(self, rows: Any) -> None:
        """Put row after row with the engine's own put, in one transaction or batch if there are several."""

    @abstractmethod
    def delete_each(self, keys: Sequence[bytes]) -> None:
        """Delete key after key, in one transaction or batch if there are several; some may not be there."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine."""


class OrderedEngine(Engine):
    """An engine that finds the first of all keys from a given one on, and the rows after it in order."""

    @abstractmethod
    def scan(self, start: bytes, count: int) -> int:
        """Read up to ``count`` rows from ``start`` on, and return how many there were."""

    @abstractmethod
    def entries(self, *, reverse: bool) -> Iterator[Any]:
        """Yield all rows in key order, or in the opposite order."""


class RawEngine(OrderedEngine):
    """The engine under a backend, with the options of that backend's supplier.

    A distribution that has a backend may register the class of its engine under the backend's name, as an entry point
    of the group ``millpond.bench.engines``.
    """

    cache_option: ClassVar[str | None] = None
    """The option of the backend, a number of bytes, that sizes the engine's cache."""

    buffer_option: ClassVar[str | None] = None
    """The option of the backend, a number of bytes, that sizes a table in memory of what was written last, if the
    engine has one. Where the cache is made small, it is no larger: it would hold what was to be read through the cache.
    """

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        """Read many keys the fastest way."""

    @abstractmethod
    def put_many(self, rows: Sequence[Row]) -> None:
        """Put rows, which come sorted, the fastest way."""

    @abstractmethod
    def load(self, rows: Sequence[Row]) -> None:
        """Put sorted rows into the empty engine the fastest way."""

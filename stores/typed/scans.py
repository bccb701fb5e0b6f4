"""Scans for the users of typed stores: context managers, counted while they are open.

Rule of this module: it knows neither stores nor backends. An owner of scans keeps one ``OpenScans``, passes every
iterator through ``begin`` and calls ``close`` at its own end. A scan that is still held and unfinished then was leaked:
it is counted, reported with its owner's name and ended.
"""

import logging
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar
from weakref import WeakSet

from millpond.errors import StoreClosedError

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Scan(Iterator[T], Generic[T]):
    """An iterator that is also a context manager. Exhausting, closing or dropping it frees the engine's iterator.

    >>> with OpenScans("store 'counts'").begin(iter("abc")) as scan:
    ...     next(scan)
    'a'
    >>> list(scan)
    []
    """

    __slots__ = ("__weakref__", "_entries", "_finished")

    def __init__(self, entries: Iterator[T]) -> None:
        self._entries = entries
        self._finished = False

    def __next__(self) -> T:
        try:
            return next(self._entries)
        except StopIteration:
            self.close()
            raise

    @property
    def finished(self) -> bool:
        """True if it was exhausted or closed."""
        return self._finished

    def close(self) -> None:
        """Close the scan and free its entries. Closing twice is no error."""
        self._finished = True
        self._entries = iter(())

    def end(self, message: str) -> None:
        """Close the scan and free its entries; the next step raises ``StoreClosedError`` with ``message``."""
        self._entries = _ended(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenScans:
    """The scans of one owner that somebody still holds.

    Args:
        owner: the name of the owner for reports, such as ``store 'counts'``.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._scans: WeakSet[Scan[object]] = WeakSet()

    def begin(self, entries: Iterator[T]) -> Scan[T]:
        """Return the scan over ``entries``, counted until it is exhausted, closed or dropped."""
        scan = Scan(entries)
        self._scans.add(scan)  # type: ignore[arg-type]
        return scan

    def count(self) -> int:
        """Return the number of open scans."""
        return sum(not scan.finished for scan in list(self._scans))

    def close(self) -> int:
        """End the scans that are still open and report them as leaked: a log line and a ``ResourceWarning``.

        Returns:
            The number of scans.
        """
        leaked = [scan for scan in list(self._scans) if not scan.finished]
        self._scans.clear()
        if not leaked:
            return 0
        for scan in leaked:
            scan.end(f"{self._owner} was closed while this scan was open; finish or close scans before")
        message = (
            f"{self._owner} was closed with {len(leaked)} open scan(s): use each in a with statement, or exhaust it"
        )
        _log.warning(message)
        warnings.warn(message, ResourceWarning, stacklevel=3)
        return len(leaked)


def _ended(message: str) -> Iterator[NoReturn]:
    raise StoreClosedError(message)
    yield

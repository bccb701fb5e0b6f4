"""One step ahead: what an iterator gives next is made in another thread while the caller uses what it has.

Rule of this module: it is worth its while only where making an item releases the interpreter's lock, as reading Parquet
does.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


def ahead(source: Iterator[T]) -> Iterator[T]:
    """The items of ``source``, in order; at most one of them waits. Its errors are raised where its item is due."""
    with ThreadPoolExecutor(1, "millpond-ahead") as pool:
        pending = pool.submit(next, source, _END)
        while (item := pending.result()) is not _END:
            pending = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]  # what is not the end is an item

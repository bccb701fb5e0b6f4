"""Prefetching: another thread makes what an iterator gives next while the caller uses what it has.

Rule of this module: it pays off only where making an item releases the interpreter's lock, as reading Parquet does.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


def prefetched(source: Iterator[T]) -> Iterator[T]:
    """The items of ``source``, in order, at most one made in advance; errors are raised where an item is due."""
    with ThreadPoolExecutor(1, "millpond-prefetch") as pool:
        pending = pool.submit(next, source, _END)
        while (item := pending.result()) is not _END:
            pending = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]  # what is not the end is an item

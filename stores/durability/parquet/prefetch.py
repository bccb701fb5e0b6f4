"""Prefetching: other threads make the next items of an iterator while the caller uses the last one.

Rule of this module: it pays off only where making an item releases the interpreter's lock, as reading Parquet does.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat, takewhile
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def prefetched(source: Iterator[T]) -> Iterator[T]:
    """Return the items of ``source``, in order, at most one made in advance; errors are raised where an item is due."""
    return takewhile(lambda item: item is not _END, called_ahead(repeat(partial(next, source, _END)), 1))


def called_ahead(functions: Iterable[Callable[[], T]], count: int) -> Generator[T, None, None]:
    """Yield the results of functions, in order, with the next ``count`` called in advance, each in its own thread.

    Errors are raised where a result is due. To stop early, close the iterator: no function runs after that.
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(count, "millpond-prefetch") as pool:
        try:
            for function in functions:
                waiting.append(pool.submit(function))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

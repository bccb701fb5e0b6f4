"""Entries on their way into an engine: lists of keys and of values, which need no object for each pair.

Rule of this module: it knows neither the source nor the target of the entries.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeAlias

Chunk: TypeAlias = tuple[list[bytes], list[bytes]]
"""Keys in ascending order, and the value of each."""

_ROWS: Final = 2048


class EntryChunks(Iterable[tuple[bytes, bytes]]):
    """Entries in key order that exist as chunks; iterating gives them one by one, and once.

    Args:
        chunks: the chunks, in order.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = iter(chunks)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(zip(*chunk, strict=True) for chunk in self.chunks)


def chunks_of(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[Chunk]:
    """Return entries as chunks of a limited size, which they may be already."""
    return entries.chunks if isinstance(entries, EntryChunks) else _cut(iter(entries))


def _cut(source: Iterator[tuple[bytes, bytes]]) -> Iterator[Chunk]:
    while pairs := list(islice(source, _ROWS)):
        keys, values = zip(*pairs, strict=True)
        yield list(keys), list(values)

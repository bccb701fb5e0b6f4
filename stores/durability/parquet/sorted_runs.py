"""Sorted runs of rows, merged into one part by part; if several have a key, the last of them wins.

Rule of this module: it knows only keys and values. It holds one part of each run at a time, so it can merge runs that
do not fit into memory, and it handles single rows only where runs overlap.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TypeAlias

Rows: TypeAlias = tuple[list[bytes], list[bytes | None]]
"""Keys in ascending order, and the value of each; None where the row was deleted."""


class Run:
    """One run, of which one part is in memory.

    Args:
        source: its parts, in order.
    """

    __slots__ = ("_keys", "_position", "_source", "_values")

    def __init__(self, source: Iterator[Rows]) -> None:
        self._source = source
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._position = 0

    def fill(self) -> bool:
        """Make sure that a row is in memory; return False at the run's end."""
        while self._position >= len(self._keys):
            part = next(self._source, None)
            if part is None:
                return False
            (self._keys, self._values), self._position = part, 0
        return True

    @property
    def last_key(self) -> bytes:
        """The greatest key in memory."""
        return self._keys[-1]

    def take(self, bound: bytes) -> Rows:
        """Return the rows in memory up to ``bound``, included."""
        start = self._position
        stop = self._position = bisect_right(self._keys, bound, start)
        return self._keys[start:stop], self._values[start:stop]


def merged_runs(sources: Sequence[Iterator[Rows]], *, deletions: bool) -> Iterator[Rows]:
    """Yield parts of the runs' rows in key order, each key once, with its value in the last run that has it.

    Args:
        sources: the runs, the earliest first, each with ascending keys.
        deletions: whether to include deleted rows, with the value None.
    """
    runs = [run for run in map(Run, sources) if run.fill()]
    while runs:
        bound = min(run.last_key for run in runs)
        parts = [rows for run in runs if (rows := run.take(bound))[0]]
        yield _combined(parts, deletions)
        runs = [run for run in runs if run.fill()]


def _combined(parts: Sequence[Rows], deletions: bool) -> Rows:
    keys, values = parts[0]
    if len(parts) > 1:
        content = dict(zip(keys, values, strict=True))
        for later in parts[1:]:
            content.update(zip(*later, strict=True))
        keys = sorted(content) if len(content) > len(keys) else list(content)
        values = list(map(content.__getitem__, keys))
    if deletions or None not in values:
        return keys, values
    kept = [value is not None for value in values]
    return list(compress(keys, kept)), list(compress(values, kept))

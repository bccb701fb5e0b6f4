"""The changes of several commits, merged into one: in key order, each row as the last of them left it.

Rule of this module: it knows sorted columns, neither files nor engines. It reads a few rows of each commit at a time. A
row that many commits have changed is given once, and neighbors are given together, which costs an engine that keeps
rows in pages far less than writing one commit after the other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_ROWS_PER_STEP: Final = 500
_BYTES_PER_STEP: Final = 1 << 20
_LEAST_READ: Final = 8
"""The rows of a commit that are read at once, however many commits there are."""


class Step(NamedTuple):
    """The next rows, in key order, with None for deletions; and the number of each commit's rows among them."""

    rows: dict[bytes, bytes | None]
    counts: Sequence[int]

    @property
    def last(self) -> bytes:
        """The greatest of the rows."""
        return next(reversed(self.rows))


class Merge:
    """The merge of the changes of commits; ``take`` skips those that are dealt with.

    Args:
        commits: the keys of each commit, in order, and their values, as Arrow arrays; the oldest commit first.
        beyond: only rows after that one; None for all.
    """

    def __init__(self, commits: Sequence[tuple[Any, Any]], beyond: bytes | None = None) -> None:
        self._commits = commits
        self._places = [0 if beyond is None else _place_after(keys, beyond) for keys, _ in commits]

    @property
    def left(self) -> int:
        """The number of rows left, where a row that several commits have changed counts for each of them."""
        return sum(len(keys) - place for (keys, _), place in zip(self._commits, self._places, strict=True))

    def step(self) -> Step:
        """Return the next rows, at least one if any are left, and at most a bounded size beyond that one."""
        found = self._next_keys()
        ends = [keys[-1] for keys, whole in found if not whole]
        end = min(ends, default=None)
        rows: dict[bytes, bytes | None] = {}
        for (_, values), place, (keys, _) in zip(self._commits, self._places, found, strict=True):
            count = len(keys) if end is None else bisect_right(keys, end)
            rows.update(zip(keys[:count], values.slice(place, count).to_pylist(), strict=True))
        bounded = _bounded(rows)
        if not bounded:
            return Step({}, [0] * len(found))
        last = next(reversed(bounded))
        return Step(bounded, [bisect_right(keys, last) for keys, _ in found])

    def take(self, step: Step) -> None:
        """Skip the rows of ``step``, which are dealt with."""
        self._places = [place + count for place, count in zip(self._places, step.counts, strict=True)]

    def _next_keys(self) -> list[tuple[list[bytes], bool]]:
        """Return the next keys of each commit, and whether these are all that it has left."""
        going = sum(place < len(keys) for (keys, _), place in zip(self._commits, self._places, strict=True))
        share = min(_ROWS_PER_STEP, max(_LEAST_READ, 3 * _ROWS_PER_STEP // max(1, going)))
        found = []
        for (keys, values), place in zip(self._commits, self._places, strict=True):
            most = min(share, max(1, _BYTES_PER_STEP * len(keys) // max(1, keys.nbytes + values.nbytes)))
            found.append((keys.slice(place, most).to_pylist(), place + most >= len(keys)))
        return found


def _bounded(rows: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """Return the first of the rows, in order, as many as fit into a step."""
    bounded: dict[bytes, bytes | None] = {}
    size = 0
    for key in sorted(rows):
        if len(bounded) == _ROWS_PER_STEP or size > _BYTES_PER_STEP:
            break
        value = bounded[key] = rows[key]
        size += len(key) + len(value or b"")
    return bounded


def _place_after(keys: Any, key: bytes) -> int:
    """Return how many of sorted keys are not greater than ``key``."""
    return bisect_right(range(len(keys)), key, key=lambda place: keys[place].as_py())

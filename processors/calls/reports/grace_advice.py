"""``GraceAdvice``: the cost of some graces in rows that come too late, and in state.

Rule of this module: it counts and shows what others have measured. Lengths of time in arrays are microseconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

MICROSECOND: Final = timedelta(microseconds=1)

_TITLES: Final = ("grace", "late rows", "share", "wrong results", "state rows", "state bytes")
_UNKNOWN: Final = "-"
_SECOND: Final = 1_000_000
_KEPT_SHARES: Final = (0.99, 0.999, 0.9999, 1.0)
"""Of the rows, for which graces are proposed."""


@dataclass(frozen=True)
class GraceLine:
    """The cost of one grace.

    Attributes:
        grace: its length.
        late: how many rows come too late for it; a row that is late for several windows counts once for each.
        share: their share of all rows; None if these were not counted.
        wrong: how many rows of the result that all rows give at once are missing from what comes out, or are others
            there; None if they were not compared.
        state_rows, state_bytes: how large the state becomes: entries of stores, and bytes of their keys and values;
            None if it was not measured.
    """

    grace: timedelta
    late: int
    share: float | None = None
    wrong: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None

    @property
    def cells(self) -> Sequence[str]:
        """As text, in the order of the titles."""
        share = _UNKNOWN if self.share is None else f"{self.share:.4%}"
        rest = (_UNKNOWN if one is None else f"{one:,}" for one in (self.wrong, self.state_rows, self.state_bytes))
        return str(self.grace), f"{self.late:,}", share, *rest


@dataclass(frozen=True)
class GraceAdvice:
    """The costs of graces, the shortest first. ``str`` makes a table of it, and a notebook shows one.

    Attributes:
        verb: its name.
        rows: how many rows there are; None if they were not counted.
        lines: a line for each grace.
    """

    verb: str
    rows: int | None
    lines: tuple[GraceLine, ...]

    @property
    def enough(self) -> timedelta | None:
        """The shortest of the graces with which nothing is late and nothing wrong; None if there is none."""
        return next((line.grace for line in self.lines if not line.late and not line.wrong), None)

    def __str__(self) -> str:
        texts = [_TITLES, *(line.cells for line in self.lines)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in texts]
        return "\n".join([self._head, *table])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in _TITLES)
        lines = ("".join(f"<td>{cell}</td>" for cell in line.cells) for line in self.lines)
        return f"<p>{escape(self._head)}</p><table>{''.join(f'<tr>{line}</tr>' for line in (head, *lines))}</table>"

    @property
    def _head(self) -> str:
        return self.verb if self.rows is None else f"{self.verb}: {self.rows:,} rows"


def lateness_of(inputs: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Return how much older each row is than the newest one of the micro-batches before its own; 0 if it is not.

    Args:
        inputs: for each input, the times of its rows and the numbers of their micro-batches.

    >>> lateness_of([(np.array([5, 9]), np.array([0, 1])), (np.array([3, 7]), np.array([1, 2]))]).tolist()
    [0, 0, 2, 2]
    """
    times, batches = (np.concatenate(both) for both in zip(*inputs, strict=True))
    if not len(times):
        return times
    numbers, places = np.unique(batches, return_inverse=True)
    newest = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(newest, places, times)
    clock = np.concatenate([newest[:1], np.maximum.accumulate(newest)])[places]
    clock = np.where(places == 0, times, clock)
    late: Integers = np.maximum(clock - times, 0)
    return late


def proposed_graces(lateness: Integers) -> list[timedelta]:
    """Return no grace, and graces in whole seconds for which 1 %, 0.1 %, 0.01 % and none of the rows are late.

    >>> [str(grace) for grace in proposed_graces(np.array([0] * 98 + [1_500_000, 61_000_000]))]
    ['0:00:00', '0:00:02', '0:01:01']
    """
    ordered = np.sort(lateness)
    found = {0}
    for share in _KEPT_SHARES if len(ordered) else ():
        micros = int(ordered[int(np.ceil(share * len(ordered))) - 1])
        found.add(-(-micros // _SECOND) * _SECOND)
    return [micros * MICROSECOND for micros in sorted(found)]


def advice_of_needed(verb: str, needed: Mapping[int, int], rows: int | None) -> GraceAdvice:
    """Return the costs of graces, by the graces that late rows would have needed.

    Args:
        verb: its name.
        needed: how many rows needed a grace of so many microseconds.
        rows: how many rows there are; None if they were not counted.

    >>> print(advice_of_needed("hourly", {40_000_000: 99, 300_000_000: 1}, 10_000))
    hourly: 10,000 rows
      grace  late rows    share  wrong results  state rows  state bytes
    0:00:40          1  0.0100%              -           -            -
    0:05:00          0  0.0000%              -           -            -
    """
    lengths = np.repeat(np.array(list(needed), np.int64), list(needed.values()))
    graces = proposed_graces(lengths)[1:] if len(lengths) else []
    return GraceAdvice(verb, rows, tuple(_lines(lengths, graces, rows)))


def _lines(needed: Integers, graces: Sequence[timedelta], rows: int | None) -> Iterator[GraceLine]:
    for grace in graces:
        late = int(np.count_nonzero(needed > grace // MICROSECOND))
        yield GraceLine(grace, late, share_of(late, rows))


def share_of(late: int, rows: int | None) -> float | None:
    """Return the share of so many rows in all rows; None if these were not counted."""
    return None if rows is None else late / rows if rows else 0.0

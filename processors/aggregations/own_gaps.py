"""Gaps of single records in sessions: results of a function, or fields of packed rows.

Rule of this module: it gives lengths of time in the unit of the topology, and knows no sessions.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.errors import RecordError
from millpond.processors.options.windows import GapFunction, SessionWindows
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.stores.encoding.times import TimeUnit, to_millis

Integers = npt.NDArray[np.int64]


class OwnGaps(ABC):
    """Tells the gap of each record."""

    @abstractmethod
    def of(self, batch: Batch) -> list[int]:
        """Return the gap of each record; zero or less for one that is in no session.

        Raises:
            RecordError: a gap is greater than the sessions are kept for.
        """


class CalledGaps(OwnGaps):
    """Gaps that a function of key and value returns, in milliseconds.

    Args:
        function: the function.
        at_most: the greatest gap.
    """

    def __init__(self, function: GapFunction, at_most: int) -> None:
        self._function = function
        self._at_most = at_most

    def of(self, batch: Batch) -> list[int]:
        return [self._gap(key, value) for key, value in zip(batch.keys, batch.values, strict=True)]

    def _gap(self, key: Any, value: Any) -> int:
        given = self._function(key, value)
        gap = 0 if given is None else to_millis(given, "the gap of a record")
        if gap > self._at_most:
            shown = TimeUnit.MILLISECOND.length
            raise RecordError(f"the gap of a record is {shown(gap)}, more than at_most={shown(self._at_most)!r}")
        return gap


class PackedGaps(OwnGaps):
    """Gaps in the last field of packed rows; rows without a gap, or with too great a one, have been left out."""

    def of(self, batch: Batch) -> list[int]:
        return [row[-1] for row in batch.values]

    def of_columns(self, columns: Columns) -> Integers:
        """Return the gap of each row."""
        gaps: Integers = columns.values.storage.flatten()[-1].to_numpy()
        return gaps


def own_gaps(windows: SessionWindows) -> OwnGaps | None:
    """Return the gaps of records; None if all records have the same."""
    given = windows.gap_of
    return given if given is None or isinstance(given, OwnGaps) else CalledGaps(given, windows.gap)

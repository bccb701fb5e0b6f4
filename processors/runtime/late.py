"""Late records: those that an operator has left out for their time, and how late they were.

Rule of this module: it describes such records. The driver decides who keeps them, and where.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import Place

Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LateRecords:
    """Records that an operator has left out, or joined with nothing, because they came too late for it.

    Attributes:
        place: the place of the operator.
        reason: the name that they were counted as.
        records: the records.
        reached: for each, the time that the operator had reached.
        short: for each, by how much the operator's grace, lateness or history was too short for it.
        allowed: that grace, lateness or history; all times and lengths have the unit of the records' timestamps.
    """

    place: Place
    reason: CounterName
    records: Records
    reached: Integers
    short: Integers
    allowed: int


KeepLate: TypeAlias = Callable[[LateRecords], None]
"""Takes late records."""


def chosen(records: Records, mask: Booleans) -> Records:
    """Return the records for which ``mask`` is true, in either form."""
    return records.select(mask) if isinstance(records, Columns) else records.select(mask.tolist())

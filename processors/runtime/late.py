"""Late records: what an operator has left out for its time, with how late it was.

Rule of this module: it says what is known of such records. Who keeps them, and where, is up to the driver.
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
        place: which operator.
        reason: what they were counted as.
        records: the records.
        reached: for each, the time that the operator had reached.
        short: for each, by how much the operator's grace, lateness or history was too short for it.
        allowed: that grace, lateness or history; all times and lengths count what the records' timestamps count.
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

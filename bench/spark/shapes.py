"""What all contenders of a workload share: how much there is, the columns that come in, and those that come out.

Rule of this module: every time is in milliseconds, and one row arrives in each, so all lengths of time follow from the
number of rows. A workload is the same at every size: a key of a window or of a session has as many rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

Inputs = Mapping[str, DataFrame]
"""A DataFrame for each topic."""

EVENT: Final = "key string, at long, amount long"
RATE: Final = "key string, at long, rate double"
ORDER: Final = "key string, at long, customer string, amount long"

KEYED: Final = "key string, timestamp long, value long"
COUNTED: Final = "key string, value long"
COUNTED_IN_WINDOW: Final = "key string, window_start long, window_end long, value long"
JOINED: Final = "key string, timestamp long, amount long, rate double"

CARRIED: Final = "headers array<struct<key string, value binary>>"
"""The column of headers, where there are any."""

HISTORY: Final = 1 << 40
"""How far back versioned tables are kept: farther than any benchmark reaches."""


@dataclass(frozen=True)
class Scale:
    """How much there is.

    Attributes:
        rows: of a micro-batch, over all topics; also how many milliseconds it spans.
        keys: distinct ones.
        files: of each topic in a micro-batch; so many Spark tasks read it.
    """

    rows: int
    keys: int
    files: int = 1

    @property
    def window(self) -> int:
        """The size of a window: a micro-batch."""
        return self.rows

    @property
    def gap(self) -> int:
        """What ends a session: a row that is farther from the one before."""
        return max(self.rows // 5, 2)

    @property
    def reach(self) -> int:
        """How far apart the rows may be that a join of streams brings together."""
        return max(self.rows // 10, 1)

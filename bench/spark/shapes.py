"""The common shapes of a workload's contenders: how much there is, the columns that come in, and those that come out.

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
SALE: Final = "key string, at long, amount long, weight double, price decimal(12,2), status string"
LIMIT: Final = "key string, at long, bound long"
TIER: Final = "key string, at long, rate double, since timestamp"
ACCOUNT: Final = "key string, at long, segment string, amount long, op string"
TRADE: Final = "key string, at long, price double, size long"
QUOTE: Final = "key string, at long, bid double, ask double"

KEYED: Final = "key string, timestamp long, value long"
COUNTED: Final = "key string, value long"
COUNTED_IN_WINDOW: Final = "key string, window_start long, window_end long, value long"
JOINED: Final = "key string, timestamp long, amount long, rate double"
BOUNDED: Final = "key string, timestamp long, amount long, rate double, bound long"
SIGNED: Final = "segment string, at long, sign long, amount long"
QUOTED: Final = "key string, timestamp long, price double, size long, bid double, ask double"

_KINDS: Final = ("long", "double", "decimal(12,2)", "string", "timestamp", "boolean")
_MEASURED: Final = [f"measured_{number} {kind}" for number, kind in enumerate(3 * _KINDS)]
_KNOWN: Final = [f"known_{number} {kind}" for number, kind in enumerate(_KINDS)]
READING: Final = ", ".join(["key string, at long", *_MEASURED])
"""A wide row: 20 columns."""

DEVICE: Final = ", ".join(["key string, at long", *_KNOWN])
WIDE: Final = ", ".join(["key string, timestamp long", *_MEASURED, *_KNOWN])

CARRIED: Final = "headers array<struct<key string, value binary>>"
"""The column of headers, where there are any."""

HISTORY: Final = 1 << 40
"""The history of versioned tables: farther back than any benchmark reaches."""


@dataclass(frozen=True)
class Scale:
    """The number of rows and keys.

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
        """The gap that ends a session: a row farther from the one before, in milliseconds."""
        return max(self.rows // 5, 2)

    @property
    def reach(self) -> int:
        """The distance between rows that a join of streams brings together, and the time that quotes are kept."""
        return max(self.rows // 10, 1)

    @property
    def roll_up(self) -> tuple[int, int, int]:
        """Sizes of windows, each of ten of the one before; the last is a micro-batch, to a hundred rows."""
        least = max(self.rows // 100, 1)
        return least, 10 * least, 100 * least


def columns_of(schema: str) -> list[str]:
    """Return the names of the columns of one of these schemas."""
    return [column.split()[0] for column in schema.split(", ")]

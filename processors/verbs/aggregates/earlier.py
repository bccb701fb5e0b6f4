"""Calls of ``over`` that look at a row before each one, and aggregate nothing."""

from typing import Final

from millpond.errors import InvalidArgumentError
from millpond.processors.options.given import fitted
from millpond.processors.verbs.aggregates.call import LAG, MOST_ROWS, AggregateCall

BEHIND: Final = (
    "for the row behind each one, join the rows with themselves: asof_join(rows, later, on=..., left_time=..., "
    "right_time=..., direction='forward', exact=False, tolerance=..., grace=..., history=...), where later has the "
    "rows with all columns but those in on under other names"
)
"""The advice to a user who asks for the row behind each one."""


@fitted
def lag(column: object, offset: int = 1) -> AggregateCall:
    """Return the value of the row that is so many rows before each one, null included; null if there is none.

    It aggregates nothing, so ``over`` takes it, and ``aggregate`` does not.

    Args:
        column: the column that is looked up.
        offset: how many rows before, from 1 on.

    Raises:
        ConfigurationError: the offset is not such a number.
    """
    if type(offset) is not int or not 1 <= offset <= MOST_ROWS:
        raise InvalidArgumentError(
            f"offset={offset!r} of lag is no number of rows before each one; give 1 to {MOST_ROWS}, or {BEHIND}"
        )
    return AggregateCall(LAG, column, {"offset": offset})

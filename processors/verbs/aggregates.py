"""What a user writes to aggregate columns: ``count()``, ``sum("amount")``, ``last("status")`` and so on.

Rule of this module: a call says what is wanted and knows no types; ``millpond.processors.verbs.functions`` has the
logic. The names are Spark SQL's, and so is what they mean in its ANSI mode, unless a docstring says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millpond.errors import ConfigurationError

FINEST_ERROR: Final = 0.0008
"""The smallest relative error that a sketch can be asked for; it takes 2 MB a group."""


_BY_TIME: Final = ("first", "last", "collect")
_COMPARING: Final = ("min", "max", "count_distinct", "approx_count_distinct")


@dataclass(frozen=True, eq=False)
class AggregateCall:
    """An aggregate function and what it is applied to. Calls are never compared: columns may overload ``==``.

    Attributes:
        function: the function's name.
        column: the name of a column, or an expression that the adapter evaluates; None if rows are counted.
        options: of the function, by name.
    """

    function: str
    column: object | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_time(self) -> bool:
        """Whether the result goes by the times of rows, and, at equal times, by their order."""
        return self.function in _BY_TIME

    @property
    def compares(self) -> bool:
        """Whether the result depends on which values are equal, or greater."""
        return self.function in _COMPARING

    def __str__(self) -> str:
        return f"{self.function}({'' if self.column is None else self.column})"


def count(column: object | None = None) -> AggregateCall:
    """How many rows there are, or with a column, how many of its values are not null; never null."""
    return AggregateCall("count", column)


def sum(column: object) -> AggregateCall:
    """The sum of the values that are not null; null if there are none.

    Integers give int64, floats float64, decimal(p, s) gives decimal(min(38, p + 10), s), durations durations. A sum
    that leaves its type is an error, as in Spark, even if later values would bring it back; as there, values of one
    micro-batch may be added to each other before they are added to those before them. A sum of floats is the
    exact sum, rounded once: it does not depend on the order of the rows, unless a partial sum exceeds the greatest
    float64 and so becomes infinite.
    """
    return AggregateCall("sum", column)


def avg(column: object) -> AggregateCall:
    """The average of the values that are not null; null if there are none.

    Integers and floats give float64: the exact sum divided by the count. decimal(p, s) gives
    decimal(min(38, p + 4), min(38, s + 4)), durations durations; both are rounded half up.
    """
    return AggregateCall("avg", column)


def min(column: object) -> AggregateCall:
    """The least value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with -0.0 is less than one with 0.0.
    """
    return AggregateCall("min", column)


def max(column: object) -> AggregateCall:
    """The greatest value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with 0.0 is greater than one with -0.0.
    """
    return AggregateCall("max", column)


def first(column: object, *, ignore_nulls: bool = False) -> AggregateCall:
    """The value of the earliest row by *event time*; of rows at the same time, the first by ``order``.

    Spark's ``first`` goes by arrival, which depends on how rows are spread over files and tasks.
    """
    return AggregateCall("first", column, {"ignore_nulls": ignore_nulls})


def last(column: object, *, ignore_nulls: bool = False) -> AggregateCall:
    """The value of the latest row by *event time*; of rows at the same time, the last by ``order``."""
    return AggregateCall("last", column, {"ignore_nulls": ignore_nulls})


def collect(column: object) -> AggregateCall:
    """A list of the values that are not null, by event time, then by ``order``; never null.

    The whole list is read and written with each micro-batch that touches it, so it suits groups that stay small.
    """
    return AggregateCall("collect", column)


def count_distinct(column: object) -> AggregateCall:
    """How many different values there are besides null; never null. All NaNs are equal, and -0.0 = 0.0.

    All values are kept, and read and written with each micro-batch that touches the group:
    ``approx_count_distinct`` suits many values.
    """
    return AggregateCall("count_distinct", column)


def approx_count_distinct(column: object, relative_error: float = 0.05) -> AggregateCall:
    """About how many different values there are besides null; never null. Needs the package ``datasketches``.

    Args:
        column: what is counted.
        relative_error: the standard deviation of result / truth - 1, from ``FINEST_ERROR`` up. About one result in
            three is further off, one in twenty more than twice as far. Small counts are nearly exact; large ones may
            differ within that error by how rows are spread over micro-batches and tasks. The state takes about 1.08 /
            ``relative_error`` ** 2 bytes, rounded up to a power of two.

    Raises:
        ConfigurationError: no sketch has such an error.
    """
    if not FINEST_ERROR <= relative_error < 1:
        raise ConfigurationError(
            f"relative_error={relative_error!r} of approx_count_distinct is not from {FINEST_ERROR} to below 1; "
            "choose one in between, or count_distinct for an exact count"
        )
    return AggregateCall("approx_count_distinct", column, {"relative_error": relative_error})

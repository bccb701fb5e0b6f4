"""What a user writes to aggregate columns: ``count()``, ``sum("amount")``, ``last("status")`` and so on.

Rule of this module: a call says what is wanted and knows no types; ``millpond.processors.verbs.functions`` has the
logic. The names are Spark SQL's, and so is what they mean in its ANSI mode, unless a docstring says otherwise.

Each takes ``where``, a condition: rows for which it is false or null do not count, as with ``FILTER (WHERE ...)`` in
SQL. It is what ``DataFrame.where`` takes: text such as ``"status = 'paid'"``, or a Column of booleans. Where no row
counts, the result is that of no rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millpond.errors import ConfigurationError

FINEST_ERROR: Final = 0.0008
"""The smallest relative error that a sketch can be asked for; it takes 2 MB a group."""


LAG: Final = "lag"
"""The function that aggregates nothing."""

_BY_TIME: Final = ("first", "last", "collect", "map_agg")
_COMPARING: Final = ("min", "max", "mode", "count_distinct", "approx_count_distinct", "map_agg")


@dataclass(frozen=True, eq=False)
class AggregateCall:
    """An aggregate function and what it is applied to. Calls are never compared: columns may overload ``==``.

    Attributes:
        function: the function's name.
        column: the name of a column, or an expression that the adapter evaluates; None if rows are counted.
        options: of the function, by name.
        where: a condition that the adapter evaluates: only rows for which it is true count; None if all do.
        second: of a function of two columns, the second one: rows bring structs of both.
    """

    function: str
    column: object | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    where: object | None = None
    second: object | None = None

    @property
    def takes_values(self) -> bool:
        """Whether rows bring a value for it: of its column, or any value where a row counts."""
        return self.column is not None or self.where is not None

    @property
    def wraps(self) -> bool:
        """Whether values are the only fields of structs, which are null in rows that do not count.

        So it is where null is a value as others are. Elsewhere, the value itself is null in such rows.
        """
        return self.where is not None and not self.options.get("ignore_nulls", True)

    @property
    def by_time(self) -> bool:
        """Whether the result goes by the times of rows, and, at equal times, by their order."""
        return self.function in _BY_TIME

    @property
    def compares(self) -> bool:
        """Whether the result depends on which values are equal, or greater; of two columns, those of the first one."""
        return self.function in _COMPARING or bool(self.options.get("distinct"))

    def __str__(self) -> str:
        columns = [str(column) for column in (self.column, self.second) if column is not None]
        where = [] if self.where is None else [f"where={self.where}"]
        return f"{self.function}({', '.join([*columns, *where])})"


def count(column: object | None = None, *, where: object | None = None) -> AggregateCall:
    """How many rows there are, or with a column, how many of its values are not null; never null."""
    return AggregateCall("count", column, where=where)


def sum(column: object, *, where: object | None = None) -> AggregateCall:
    """The sum of the values that are not null; null if there are none.

    Integers give int64, floats float64, decimal(p, s) gives decimal(min(38, p + 10), s), durations durations. A sum
    that leaves its type is an error, as in Spark, even if later values would bring it back; as there, values of one
    micro-batch may be added to each other before they are added to those before them. A sum of floats is the
    exact sum, rounded once: it does not depend on the order of the rows, unless a partial sum exceeds the greatest
    float64 and so becomes infinite.
    """
    return AggregateCall("sum", column, where=where)


def avg(column: object, *, where: object | None = None) -> AggregateCall:
    """The average of the values that are not null; null if there are none.

    Integers and floats give float64: the exact sum divided by the count. decimal(p, s) gives
    decimal(min(38, p + 4), min(38, s + 4)), durations durations; both are rounded half up.
    """
    return AggregateCall("avg", column, where=where)


def var_samp(column: object, *, where: object | None = None) -> AggregateCall:
    """The variance of the population of which the values that are not null are a sample; null if there is at most one.

    Numbers give float64: the exact variance, rounded once, whatever the order of the rows. Spark's is rounded with each
    row. It is NaN if a value is NaN or infinite, and infinite beyond the greatest float64. The state is the exact sums
    of values and squares, some 30 bytes as a rule and 800 at most.
    """
    return AggregateCall("var_samp", column, where=where)


def var_pop(column: object, *, where: object | None = None) -> AggregateCall:
    """The variance of the values that are not null; null if there are none. All else is as in ``var_samp``."""
    return AggregateCall("var_pop", column, where=where)


def stddev_samp(column: object, *, where: object | None = None) -> AggregateCall:
    """The square root of what ``var_samp`` gives, rounded once; null if there is at most one value."""
    return AggregateCall("stddev_samp", column, where=where)


def stddev_pop(column: object, *, where: object | None = None) -> AggregateCall:
    """The square root of what ``var_pop`` gives, rounded once; null if there are no values."""
    return AggregateCall("stddev_pop", column, where=where)


def covar_samp(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """The covariance of the population of which the rows that have both values are a sample; null if at most one has.

    Numbers give float64: the exact covariance, rounded once, whatever the order of the rows. Spark's is rounded with
    each row. It is NaN if a value is NaN or infinite, and infinite beyond the greatest float64. The state is the exact
    sums of values and products, some 40 bytes as a rule and 1,100 at most.
    """
    return _of_two("covar_samp", column, other, where)


def covar_pop(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """The covariance of the rows that have both values; null if none has. All else is as in ``covar_samp``."""
    return _of_two("covar_pop", column, other, where)


def corr(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """Pearson's correlation coefficient of the rows that have both values, from -1 to 1.

    It is null if at most one row has both, and if all values of a column are equal. All else is as in ``covar_samp``.
    """
    return _of_two("corr", column, other, where)


def weighted_avg(column: object, weight: object, *, where: object | None = None) -> AggregateCall:
    """The average of the values, each counted as often as its weight says, of the rows that have both.

    Numbers give float64: the exact sum of the products divided by that of the weights, rounded once. It is null if no
    row has both, or the weights add up to 0, and NaN if a value or a weight is NaN or infinite.
    """
    return _of_two("weighted_avg", column, weight, where)


def min(column: object, *, where: object | None = None) -> AggregateCall:
    """The least value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with -0.0 is less than one with 0.0.
    """
    return AggregateCall("min", column, where=where)


def max(column: object, *, where: object | None = None) -> AggregateCall:
    """The greatest value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with 0.0 is greater than one with -0.0.
    """
    return AggregateCall("max", column, where=where)


def bool_and(column: object, *, where: object | None = None) -> AggregateCall:
    """Whether all booleans that are not null are true; null if there are none."""
    return AggregateCall("bool_and", column, where=where)


def bool_or(column: object, *, where: object | None = None) -> AggregateCall:
    """Whether some boolean is true; null if there are none but nulls."""
    return AggregateCall("bool_or", column, where=where)


def bit_and(column: object, *, where: object | None = None) -> AggregateCall:
    """The bits that all integers have that are not null, of the type that they have; null if there are none."""
    return AggregateCall("bit_and", column, where=where)


def bit_or(column: object, *, where: object | None = None) -> AggregateCall:
    """The bits that some integer has, of the type of the integers; null if there are none but nulls."""
    return AggregateCall("bit_or", column, where=where)


def bit_xor(column: object, *, where: object | None = None) -> AggregateCall:
    """The bits that an odd number of integers has, of the type of the integers; null if there are none but nulls."""
    return AggregateCall("bit_xor", column, where=where)


def mode(column: object, *, where: object | None = None) -> AggregateCall:
    """The value that comes most often besides null, and of several such the least; null if there are none.

    All NaNs are equal, -0.0 = 0.0, and of values that are equal it gives the one with 0.0. Each different value is kept
    with its count, and read and written with each micro-batch that touches the group.
    """
    return AggregateCall("mode", column, where=where)


def percentile(column: object, percentage: float, *, where: object | None = None) -> AggregateCall:
    """The exact value below which a share of the values is that are not null; null if there are none.

    Between two neighbors it is interpolated, as Spark does. Numbers give float64, durations durations. NaN is greater
    than all other floats. Each different value is kept with its count, and read and written with each micro-batch that
    touches the group.

    Args:
        column: numbers or durations.
        percentage: the share, from 0 to 1.
        where: which rows count.

    Raises:
        ConfigurationError: the share is none.
    """
    if not 0 <= percentage <= 1:
        raise ConfigurationError(f"percentage={percentage!r} of percentile is not from 0 to 1; write 0.9 for 90 %")
    return AggregateCall("percentile", column, {"percentage": float(percentage)}, where)


def median(column: object, *, where: object | None = None) -> AggregateCall:
    """``percentile`` with the share 0.5."""
    return percentile(column, 0.5, where=where)


def first(column: object, *, ignore_nulls: bool = False, where: object | None = None) -> AggregateCall:
    """The value of the earliest row by *event time*; of rows at the same time, the first by ``order``.

    Spark's ``first`` goes by arrival, which depends on how rows are spread over files and tasks.
    """
    return AggregateCall("first", column, {"ignore_nulls": ignore_nulls}, where)


def last(column: object, *, ignore_nulls: bool = False, where: object | None = None) -> AggregateCall:
    """The value of the latest row by *event time*; of rows at the same time, the last by ``order``."""
    return AggregateCall("last", column, {"ignore_nulls": ignore_nulls}, where)


def collect(
    column: object, *, limit: int | None = None, distinct: bool = False, where: object | None = None
) -> AggregateCall:
    """A list of the values that are not null, by event time, then by ``order``; never null.

    The whole list is read and written with each micro-batch that touches it, so it suits groups that stay small, or a
    ``limit``: no more is kept than is shown.

    Args:
        column: what is collected.
        limit: how many values there are at most, the earliest; a late row takes the place of the last one. None for
            all.
        distinct: whether of equal values only the earliest is there, as in Spark's ``collect_set``. All NaNs are equal,
            and -0.0 = 0.0.
        where: which rows count.

    Raises:
        ConfigurationError: the limit is no number of values.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigurationError(f"limit={limit!r} of collect is no number of values; give 1 or more, or leave it out")
    said = {"limit": limit, "distinct": distinct or None}
    return AggregateCall("collect", column, {name: one for name, one in said.items() if one is not None}, where)


def map_agg(key: object, value: object, *, where: object | None = None) -> AggregateCall:
    """A map with the value that each key has, by its order; never null. Rows without a key do not count.

    Of equal keys, the row that is latest by event time counts, and of rows at the same time the last by ``order``; its
    value may be null. All NaNs are equal, and -0.0 = 0.0. The whole map is read and written with each micro-batch that
    touches it.
    """
    return AggregateCall("map_agg", key, where=where, second=value)


def count_distinct(column: object, *, where: object | None = None) -> AggregateCall:
    """How many different values there are besides null; never null. All NaNs are equal, and -0.0 = 0.0.

    All values are kept, and read and written with each micro-batch that touches the group:
    ``approx_count_distinct`` suits many values.
    """
    return AggregateCall("count_distinct", column, where=where)


def approx_count_distinct(
    column: object, relative_error: float = 0.05, *, where: object | None = None
) -> AggregateCall:
    """About how many different values there are besides null; never null. Needs the package ``datasketches``.

    Args:
        column: what is counted.
        relative_error: the standard deviation of result / truth - 1, from ``FINEST_ERROR`` up. About one result in
            three is further off, one in twenty more than twice as far. Small counts are nearly exact; large ones may
            differ within that error by how rows are spread over micro-batches and tasks. The state takes about 1.08 /
            ``relative_error`` ** 2 bytes, rounded up to a power of two.
        where: which rows count.

    Raises:
        ConfigurationError: no sketch has such an error.
    """
    if not FINEST_ERROR <= relative_error < 1:
        raise ConfigurationError(
            f"relative_error={relative_error!r} of approx_count_distinct is not from {FINEST_ERROR} to below 1; "
            "choose one in between, or count_distinct for an exact count"
        )
    return AggregateCall("approx_count_distinct", column, {"relative_error": relative_error}, where)


def lag(column: object, offset: int = 1) -> AggregateCall:
    """The value of the row that is so many rows before each one, null included; null if there is none.

    It aggregates nothing, so ``over`` takes it, and ``aggregate`` does not.

    Args:
        column: what is looked up.
        offset: how many rows before, 1 or more.

    Raises:
        ConfigurationError: the offset is none.
    """
    if type(offset) is not int or offset < 1:
        raise ConfigurationError(
            f"offset={offset!r} of lag is no number of rows before each one; give 1 or more. For the row behind each "
            "one, write asof_join of the rows with themselves, direction='forward' and exact=False"
        )
    return AggregateCall(LAG, column, {"offset": offset})


def _of_two(function: str, column: object, other: object, where: object | None) -> AggregateCall:
    """A call of two columns.

    Raises:
        ConfigurationError: one of them is None.
    """
    if column is None or other is None:
        raise ConfigurationError(
            f"{function} is of two columns, and was given {column!r} and {other!r}; give both, such as "
            f"{function}('x', 'y')"
        )
    return AggregateCall(function, column, where=where, second=other)

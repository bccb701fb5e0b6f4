"""Functions whose results are exact: nothing is estimated, and a result is rounded at most once."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Final

from millpond.errors import InvalidArgumentError
from millpond.processors.options.given import fitted
from millpond.processors.verbs.aggregates.call import COUNT, AggregateCall, check_bool, check_share

MOST_EDGES: Final = 1_000


@fitted
def count(column: object | None = None, *, where: object | None = None) -> AggregateCall:
    """Return how many rows there are, or with a column, how many of its values are not null; never null."""
    return AggregateCall(COUNT, column, where=where)


@fitted
def count_if(condition: object) -> AggregateCall:
    """Return for how many rows a condition is true: ``count(where=condition)``; never null."""
    if condition is None:
        raise InvalidArgumentError(
            "count_if takes a condition, and was given None; give one, such as \"status = 'paid'\""
        )
    return count(where=condition)


@fitted
def sum(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the sum of the values that are not null; null if there are none.

    Integers give int64, floats float64, decimal(p, s) gives decimal(min(38, p + 10), s), durations durations. A sum
    that leaves its type is an error, as in Spark, even if later values would bring it back; as there, values of one
    micro-batch may be added to each other before they are added to those before them. A sum of floats is the
    exact sum, rounded once: it does not depend on the order of the rows, unless a partial sum exceeds the greatest
    float64 and so becomes infinite. For a change feed it never does: the sum is that of the rows that are there.
    """
    return AggregateCall("sum", column, where=where)


@fitted
def avg(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the average of the values that are not null; null if there are none.

    Integers and floats give float64: the exact sum divided by the count. decimal(p, s) gives
    decimal(min(38, p + 4), min(38, s + 4)), durations durations; both are rounded half up.
    """
    return AggregateCall("avg", column, where=where)


@fitted
def var_samp(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the variance of the population that the values that are not null sample; null if there is at most one.

    Numbers give float64: the exact variance, rounded once, whatever the order of the rows. Spark's is rounded with each
    row. It is NaN if a value is NaN or infinite, and infinite beyond the greatest float64. The state is the exact sums
    of values and squares, some 30 bytes as a rule and 800 at most.
    """
    return AggregateCall("var_samp", column, where=where)


@fitted
def var_pop(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the variance of the values that are not null; null if there are none. All else is as in ``var_samp``."""
    return AggregateCall("var_pop", column, where=where)


@fitted
def stddev_samp(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the square root of what ``var_samp`` gives, rounded once; null if there is at most one value."""
    return AggregateCall("stddev_samp", column, where=where)


@fitted
def stddev_pop(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the square root of what ``var_pop`` gives, rounded once; null if there are no values."""
    return AggregateCall("stddev_pop", column, where=where)


@fitted
def covar_samp(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """Return the covariance of the population that the rows with both values sample; null if at most one has both.

    Numbers give float64: the exact covariance, rounded once, whatever the order of the rows. Spark's is rounded with
    each row. It is NaN if a value is NaN or infinite, and infinite beyond the greatest float64. The state is the exact
    sums of values and products, some 40 bytes as a rule and 1,100 at most.
    """
    return _of_two("covar_samp", column, other, where)


@fitted
def covar_pop(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """Return the covariance of the rows that have both values; null if none has. All else is as in ``covar_samp``."""
    return _of_two("covar_pop", column, other, where)


@fitted
def corr(column: object, other: object, *, where: object | None = None) -> AggregateCall:
    """Return Pearson's correlation coefficient of the rows that have both values, from -1 to 1.

    It is null if at most one row has both, and if all values of a column are equal. All else is as in ``covar_samp``.
    """
    return _of_two("corr", column, other, where)


@fitted
def weighted_avg(column: object, weight: object, *, where: object | None = None) -> AggregateCall:
    """Return the average of the values, each counted as often as its weight says, of the rows that have both.

    Numbers give float64: the exact sum of the products divided by the sum of the weights, rounded once. It is null if
    no row has both, or the weights add up to 0, and NaN if a value or a weight is NaN or infinite.
    """
    return _of_two("weighted_avg", column, weight, where)


@fitted
def skewness(column: object, *, where: object | None = None) -> AggregateCall:
    """Return how far the values lean to one side of their average: positive with a long tail of great values.

    It is the skewness of the values themselves, as in Spark: the sum of the cubes of their distances from the average,
    over the count times the cube of ``stddev_pop``; DuckDB and pandas estimate it for the population. It is null if
    there are none, or all are equal. All else is as in ``var_samp``; the state is some 50 bytes as a rule.
    """
    return AggregateCall("skewness", column, where=where)


@fitted
def kurtosis(column: object, *, where: object | None = None) -> AggregateCall:
    """Return how much of the variance is due to few far values: the ratio less 3, 0 for a normal distribution.

    It is the kurtosis of the values themselves, as in Spark; DuckDB and pandas estimate it for the population.
    It is null if there are none, or all are equal. All else is as in ``var_samp``; the state is some 70 bytes as a
    rule.
    """
    return AggregateCall("kurtosis", column, where=where)


@fitted
def product(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the product of the values that are not null; null if there are none.

    Numbers give float64, as in Spark: the product, rounded once, whatever the order of the rows. It is infinite beyond
    the greatest float64. The state has at most 1,024 bits of the product, so it never takes more than 160 bytes.
    """
    return AggregateCall("product", column, where=where)


@fitted
def geometric_mean(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the n-th root of the product of n values that are not null, as of rates of growth; null if there are none.

    Numbers give float64, right to some 15 digits. It is 0 if a value is 0, and NaN if one is negative. The state is as
    in ``product``.
    """
    return AggregateCall("geometric_mean", column, where=where)


@fitted
def min(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the least value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with -0.0 is less than one with 0.0.
    """
    return AggregateCall("min", column, where=where)


@fitted
def max(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the greatest value that is not null; null if there are none.

    NaN is greater than all other floats, and of values that are equal, one with 0.0 is greater than one with -0.0.
    """
    return AggregateCall("max", column, where=where)


@fitted
def bool_and(column: object, *, where: object | None = None) -> AggregateCall:
    """Return whether all booleans that are not null are true; null if there are none."""
    return AggregateCall("bool_and", column, where=where)


@fitted
def bool_or(column: object, *, where: object | None = None) -> AggregateCall:
    """Return whether some boolean is true; null if there are none but nulls."""
    return AggregateCall("bool_or", column, where=where)


@fitted
def bit_and(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the bits that all integers have that are not null, in their type; null if there are none."""
    return AggregateCall("bit_and", column, where=where)


@fitted
def bit_or(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the bits that some integer has, in the type of the integers; null if there are none but nulls."""
    return AggregateCall("bit_or", column, where=where)


@fitted
def bit_xor(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the bits that an odd number of the integers has, in their type; null if there are none but nulls."""
    return AggregateCall("bit_xor", column, where=where)


@fitted
def mode(column: object, *, where: object | None = None) -> AggregateCall:
    """Return the value that comes most often besides null, and of several such the least; null if there are none.

    All NaNs are equal, -0.0 = 0.0, and of values that are equal it gives the one with 0.0. Each different value is kept
    with its count, and read and written with each micro-batch that touches the group.
    """
    return AggregateCall("mode", column, where=where)


@fitted
def percentile(column: object, percentage: float, *, where: object | None = None) -> AggregateCall:
    """Return the exact value below which a share of the values is that are not null; null if there are none.

    Between two neighbors it is interpolated, as Spark does. Numbers give float64, durations durations. NaN is greater
    than all other floats. Each different value is kept with its count, and read and written with each micro-batch that
    touches the group.

    Args:
        column: numbers or durations.
        percentage: the share, from 0 to 1.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: it is no share.
    """
    return AggregateCall("percentile", column, {"percentage": check_share(percentage, "percentile")}, where)


@fitted
def median(column: object, *, where: object | None = None) -> AggregateCall:
    """Return ``percentile`` with the share 0.5."""
    return percentile(column, 0.5, where=where)


@fitted
def first(column: object, *, ignore_nulls: bool = False, where: object | None = None) -> AggregateCall:
    """Return the value of the earliest row by *event time*; of rows at the same time, the first by ``order``.

    Spark's ``first`` goes by arrival, which depends on how rows are spread over files and tasks.
    """
    return AggregateCall("first", column, {"ignore_nulls": check_bool(ignore_nulls, "ignore_nulls", "first")}, where)


@fitted
def last(column: object, *, ignore_nulls: bool = False, where: object | None = None) -> AggregateCall:
    """Return the value of the latest row by *event time*; of rows at the same time, the last by ``order``."""
    return AggregateCall("last", column, {"ignore_nulls": check_bool(ignore_nulls, "ignore_nulls", "last")}, where)


@fitted
def any_value(column: object, *, ignore_nulls: bool = False, where: object | None = None) -> AggregateCall:
    """Return some value: that of ``first``, so that it is the same however rows come."""
    return first(column, ignore_nulls=ignore_nulls, where=where)


@fitted
def collect(
    column: object, *, limit: int | None = None, distinct: bool = False, where: object | None = None
) -> AggregateCall:
    """Return a list of the values that are not null, by event time, then by ``order``; never null.

    The whole list is read and written with each micro-batch that touches it, so it suits groups that stay small, or a
    ``limit``: no more is kept than is shown.

    Args:
        column: the column that is collected.
        limit: how many values there are at most, the earliest; a late row takes the place of the last one. None for
            all.
        distinct: whether of equal values only the earliest is there, as in Spark's ``collect_set``. All NaNs are equal,
            and -0.0 = 0.0.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: the limit is no number of values, or distinct is no bool.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidArgumentError(
            f"limit={limit!r} of collect is no number of values; give 1 or more, or leave it out"
        )
    said = {"limit": limit, "distinct": check_bool(distinct, "distinct", "collect") or None}
    return AggregateCall("collect", column, {name: one for name, one in said.items() if one is not None}, where)


@fitted
def map_agg(key: object, value: object, *, where: object | None = None) -> AggregateCall:
    """Return a map with the value that each key has, by its order; never null. Rows without a key do not count.

    Of equal keys, the row that is latest by event time counts, and of rows at the same time the last by ``order``; its
    value may be null. All NaNs are equal, and -0.0 = 0.0. The whole map is read and written with each micro-batch that
    touches it.
    """
    return _of_two("map_agg", key, value, where)


@fitted
def histogram(column: object, edges: Sequence[float], *, where: object | None = None) -> AggregateCall:
    """Return how many values that are not null lie up to each edge, and above the edge before it; never null.

    It is a map from all edges, and infinity for what lies above the last one, to counts, as DuckDB's
    ``histogram(x, edges)`` for floats, with 0 where there are none. NaN is greater than all other floats.

    Args:
        column: numbers.
        edges: ascending numbers, at most 1,000.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: they are no such edges.
    """
    try:
        bounds = [float(edge) for edge in edges]
    except (TypeError, ValueError, OverflowError):
        bounds = []
    ascending = all(one < other for one, other in pairwise(bounds))
    if not 1 <= len(bounds) <= MOST_EDGES or not ascending or not all(map(isfinite, bounds)):
        raise InvalidArgumentError(
            f"edges={edges!r} of histogram are not 1 to {MOST_EDGES} ascending numbers; give such as [1, 10, 100]"
        )
    return AggregateCall("histogram", column, {"edges": bounds}, where)


@fitted
def count_distinct(column: object, *, where: object | None = None) -> AggregateCall:
    """Return how many different values there are besides null; never null. All NaNs are equal, and -0.0 = 0.0.

    All values are kept, and read and written with each micro-batch that touches the group:
    ``approx_count_distinct`` suits many values.
    """
    return AggregateCall("count_distinct", column, where=where)


def _of_two(function: str, column: object, other: object, where: object | None) -> AggregateCall:
    """Return a call of two columns.

    Raises:
        ConfigurationError: one of them is None.
    """
    if column is None or other is None:
        raise InvalidArgumentError(
            f"{function} takes two columns, and was given {column!r} and {other!r}; give both, such as "
            f"{function}('x', 'y')"
        )
    return AggregateCall(function, column, where=where, second=other)

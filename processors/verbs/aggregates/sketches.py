"""Functions whose results are estimated by sketches of Apache DataSketches, and the sketches themselves.

A sketch is small, whatever it has seen, and merges with others. The functions whose names end in ``_agg`` and
``_accumulate`` give it as bytes that Spark's functions read, such as ``hll_sketch_estimate``, and any program with the
library. All need the package ``datasketches``: ``pip install 'millpond[sketches]'``.
"""

from numbers import Real
from typing import Final

from millpond.errors import InvalidArgumentError
from millpond.processors.options.given import fitted
from millpond.processors.verbs.aggregates.call import AggregateCall, check_share, check_whole

FINEST_ERROR: Final = 0.0008
"""The smallest relative error that a sketch can be asked for; it takes 2 MB a group."""

MOST_TRACKED: Final = 1_000_000
"""The most items that a sketch of frequent items tracks, as in Spark."""


@fitted
def approx_count_distinct(
    column: object, relative_error: float = 0.05, *, where: object | None = None
) -> AggregateCall:
    """Return about how many different values there are besides null; never null. Needs the package ``datasketches``.

    Args:
        column: the column that is counted.
        relative_error: the standard deviation of result / truth - 1, from ``FINEST_ERROR`` up. About one result in
            three is further off, one in twenty more than twice as far. Small counts are nearly exact; large ones may
            differ within that error by how rows are spread over micro-batches and tasks. The state takes about 1.08 /
            ``relative_error`` ** 2 bytes, rounded up to a power of two.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: no sketch has such an error.
    """
    if not isinstance(relative_error, Real) or not FINEST_ERROR <= relative_error < 1:
        raise InvalidArgumentError(
            f"relative_error={relative_error!r} of approx_count_distinct is not from {FINEST_ERROR} to below 1; "
            "choose one in between, or count_distinct for an exact count"
        )
    return AggregateCall("approx_count_distinct", column, {"relative_error": relative_error}, where)


@fitted
def hll_sketch_agg(column: object, lg_config_k: int = 12, *, where: object | None = None) -> AggregateCall:
    """Return an HLL sketch of the values that are not null, from which ``hll_sketch_estimate`` tells how many differ.

    It is as Spark's, which also merges it with its own by ``hll_union`` and ``hll_union_agg``. Never null: without
    values it is an empty sketch. As in Spark, empty strings do not count.

    Args:
        column: integers or strings.
        lg_config_k: the binary logarithm of the number of registers, from 4 to 21. The relative error is about 1.04
            divided by the square root of that number: 1.6 % for 12, in 4 KiB.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: no sketch has such a size.
    """
    registers = check_whole(lg_config_k, "lg_config_k", "hll_sketch_agg", 4, 21)
    return AggregateCall("hll_sketch_agg", column, {"lg_config_k": registers}, where)


@fitted
def theta_sketch_agg(column: object, lg_nom_entries: int = 12, *, where: object | None = None) -> AggregateCall:
    """Return a theta sketch of values that are not null: how many differ, also in unions, intersections, differences.

    It is as Spark's, which reads it by ``theta_sketch_estimate``, ``theta_intersection`` and the like. Never null:
    without values it is an empty sketch. As in Spark, empty strings do not count. All NaNs are equal, and -0.0 = 0.0.

    Args:
        column: integers, floats or strings.
        lg_nom_entries: the binary logarithm of the number of values from which on it estimates, from 4 to 26. The
            relative error is about 1 divided by the square root of that number: 1.6 % for 12, in 32 KiB.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: no sketch has such a size.
    """
    entries = check_whole(lg_nom_entries, "lg_nom_entries", "theta_sketch_agg", 4, 26)
    return AggregateCall("theta_sketch_agg", column, {"lg_nom_entries": entries}, where)


@fitted
def kll_sketch_agg(column: object, k: int = 200, *, where: object | None = None) -> AggregateCall:
    """Return a KLL sketch of the values that are not null: the value at each rank, and the rank of each value.

    For integers it is that of Spark's ``kll_sketch_agg_bigint``, for floats that of ``kll_sketch_agg_double``, which
    ``kll_sketch_get_quantile_bigint`` and the like read. Never null: without values it is an empty sketch. NaN does
    not count. Up to ``k`` values it is exact; beyond that, it depends on chance which of them are kept.

    Args:
        column: integers or floats.
        k: decides the error and the size, from 8 to 65,535. The error of a rank is 1.33 % for 200, in some 5 KB.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: no sketch has such a size.
    """
    return AggregateCall("kll_sketch_agg", column, {"k": check_whole(k, "k", "kll_sketch_agg", 8, 65_535)}, where)


@fitted
def approx_percentile(column: object, percentage: float, k: int = 200, *, where: object | None = None) -> AggregateCall:
    """Return about the least value up to which a share of the values is that are not null; null if there are none.

    Numbers give float64: one of the values, or of integers and decimals the float64 next to it. NaN does not count. Up
    to ``k`` values it is exact; beyond that, it depends on chance which values are kept. ``percentile`` is exact, and
    keeps all of them.

    Args:
        column: numbers.
        percentage: the share, from 0 to 1.
        k: decides the error and the size, from 8 to 65,535: with 200, in 99 of 100 cases the share is off by no
            more than 1.33 %, in some 5 KB; with 2,000 by 0.2 %, in some 50 KB.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: it is no share, or no sketch has such a size.
    """
    options = {
        "percentage": check_share(percentage, "approx_percentile"),
        "k": check_whole(k, "k", "approx_percentile", 8, 65_535),
    }
    return AggregateCall("approx_percentile", column, options, where)


@fitted
def approx_top_k(
    column: object, k: int = 5, max_items_tracked: int = 10_000, *, where: object | None = None
) -> AggregateCall:
    """Return the values that come most often, with about how often, the most frequent first; never null.

    A list of structs of ``item`` and ``count``, as in Spark; of values that come as often, the least is first. Null
    does not count. Up to ``max_items_tracked`` different values it is exact; beyond that, a shown value comes more
    often than the sketch may err, and is counted at most that much too high.

    Args:
        column: integers, floats, strings, booleans, dates or timestamps.
        k: how many there are at most.
        max_items_tracked: how many are tracked, at most 1,000,000.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: there are no such numbers of values.
    """
    tracked = check_whole(max_items_tracked, "max_items_tracked", "approx_top_k", 1, MOST_TRACKED)
    options = {"k": check_whole(k, "k", "approx_top_k", 1, tracked), "max_items_tracked": tracked}
    return AggregateCall("approx_top_k", column, options, where)


@fitted
def approx_top_k_accumulate(
    column: object, max_items_tracked: int = 10_000, *, where: object | None = None
) -> AggregateCall:
    """Return a sketch of the values that come most often, which ``approx_top_k_estimate`` reads; never null.

    It is the struct of Spark's function of that name, which ``approx_top_k_combine`` merges with its own. Null does not
    count, as it does in Spark. All else is as in ``approx_top_k``.

    Args:
        column: integers, floats, strings, dates or timestamps.
        max_items_tracked: how many are tracked, at most 1,000,000.
        where: the condition of rows that count.

    Raises:
        ConfigurationError: there is no such number of values.
    """
    tracked = check_whole(max_items_tracked, "max_items_tracked", "approx_top_k_accumulate", 1, MOST_TRACKED)
    return AggregateCall("approx_top_k_accumulate", column, {"max_items_tracked": tracked}, where)

"""The functions that aggregate columns: ``count()``, ``sum("amount")``, ``last("status")`` and so on.

Rule of this room: a call says what is wanted and knows no types; ``millpond.processors.verbs.functions`` has the
logic. Names and meanings are Spark SQL's, in its ANSI mode, unless a docstring says otherwise.

Each takes ``where``, a condition: rows for which it is false or null do not count, as with ``FILTER (WHERE ...)`` in
SQL. It is what ``DataFrame.where`` takes: text such as ``"status = 'paid'"``, or a Column of booleans; in ``Pond`` it
is the name of a column of booleans, or an expression of Arrow. Where no row counts, the result is the one of no rows.
"""

from millpond.errors import InvalidArgumentError
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.verbs.aggregates.call import BEHIND, AggregateCall, UserAggregate, grouping, lag
from millpond.processors.verbs.aggregates.elsewhere import instead_of
from millpond.processors.verbs.aggregates.exact import (
    any_value,
    avg,
    bit_and,
    bit_or,
    bit_xor,
    bool_and,
    bool_or,
    collect,
    corr,
    count,
    count_distinct,
    count_if,
    covar_pop,
    covar_samp,
    first,
    geometric_mean,
    histogram,
    kurtosis,
    last,
    map_agg,
    max,
    median,
    min,
    mode,
    percentile,
    product,
    skewness,
    stddev_pop,
    stddev_samp,
    sum,
    var_pop,
    var_samp,
    weighted_avg,
)
from millpond.processors.verbs.aggregates.sketches import (
    FINEST_ERROR,
    approx_count_distinct,
    approx_percentile,
    approx_top_k,
    approx_top_k_accumulate,
    hll_sketch_agg,
    kll_sketch_agg,
    theta_sketch_agg,
)

__all__ = [
    "FINEST_ERROR",
    "AggregateCall",
    "UserAggregate",
    "any_value",
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "approx_top_k_accumulate",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "collect",
    "corr",
    "count",
    "count_distinct",
    "count_if",
    "covar_pop",
    "covar_samp",
    "first",
    "geometric_mean",
    "grouping",
    "histogram",
    "hll_sketch_agg",
    "kll_sketch_agg",
    "kurtosis",
    "lag",
    "last",
    "map_agg",
    "max",
    "median",
    "min",
    "mode",
    "percentile",
    "product",
    "skewness",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "theta_sketch_agg",
    "var_pop",
    "var_samp",
    "weighted_avg",
]


def __getattr__(name: str) -> object:
    if name == "lead":
        raise InvalidArgumentError(f"there is no lead, as a row comes out before the one behind it is there; {BEHIND}")
    elsewhere = instead_of(name)
    hint = did_you_mean(name, __all__) if elsewhere is None else f"; write {elsewhere}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")

"""The binding of calls to the types of their columns: the functions that there are, and the names of their states.

Rule of this module: the name of a state says all that its bytes depend on, and nothing else. So a column of int32 that
becomes int64, or a struct's field that is renamed, goes on with the state that it had.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import and_, gt, lt, or_, xor
from typing import Final

import pyarrow as pa

from millpond.errors import InvalidArgumentError
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import GROUPING, LAG, USER_DEFINED
from millpond.processors.verbs.functions.bits import bind_bits, bind_booleans
from millpond.processors.verbs.functions.chosen import Unwrapped
from millpond.processors.verbs.functions.counts import bind_count, bind_count_distinct
from millpond.processors.verbs.functions.entries import bind_entries
from millpond.processors.verbs.functions.exact_sums import quotient, root
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.functions.histograms import bind_histogram
from millpond.processors.verbs.functions.moments import bind_kurtosis, bind_skewness, bind_variance
from millpond.processors.verbs.functions.pairs import Correlation, Covariance, WeightedAverage, bind_pairs
from millpond.processors.verbs.functions.picks import bind_collect, bind_first, bind_last, bind_max, bind_min
from millpond.processors.verbs.functions.products import bind_geometric_mean, bind_product
from millpond.processors.verbs.functions.sketches.distinct import (
    bind_approx_count_distinct,
    bind_hll_sketch,
    bind_theta_sketch,
)
from millpond.processors.verbs.functions.sketches.frequent import bind_accumulated_top_k, bind_approx_top_k
from millpond.processors.verbs.functions.sketches.quantiles import bind_approx_percentile, bind_kll_sketch
from millpond.processors.verbs.functions.sums import bind_average, bind_sum
from millpond.processors.verbs.functions.tallies import bind_mode, bind_percentile
from millpond.processors.verbs.functions.user_defined import bind_user_defined

FUNCTIONS: Final[Mapping[str, Callable[..., AggregateFunction]]] = {
    "approx_count_distinct": bind_approx_count_distinct,
    "approx_percentile": bind_approx_percentile,
    "approx_top_k": bind_approx_top_k,
    "approx_top_k_accumulate": bind_accumulated_top_k,
    "avg": bind_average,
    "bit_and": partial(bind_bits, combine=and_),
    "bit_or": partial(bind_bits, combine=or_),
    "bit_xor": partial(bind_bits, combine=xor),
    "bool_and": partial(bind_booleans, before=lt),
    "bool_or": partial(bind_booleans, before=gt),
    "collect": bind_collect,
    "corr": partial(bind_pairs, of=Correlation, least=2),
    "count": bind_count,
    "count_distinct": bind_count_distinct,
    "covar_pop": partial(bind_pairs, of=Covariance, least=1),
    "covar_samp": partial(bind_pairs, of=Covariance, least=2),
    "first": bind_first,
    "geometric_mean": bind_geometric_mean,
    "histogram": bind_histogram,
    "hll_sketch_agg": bind_hll_sketch,
    "kll_sketch_agg": bind_kll_sketch,
    "kurtosis": bind_kurtosis,
    "last": bind_last,
    "map_agg": bind_entries,
    "max": bind_max,
    "min": bind_min,
    "mode": bind_mode,
    "percentile": bind_percentile,
    "product": bind_product,
    "skewness": bind_skewness,
    "stddev_pop": partial(bind_variance, finish=root, sample=False),
    "stddev_samp": partial(bind_variance, finish=root, sample=True),
    "sum": bind_sum,
    "theta_sketch_agg": bind_theta_sketch,
    "var_pop": partial(bind_variance, finish=quotient, sample=False),
    "var_samp": partial(bind_variance, finish=quotient, sample=True),
    "weighted_avg": partial(bind_pairs, of=WeightedAverage, least=1),
}
"""By name: ``bind(path, type, **options)`` makes a function for a column of that type, which errors call ``path``.

Those of two columns take the type of structs of both. Those that go by time take the type of times behind it."""


def bind(call: AggregateCall, path: str, type_: pa.DataType, times: pa.DataType) -> AggregateFunction:
    """Return the function of ``call`` for values of a ``normalized`` type, of rows with times of a type.

    If the call wraps values, the type is still theirs, and the function takes structs around them.

    Raises:
        ConfigurationError: there is no such function, or it does not take such values.
    """
    if call.function == LAG:
        raise InvalidArgumentError(
            f"{path!r}: lag takes a row before each row, and an aggregate has none; write pond.over(...) for a "
            f"result of each row, or last({call.column!r}) for the newest one of all"
        )
    if call.function == GROUPING:
        raise InvalidArgumentError(
            f"{path!r}: grouping tells of grouping sets, and there are none; leave it out, or aggregate by some, such "
            f"as by=cube({call.column!r})"
        )
    if call.function == USER_DEFINED:
        return bind_user_defined(path, type_, call.defined, pairs=call.second is not None)
    if call.function not in FUNCTIONS:
        raise InvalidArgumentError(
            f"no aggregate function {call.function!r}; use one of millpond.processors.verbs.aggregates: "
            f"{', '.join(sorted(FUNCTIONS))}"
        )
    by_time = (times,) if call.by_time else ()
    function = FUNCTIONS[call.function](path, type_, *by_time, **call.options)
    return Unwrapped(function) if call.wraps else function


def state_name(call: AggregateCall, type_: pa.DataType) -> str:
    """Return the name of the state of ``call`` for such values, as in ``last(string, ignore_nulls=False)``."""
    options = (f"{name}={call.options[name]!r}" for name in sorted(call.options))
    return f"{call.function}({', '.join([value_name(type_), *options])})"


def value_name(type_: pa.DataType) -> str:
    """Return the name of a type's physical form."""
    if pa.types.is_list(type_):
        return f"list<{value_name(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{value_name(type_.key_type)}, {value_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(value_name(field.type) for field in type_)}>"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if pa.types.is_integer(type_):
        return "int"
    if pa.types.is_floating(type_):
        return "float"
    return str(type_)

"""The names in pandas, Polars and SQL of functions that have another name here.

Rule of this module: names of functions and of nothing else.
"""

from collections.abc import Mapping
from typing import Final

FUNCTIONS: Final[Mapping[str, str]] = {
    "mean": "avg",
    "average": "avg",
    "nunique": "count_distinct",
    "n_unique": "count_distinct",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "var": "var_samp",
    "variance": "var_samp",
    "prod": "product",
    "size": "count",
    "len": "count",
    "length": "count",
    "collect_list": "collect",
    "collect_set": "collect",
    "array_agg": "collect",
    "implode": "collect",
    "quantile": "percentile",
    "max_by": "last",
    "min_by": "first",
    "any": "bool_or",
    "all": "bool_and",
}
"""By another's name, the function here."""

LINES: Final[Mapping[str, str]] = {
    "row_number": "over(rows, {'number': aggregates.count()}, key=..., time=...), or for the first rows top_n(...)",
    "rank": "top_n(rows, 3, by=..., order=..., time=...)",
    "dense_rank": "top_n(rows, 3, by=..., order=..., time=...)",
    "shift": "aggregates.lag('amount')",
    "diff": "aggregates.lag('amount')",
}
"""By the name of something that is no function here, the call to write."""


def instead_of(name: str) -> str | None:
    """Return the call to write for another's name; None for an unknown name."""
    found = FUNCTIONS.get(name)
    if found == "count":
        return "aggregates.count()"
    return LINES.get(name) if found is None else f"aggregates.{found}('amount')"

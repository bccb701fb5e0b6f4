"""What tasks count (dropped and late records) on its way into the metrics of a query's progress.

Rule of this module: whatever a worker sends back has one extra column, null in all rows but one, which is null in all
other columns and holds the worker's counts as JSON. Spark's ``observe`` picks the counts up; then row and column go.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.processors.runtime.counters import CounterName

_COLUMN: Final = "millpond_counters"
_PARSED: Final = "map<string, bigint>"


def counting_ddl(ddl: str) -> str:
    """The columns ``ddl`` plus the one for the counts."""
    return f"{ddl}, {_COLUMN} string"


def without_counts(rows: pa.Table) -> pa.Table:
    """The rows with an empty column for the counts."""
    nulls: Any = pa.nulls(rows.num_rows, pa.string())
    return rows.append_column(_COLUMN, nulls)


def counts_row(schema: pa.Schema, counts: Mapping[str, int]) -> pa.Table:
    """The row that holds nothing but counts, beside rows of ``schema``."""
    rows = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    column: Any = pa.array([json.dumps(counts)], pa.string())
    return rows.append_column(_COLUMN, column)


def report_counts(rows: DataFrame, name: str, totals: Iterable[CounterName] = ()) -> DataFrame:
    """The rows alone; their counts become the metrics ``name`` of the query's progress.

    Args:
        rows: what workers sent back.
        name: the name of the metrics.
        totals: counts that also become a metric each, under the name of their column and over all nodes; ``tasks`` has
            all counts, one map per worker.
    """
    counts = F.from_json(_COLUMN, _PARSED)
    numbers = [F.coalesce(F.sum(_total(counts, total)), F.lit(0)).alias(total.column) for total in totals]
    observed = rows.observe(name, F.collect_list(counts).alias("tasks"), *numbers)
    return observed.where(f"{_COLUMN} is null").drop(_COLUMN)


def _total(counts: Column, name: CounterName) -> Column:
    """What is counted under a name, or under the name of a node and it; null in the rows that count nothing."""
    named = F.map_filter(counts, lambda key, _: F.substring_index(key, ":", -1) == name.value)
    summed = F.aggregate(F.map_values(named), F.lit(0).cast("long"), lambda total, amount: total + amount)
    return F.when(F.col(_COLUMN).isNotNull(), summed)

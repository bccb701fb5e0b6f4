"""Counts and measurements of workers, on their way into the metrics of a query's progress.

Rule of this module: whatever a worker sends back has one extra column, null in all rows but one, which is null in all
other columns and holds the worker's report as JSON. Spark's ``observe`` picks the reports up; then row and column go.
Where verbs share an operator, each has a row of its own, which says whose it is.
Counts and measurements have metrics of their own, so that those of counts stay as they are.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.processors.runtime.counters import CounterName

MEASURED: Final = ":metrics"
"""The ending of the name of an operator's measurements, after the name of its counts. No topic's name has a colon."""

_COLUMN: Final = "millpond_counters"
_REPORT: Final = "millpond_report"
"""The column of the same reports, read."""

_NUMBERS: Final = "map<string, bigint>"
_PARSED: Final = ", ".join(
    ("of string", "task string", *(f"{part} {_NUMBERS}" for part in ("counts", "totals", "metrics", "keys")))
)


def counting(columns: str | T.StructType) -> str | T.StructType:
    """Return the columns plus the one for the report."""
    return with_text(columns, _COLUMN)


def with_text(columns: str | T.StructType, name: str) -> str | T.StructType:
    """Return the columns plus one of text."""
    if isinstance(columns, str):
        return f"{columns}, {name} string"
    return T.StructType([*columns.fields, T.StructField(name, T.StringType())])


def without_report(rows: pa.Table) -> pa.Table:
    """Return the rows with an empty column for the report."""
    nulls: Any = pa.nulls(rows.num_rows, pa.string())
    return rows.append_column(_COLUMN, nulls)


def report_row(
    schema: pa.Schema,
    counts: Mapping[str, int],
    metrics: Mapping[str, int],
    of: str | None = None,
    task: str | None = None,
    keys: Mapping[str, int] | None = None,
) -> pa.Table:
    """Return the row that holds nothing but a report, beside rows of ``schema``.

    Args:
        schema: the schema of the rows.
        counts: what was counted; if nothing was, the worker adds nothing to the metrics of counts.
        metrics: what was measured.
        of: whose report it is, where it is one of several.
        task: the task, if it is that of one.
        keys: its hottest keys as texts, and about how many records of each there were.
    """
    told = {"of": of, "task": task, "counts": counts, "totals": _totals(counts), "metrics": metrics, "keys": keys}
    report = {name: said for name, said in told.items() if said or name == "metrics"}
    rows = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    column: Any = pa.array([json.dumps(report)], pa.string())
    return rows.append_column(_COLUMN, column)


def observe_reports(rows: DataFrame, name: str, application: str, totals: Iterable[CounterName] = ()) -> DataFrame:
    """Return the rows alone; their reports become metrics of the query's progress, as with ``observed``."""
    return without_reports(observed(with_reports(rows), name, application, totals))


def with_reports(rows: DataFrame) -> DataFrame:
    """Return what workers sent back with the reports read, once for all that ``observed`` picks out of them.

    Each task of each micro-batch generates the code of what is observed, so that is as little as can be.
    """
    return rows.withColumn(_REPORT, F.from_json(_COLUMN, _PARSED))


def observed(
    rows: DataFrame, name: str, application: str, totals: Iterable[CounterName] = (), of: str | None = None
) -> DataFrame:
    """Return the rows; their reports become the metrics ``name`` and ``<name>:metrics`` of the query's progress.

    Args:
        rows: what ``with_reports`` returns.
        name: the name of the metrics of counts. ``tasks`` has all of them, one map per worker that counted something.
            Those of measurements have one map per worker as ``tasks``, the ``application``, and, in the order of
            ``tasks``, whose they are as ``places``: the task, what it counted, and its hottest keys.
        application: the job's name.
        totals: counts that also become a metric each, under the name of their column and over all nodes.
        of: whose reports become these metrics, where there are those of several.
    """
    parsed = F.col(_REPORT)
    report = parsed if of is None else F.when(parsed["of"] == of, parsed)
    counts = report["counts"]
    numbers = [F.coalesce(F.sum(report["totals"][total.value]), F.lit(0)).alias(total.column) for total in totals]
    counted = rows.observe(name, F.collect_list(counts).alias("tasks"), *numbers)
    place = F.struct(report["task"].alias("task"), counts.alias("counts"), report["keys"].alias("keys"))
    return counted.observe(
        f"{name}{MEASURED}",
        F.lit(application).alias("application"),
        F.collect_list(report["metrics"]).alias("tasks"),
        F.collect_list(F.when(report["metrics"].isNotNull(), place)).alias("places"),
    )


def without_reports(rows: DataFrame) -> DataFrame:
    """Return the rows of ``with_reports`` without the reports, observed or not."""
    return rows.where(f"{_COLUMN} is null").drop(_COLUMN, _REPORT)


def _totals(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of each counter over all nodes."""
    totals: Counter[str] = Counter()
    for name, count in counts.items():
        totals[name.rpartition(":")[2]] += count
    return dict(totals)

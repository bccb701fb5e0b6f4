"""Counts and measurements of workers, on their way into the metrics of a query's progress.

Rule of this module: whatever a worker sends back has one extra column, null in all rows but one, which is null in all
other columns and holds the worker's report as JSON. Spark's ``observe`` picks the reports up; then row and column go.
Where verbs share an operator, each has a row of its own, which says whose it is.
Counts and measurements have metrics of their own, so that those of counts stay as they are.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.processors.runtime.counters import CounterName

MEASURED: Final = ":metrics"
"""The ending of the name of an operator's measurements, after the name of its counts. No topic's name has a colon."""

_COLUMN: Final = "millpond_counters"

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
    return without_reports(observed(rows, name, application, totals))


def observed(
    rows: DataFrame, name: str, application: str, totals: Iterable[CounterName] = (), of: str | None = None
) -> DataFrame:
    """Return the rows; their reports become the metrics ``name`` and ``<name>:metrics`` of the query's progress.

    Spark evaluates what is aggregated for each row, and what is made of aggregates once. So reports are collected as
    they are, and read at the end.

    Args:
        rows: what workers sent back.
        name: the name of the metrics of counts. ``tasks`` has all of them, one map per worker that counted something.
            Those of measurements have one map per worker as ``tasks``, the ``application``, and, in the order of
            ``tasks``, whose they are as ``places``: the task, what it counted, and its hottest keys.
        application: the job's name.
        totals: counts that also become a metric each, under the name of their column and over all nodes.
        of: whose reports become these metrics, where there are those of several.
    """
    counts = _reported(of, "counts", lambda report: report["counts"])
    counted = rows.observe(name, counts.alias("tasks"), *(_total(of, total).alias(total.column) for total in totals))
    parts = ("task", "counts", "keys")
    return counted.observe(
        f"{name}{MEASURED}",
        F.lit(application).alias("application"),
        _reported(of, "metrics", lambda report: report["metrics"]).alias("tasks"),
        _reported(of, "metrics", lambda report: F.struct(*(report[part].alias(part) for part in parts))).alias(
            "places"
        ),
    )


def without_reports(rows: DataFrame) -> DataFrame:
    """Return what workers sent back without the reports, observed or not."""
    return rows.where(f"{_COLUMN} is null").drop(_COLUMN)


def _reported(of: str | None, part: str, told: Callable[[Column], Column]) -> Column:
    """Return what is told of each report that has a part, an array; ``of`` is as with ``observed``."""

    def has_part(report: Column) -> Column:
        there = report[part].isNotNull()
        return there if of is None else there & (report["of"] == of)

    reports = F.transform(F.collect_list(_COLUMN), lambda text: F.from_json(text, _PARSED))
    return F.transform(F.filter(reports, has_part), told)


def _total(of: str | None, counter: CounterName) -> Column:
    """Return the sum of a count over all reports; ``of`` is as with ``observed``."""
    found = F.get_json_object(_COLUMN, f"$.totals.{counter.value}").cast("long")
    if of is not None:
        found = F.when(F.get_json_object(_COLUMN, "$.of") == of, found)
    return F.coalesce(F.sum(found), F.lit(0))


def _totals(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of each counter over all nodes."""
    totals: Counter[str] = Counter()
    for name, count in counts.items():
        totals[name.rpartition(":")[2]] += count
    return dict(totals)

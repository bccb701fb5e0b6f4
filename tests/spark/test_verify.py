"""The output of a query beside what its verbs make of static DataFrames: nothing differs, but what is planted."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows
from millpond.processors.calls.reports.batch_twin import Differs
from millpond.processors.verbs import aggregates as agg
from tests.spark.test_verbs import Job, job

__all__ = ["job"]

pytestmark = pytest.mark.spark

ROWS = "id int, k string, at timestamp, v int"
RATES = "k string, since timestamp, rate int"


Query = Callable[[Millpond, DataFrame, DataFrame], DataFrame]


def calling(query: Query, left: DataFrame, right: DataFrame) -> Callable[[Millpond], DataFrame]:
    return lambda pond: query(pond, left, right)


def test_rows_that_were_planted_in_what_a_query_has_written_are_found_and_nothing_in_what_it_wrote(job: Job) -> None:
    parts = [
        job.rows(ROWS, (1, "a", "2026-01-01 10:00:01", 1), (2, "a", "2026-01-01 10:00:07", 2),
                 (3, None, "2026-01-01 10:00:03", 3)),
        job.rows(ROWS, (4, "a", "2026-01-01 10:00:02", 4), (5, "b", "2026-01-01 10:01:00", 5)),
    ]  # fmt: skip
    rates = job.rows(RATES, ("a", "2026-01-01 10:00:00", 7), ("a", "2026-01-01 10:00:05", 8))
    for part in parts:
        job.arrive("rows", part)
    streams = job.stream("rows", parts[0]), job.arrive("rates", rates)

    def windows(pond: Millpond, rows: DataFrame, _: DataFrame) -> DataFrame:
        window = TimeWindows("5 seconds", grace="1 minute")
        return pond.aggregate(rows, {"n": agg.sum("v")}, by="k", time="at", window=window, name="windows")

    def priced(pond: Millpond, rows: DataFrame, right: DataFrame) -> DataFrame:
        how: dict[str, Any] = {"left_time": "at", "right_time": "since", "history": "1 hour", "how": "left"}
        return pond.asof_join(rows, right, on="k", **how, name="priced")

    every = parts[0].unionAll(parts[1]), rates
    for name, query, key in (("windows", windows, ["k", "window"]), ("priced", priced, ["id"])):
        pond = job.pond()
        for _ in range(2):  # the second time after a restart, without a new row
            rows = query(pond, *streams)
            job.run(rows, name)
            pond = job.pond()
        written = job.spark.read.schema(rows.schema).parquet(f"{job.directory}/{name}")
        twin = calling(query, *every)
        healthy = pond.verify(twin, written, key=key)
        assert healthy.equal, str(healthy)
        assert healthy.rows == (4 if name == "windows" else 5)
        planted = written.where("k is not null").withColumn(
            key[0] if name == "windows" else "rate", F.lit("z") if name == "windows" else F.lit(1)
        )
        found = pond.verify(twin, planted, key=key)
        if name == "windows":
            assert (found.missing, found.different) == (4, 0)
            assert {one.key["k"] for one in found.differences if one.differs is Differs.EXTRA} == {"z"}
        else:
            assert (found.missing, found.extra, found.different) == (1, 0, 4)
            different = [one for one in found.differences if one.differs is Differs.DIFFERENT]
            assert {(one.key["id"], one.columns) for one in different} == {(n, ("rate",)) for n in (1, 2, 4, 5)}
            (missing,) = (one for one in found.differences if one.differs is Differs.MISSING)
            assert missing.computed is not None
            assert missing.computed["v"] == 3
            ends: dict[str, Any] = {"time": "at", "since": "2026-01-01T10:00:02Z", "until": "2026-01-01T10:00:07Z"}
            within = pond.verify(twin, planted, **ends)
            assert (within.rows, within.missing, within.extra) == (2, 2, 1)
            with pytest.raises(ConfigurationError, match="give static ones, such as"):
                pond.verify(twin, rows, key=key)
            assert pond.verify(twin, written.unionAll(written.limit(1))).extra == 1

"""Words that people type: names of columns in any case, Spark's names of joins, a schema as Spark has it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = pytest.mark.spark

SENSITIVE = "spark.sql.caseSensitive"


class PassOn(KeyedProcessor):
    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"n": row["n"]}


@pytest.fixture
def pond(tmp_path: Path) -> Any:
    return Millpond(application_id="spelled", state_dir=str(tmp_path), partitions=1, backend="memory")


@pytest.fixture
def left(spark: SparkSession) -> DataFrame:
    return spark.sql("select 'a' k, timestamp_seconds(id) at, id n from range(3)")


@pytest.fixture
def right(spark: SparkSession) -> DataFrame:
    return spark.sql("select 'a' K, timestamp_seconds(1) since, 7 price union all select 'b', timestamp_seconds(1), 8")


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.select(*columns).collect()), key=repr)


def test_a_name_in_any_case_is_the_column_that_the_session_finds_by_it(
    pond: Any, left: DataFrame, right: DataFrame
) -> None:
    newest = pond.latest(left, key="K", time="AT", history="1 hour")
    assert newest.columns[0] == "k"
    assert rows(newest, "k", "n") == [("a", 0), ("a", 1), ("a", 2)]
    totals = pond.aggregate(left, {"t": aggregates.sum("N")}, by=["K"], time="At", name="totals")
    assert totals.columns[0] == "k"
    assert rows(totals.where("t = 3"), "k", "t") == [("a", 3)]
    joined = pond.asof_join(left, right, on="k", left_time="At", right_time="SINCE", history="1 hour")
    assert joined.columns.count("k") == 1
    assert rows(joined, "n", "price") == [(1, 7), (2, 7)]
    paired = pond.stream_join(left, right, on={"K": "k"}, left_time="at", right_time="since", within="0 seconds")
    assert rows(paired, "n", "price") == [(1, 7)]
    both = pond.multi_join({"one": left, "other": right}, on={"one": "K", "other": "k"},
                           time={"one": "AT", "other": "Since"})  # fmt: skip
    assert rows(both.where("op = 'upsert'"), "n", "price")[-1] == (2, 7)


def test_a_session_that_tells_cases_apart_does_so_here(spark: SparkSession, pond: Any, left: DataFrame) -> None:
    spark.conf.set(SENSITIVE, "true")
    try:
        with pytest.raises(ConfigurationError, match="has no column 'K', only k, at, n; did you mean 'k'"):
            pond.latest(left, key="K", time="at", history="1 hour")
    finally:
        spark.conf.unset(SENSITIVE)


def test_a_column_is_its_name_where_names_are_taken(pond: Any, left: DataFrame) -> None:
    counted = pond.aggregate(left, {"n": aggregates.count()}, by=[F.col("k"), left["at"]], time="at")
    assert counted.columns[:2] == ["k", "at"]
    line = r"by is .*upper\(k\).*; make it a column, such as rows\.withColumn\('made', F\.expr\('upper\(k\)'\)\), and"
    with pytest.raises(ConfigurationError, match=line):
        pond.aggregate(left, {"n": aggregates.count()}, by=F.upper("k"), time="at", name="other")


@pytest.mark.parametrize(
    ("spelling", "found"),
    [
        ("left_outer", [(0, None), (1, 7), (2, None)]),
        ("leftouter", [(0, None), (1, 7), (2, None)]),
        ("LEFT", [(0, None), (1, 7), (2, None)]),
        ("full_outer", [(0, None), (1, 7), (2, None), (None, 8)]),
        ("full", [(0, None), (1, 7), (2, None), (None, 8)]),
        ("right_outer", [(1, 7), (None, 8)]),
        ("Inner", [(1, 7)]),
    ],
)
def test_joins_have_the_names_that_spark_has_for_them(
    pond: Any, left: DataFrame, right: DataFrame, spelling: str, found: list[tuple[Any, ...]]
) -> None:
    how: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "within": "0 seconds"}
    assert rows(pond.stream_join(left, right, **how, how=spelling), "n", "price") == sorted(found, key=repr)


def test_semi_and_anti_joins_have_sparks_names_and_what_is_no_join_is_refused_with_those_that_are(
    pond: Any, left: DataFrame, right: DataFrame
) -> None:
    how: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "history": "1 hour"}
    assert rows(pond.asof_join(left, right, **how, how="left_semi", name="one"), "n") == [(1,), (2,)]
    assert rows(pond.asof_join(left, right, **how, how="leftanti", name="two"), "n") == [(0,)]
    with pytest.raises(ConfigurationError, match="how is 'cross'; give 'inner' or 'left' or 'semi' or 'anti'"):
        pond.asof_join(left, right, **how, how="cross", name="three")


def test_results_of_apply_have_the_columns_of_a_struct_type(pond: Any, left: DataFrame) -> None:
    schema = T.StructType([T.StructField("n", T.LongType())])
    made = pond.apply(left, PassOn(), key="k", time="at", schema=schema, lateness=0)
    assert rows(made, "n") == [(0,), (1,), (2,)]

"""Values of every Spark type come out of a verb, and out of its stores, exactly as they went in."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyspark
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.spark import Millpond
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.rows.sink_rows import in_type
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.stores.encoding.rows.physical import to_physical
from tests.stores.rows.columns import logical, types, values

pytestmark = pytest.mark.spark

ROWS = 6
FINE_TIMES = [("cast('12:00:00' as time(9)) as c", r"column 'c' is of type time\(9\), but .* cast it to time\(6\)")]
"""Refused, where Spark has them: 4.1 has not."""
TIMES = [datetime(2024, 1, 1, 10, second, tzinfo=UTC) for second in range(ROWS)]

WIDE: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "tinyint": ("-128", "127"),
    "smallint": ("-32768", "32767"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "float": ("'NaN'", "-0.0f", "'3.4028235E38'", "'1.4E-45'"),
    "double": ("'NaN'", "-0.0d", "'-Infinity'", "4.9E-324d"),
    "decimal(18,4)": ("-99999999999999.9999", "99999999999999.9999", "0.0001"),
    "decimal(38,10)": ("-9999999999999999999999999999.9999999999", "0.0000000001"),
    "decimal(38,0)": ("99999999999999999999999999999999999999",),
    "string": ("''", "'a\\0b'", "'\\U0001D54F'"),
    "string collate UNICODE_CI": ("'Ab'",),
    "binary": ("X''", "X'00ff'"),
    "date": ("date'0001-01-01'", "date'1969-12-31'", "date'9999-12-31'"),
    # America/New_York has 01:30 twice on that day.
    "timestamp": (
        "timestamp'2023-11-05 01:30:00.000001 -04:00'",
        "timestamp'2023-11-05 01:30:00.000001 -05:00'",
        "timestamp'0001-01-01 00:00:00 UTC'",
        "timestamp'9999-12-31 23:59:59.999999 UTC'",
    ),
    "timestamp_ntz": ("timestamp_ntz'2023-11-05 01:30:00.000001'", "timestamp_ntz'1969-12-31 23:59:59.999999'"),
    "time(6)": ("time'00:00:00'", "time'23:59:59.999999'"),
    "time(0)": ("time'23:59:59'",),
    "interval day to second": ("interval '-106751991 04:00:54.775807' day to second", "interval '0.000001' second"),
    "interval hour": ("interval '25' hour",),
    "interval year to month": ("interval '-178956970-8' year to month", "interval '0-11' year to month"),
    "interval year": ("interval '-3' year",),
    "interval month": ("interval '14' month",),
    "array<int>": ("array()", "array(1, null)"),
    "map<string,decimal(20,2)>": ("map()", "map('a', null, 'b', 1.25)"),
    "struct<a:int,b:array<struct<c:date,d:map<int,binary>>>>": (
        "named_struct('a', null, 'b', null)",
        "named_struct('a', 1, 'b', array(null, named_struct('c', date'1969-01-01', 'd', map(1, null, 2, X'01'))))",
    ),
    "array<time(3)>": ("array(time'12:00:00.123', null)",),
    "variant": ('parse_json(\'{"a": [1, null, "x"]}\')', "parse_json('null')"),
    "array<variant>": ("array(parse_json('1.5'), null)",),
}
"""For each type its values, besides null."""


@pytest.fixture(autouse=True)
def time_of_day(spark: SparkSession) -> Iterator[None]:
    """TIME must be switched on."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.fixture
def pond(tmp_path: Path) -> Millpond:
    return Millpond(application_id="types", state_dir=str(tmp_path / "state"), partitions=2, backend="lmdb")


def wide_sql() -> str:
    """Return a query whose row 0 is all null and whose other rows have all values of ``WIDE``, as c0, c1 and so on."""
    columns = [
        f"cast(element_at(array({', '.join(f'cast({value} as {type_})' for value in ('null', *found))}), "
        f"cast(id % {len(found) + 1} as int) + 1) as {type_}) as c{number}"
        for number, (type_, found) in enumerate(WIDE.items())
    ]
    count = 1 + max(map(len, WIDE.values()))
    return f"select id, timestamp_seconds(1700000000 + id) as at, {', '.join(columns)} from range({count})"


def exact(rows: DataFrame, names: list[str]) -> list[bytes]:
    """Return the rows as bytes, which are equal if and only if all values are, bit by bit; sorted."""
    shown = [
        F.col(field.name).cast("string") if isinstance(field.dataType, T.YearMonthIntervalType) else F.col(field.name)
        for field in (rows.schema[name] for name in names)
    ]
    return sorted(bytes(row.row) for row in rows.select(*shown).mapInArrow(packed_batches, "row binary").collect())


def packed_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array(packed(batch.columns), pa.binary())], names=["row"])


def packed(columns: Sequence[Any]) -> list[bytes]:
    return list(map(msgpack.packb, zip(*map(to_physical, columns), strict=True)))


def dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the table, with all values as they are; ``createDataFrame`` would cast them, which not all types bear."""
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    wanted = arrow_schema(schema)
    columns = [in_type(column, field.type) for column, field in zip(table.columns, wanted, strict=True)]
    batches = pa.Table.from_arrays(columns, schema=wanted).to_batches()
    return spark.range(0, 1, 1, 1).mapInArrow(lambda _: iter(batches), schema)


@pytest.mark.first
def test_every_type_goes_through_source_repartition_store_and_sink(
    spark: SparkSession, tmp_path: Path, pond: Millpond
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        given = spark.sql(wide_sql())
        given.write.parquet(f"{tmp_path}/in")
        arriving = spark.readStream.schema(given.schema).parquet(f"{tmp_path}/in")
        changes = pond.latest(arriving, key="id", time="at", history="1 hour", name="wide")
        query = changes.select(given.columns).writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
        query.trigger(availableNow=True).start(f"{tmp_path}/out").awaitTermination()
        written = spark.read.schema(given.schema).parquet(f"{tmp_path}/out")
        stored = pond.read_store("wide", "latest", f"{tmp_path}/checkpoint")
        types_of = {field.name: field.dataType for field in given.schema}
        assert {field.name: field.dataType for field in changes.schema if field.name in types_of} == types_of
        assert {field.name: field.dataType for field in stored.schema if field.name in types_of} == types_of
        past = pond.backfill().latest(given, key="id", time="at", history="1 hour", name="past")
        assert {field.name: field.dataType for field in past.schema if field.name in types_of} == types_of
        expected = exact(given, given.columns)
        assert exact(past, given.columns) == expected
        assert exact(written, given.columns) == expected
        assert exact(stored, given.columns) == expected
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@st.composite
def tables(draw: st.DrawFn, prefix: str) -> pa.Table:
    """Return ``ROWS`` rows with a number, a time, and columns of random types."""
    columns: dict[str, Any] = {
        f"{prefix}id": pa.array(range(ROWS), pa.int64()),
        f"{prefix}at": pa.array(TIMES, pa.timestamp("us", "UTC")),
    }
    for number in range(draw(st.integers(4, 8))):
        type_ = draw(types())
        drawn = draw(st.lists(values(type_), min_size=ROWS, max_size=ROWS))
        columns[f"{prefix}{number}"] = pa.array([logical(value, type_) for value in drawn], type_)
    return pa.table(columns)


@pytest.mark.slow
@given(tables("a"), tables("b"), tables("c"))
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.generate,),  # an example takes seconds, so none is shrunk
)
@pytest.mark.long
def test_random_rows_come_out_of_chained_verbs_as_they_went_in(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, one: pa.Table, two: pa.Table, three: pa.Table
) -> None:
    state = str(tmp_path_factory.mktemp("state"))
    pond = Millpond(application_id="random", state_dir=state, partitions=2, backend="memory")
    a, b, c = (dataframe(spark, table) for table in (one, two, three))
    latest = pond.latest(a, key="aid", time="aat", history="1 hour").drop("op", "sequence", "change_time")
    joined = pond.asof_join(
        latest, b, on={"aid": "bid"}, left_time="aat", right_time="bat", history="1 hour", how="left"
    )
    both = pond.table_join(
        joined, c, on={"aid": "cid"}, left_time="aat", right_time="cat", how="outer", history="1 hour"
    ).where("cat is not null and aat is not null")
    names = [*one.column_names, *two.column_names[1:], *three.column_names[1:]]
    assert exact(both, names) == sorted(packed([*one.columns, *two.columns[1:], *three.columns[1:]]))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("make_interval(1) as c", "column 'c' is of type interval, which Spark cannot hand"),
        ("array(make_interval(1)) as c", r"column 'c\.element' is of type interval"),
        ("named_struct('a', array(interval '1' month)) as c", r"column 'c\.a\.element' .* a column of its own"),
        *([] if pyspark.__version__.startswith(("4.1.", "4.2.")) else FINE_TIMES),
    ],
)
def test_a_type_that_cannot_go_through_is_refused_with_its_path(
    spark: SparkSession, pond: Millpond, expression: str, message: str
) -> None:
    rows = spark.sql(f"select 1 as id, timestamp'2024-01-01' as at, {expression}")
    with pytest.raises(ConfigurationError, match=message):
        pond.latest(rows, key="id", time="at", history="1 hour")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("map(1, 2)", "'k' is a map, which has no order"),
        ("parse_json('1')", "'k' is a variant, which has no order"),
        ("collate('a', 'UNICODE_CI')", "key of 'input': column 'k' is of type string collate UNICODE_CI, but values"),
    ],
)
def test_a_type_without_an_order_of_bytes_is_refused_as_a_key(
    spark: SparkSession, pond: Millpond, expression: str, message: str
) -> None:
    rows = spark.sql(f"select {expression} as k, timestamp'2024-01-01' as at")
    with pytest.raises(ConfigurationError, match=message):
        pond.latest(rows, key="k", time="at", history="1 hour")


@pytest.mark.parametrize("call", [aggregates.min, aggregates.max, aggregates.count_distinct])
def test_what_compares_strings_refuses_a_collation(spark: SparkSession, pond: Millpond, call: Any) -> None:
    """``B``, ``a`` and ``A`` are two values with the collation UTF8_LCASE; by their bytes they are three."""
    rows = spark.sql("select 1 as k, named_struct('s', collate('B', 'UTF8_LCASE')) as v, timestamp'2024-01-01' as at")
    message = r"the argument of 'r': column 'r\.s' is of type string collate UTF8_LCASE, but values are compared by"
    with pytest.raises(ConfigurationError, match=message):
        pond.aggregate(rows, {"r": call("v")}, by="k", time="at")
    first = pond.aggregate(
        rows, {"r": aggregates.first("v"), "all": aggregates.collect(F.col("v.s"))}, by="k", time="at"
    )
    types = [first.schema[name].dataType.simpleString() for name in ("r", "all")]
    assert types == ["struct<s:string collate UTF8_LCASE>", "array<string collate UTF8_LCASE>"]


def test_months_are_no_integers_in_keys_and_arguments(spark: SparkSession, pond: Millpond) -> None:
    rows = spark.sql("select interval '1-2' year to month as k, 14 as n, timestamp'2024-01-01 10:00:00' as at")
    numbers = rows.select("n", F.col("at").alias("since"))
    with pytest.raises(ConfigurationError, match=r"joins \(k: interval of months\) with \(n: int32\), whose types"):
        pond.asof_join(rows, numbers, on={"k": "n"}, left_time="at", right_time="since", history=0)
    with pytest.raises(ConfigurationError, match="argument of 'most' is of type interval year to month, which cannot"):
        pond.aggregate(rows, {"most": aggregates.max("k")}, by="n", time="at")
    counted = pond.aggregate(rows, {"rows": aggregates.count()}, by="k", time="at")
    assert counted.selectExpr("cast(k as string)", "rows").collect() == [("INTERVAL '1-2' YEAR TO MONTH", 1)]


def test_months_do_not_become_integers_at_a_restart(spark: SparkSession, tmp_path: Path, pond: Millpond) -> None:
    rows = spark.sql("select 1 as id, interval '1-2' year to month as wait, timestamp'2024-01-01' as at")
    rows.write.parquet(f"{tmp_path}/in")
    arriving = spark.readStream.schema(rows.schema).parquet(f"{tmp_path}/in")
    same: dict[str, Any] = {"key": "id", "time": "at", "history": 0, "name": "waits"}
    written = pond.latest(arriving, **same).writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
    written.trigger(availableNow=True).start(f"{tmp_path}/out").awaitTermination()
    restarted = Millpond(application_id="types", state_dir=str(tmp_path / "state"), partitions=2, backend="lmdb")
    with pytest.raises(StateConflictError, match="wait"):
        restarted.latest(arriving.withColumn("wait", F.lit(14)), **same)


def calls_and_sql() -> dict[str, tuple[AggregateCall, str]]:
    """Return calls, and what they are in Spark SQL."""
    return {
        "rows": (aggregates.count(where="s = 'paid'"), "count(*) filter (where s = 'paid')"),
        "total": (aggregates.sum("v", where=F.col("s") == "paid"), "sum(v) filter (where s = 'paid')"),
        "share": (aggregates.sum(F.expr("60 / v"), where="v > 0"), "sum(60 / v) filter (where v > 0)"),
        "sample": (aggregates.var_samp("v"), "var_samp(v)"),
        "shared": (aggregates.covar_samp("v", F.expr("v * v")), "covar_samp(v, v * v)"),
        "both": (aggregates.covar_pop("v", "v", where="s = 'open'"), "covar_pop(v, v) filter (where s = 'open')"),
        "line": (aggregates.corr(F.expr("v + 1"), F.expr("if(v > 2, null, -v)")), "corr(v + 1, if(v > 2, null, -v))"),
        "weighted": (aggregates.weighted_avg("v", F.expr("v + 1")), "sum(v * (v + 1)) / sum(v + 1)"),
        "population": (aggregates.stddev_pop("v", where="s = 'open'"), "stddev_pop(v) filter (where s = 'open')"),
        "lean": (aggregates.skewness("v", where="s = 'open'"), "skewness(v) filter (where s = 'open')"),
        "tails": (aggregates.kurtosis(F.expr("v * v")), "kurtosis(v * v)"),
        "many": (aggregates.count_if(F.expr("v > 0")), "count_if(v > 0)"),
        "text": (aggregates.last(F.lit("v")), "'v'"),
        "all": (aggregates.bool_and(F.expr("v > 0")), "bool_and(v > 0)"),
        "some": (aggregates.bool_or(F.expr("v > 0"), where="s = 'open'"), "bool_or(v > 0) filter (where s = 'open')"),
        "each": (aggregates.bit_and(F.expr("cast(v as tinyint)")), "bit_and(cast(v as tinyint))"),
        "any": (aggregates.bit_or("v"), "bit_or(v)"),
        "odd": (aggregates.bit_xor("v"), "bit_xor(v)"),
        "mode": (aggregates.mode("v"), "mode(v, true)"),
        "high": (aggregates.percentile("v", 0.9), "percentile(v, 0.9)"),
        "half": (aggregates.median(F.expr("v / 7"), where="s = 'paid'"), "median(v / 7) filter (where s = 'paid')"),
        "wait": (
            aggregates.percentile(F.expr("make_dt_interval(0, 0, 0, v + 0.000001)"), 0.3),
            "percentile(make_dt_interval(0, 0, 0, v + 0.000001), 0.3)",
        ),
        "early": (
            aggregates.collect("v", limit=3, where="s = 'open'"),
            "slice(transform(array_sort(collect_list(struct(at, v)) filter (where v is not null and s = 'open')), "
            "pair -> pair.v), 1, 3)",
        ),
        "different": (
            aggregates.collect("v", distinct=True),
            "array_distinct(transform(array_sort(collect_list(struct(at, v)) filter (where v is not null)), "
            "pair -> pair.v))",
        ),
        "mapped": (
            aggregates.map_agg(F.expr("unix_seconds(at)"), "v", where="s = 'paid'"),
            "map_from_entries(array_sort(collect_list(struct(unix_seconds(at), v)) filter (where s = 'paid')))",
        ),
        "latest": (
            aggregates.map_agg(F.expr("upper('v')"), "v"),
            "map('V', max_by(struct(v), at).v)",
        ),
        "first": (aggregates.first("v", where="s = 'paid'"), "min_by(struct(v), at) filter (where s = 'paid').v"),
        "last": (
            aggregates.last("v", ignore_nulls=True, where="s = 'open'"),
            "max_by(v, at) filter (where s = 'open' and v is not null)",
        ),
    }


def test_aggregates_are_those_of_spark_sql(spark: SparkSession, pond: Millpond) -> None:
    values, texts = (None, 0, 4, -5, 12), ("paid", "open", None)
    listed = [(place % 3, texts[place % 7 % 3], values[place % 5], place) for place in range(40)]
    frame = spark.createDataFrame(listed, "k int, s string, v int, n int")
    rows = frame.selectExpr("k", "s", "v", "timestamp_seconds(n) as at")
    found = pond.aggregate(rows, {name: call for name, (call, _) in calls_and_sql().items()}, by="k", time="at")
    expected = rows.groupBy("k").agg(*(F.expr(text).alias(name) for name, (_, text) in calls_and_sql().items()))
    same = found.select(*expected.columns)
    assert same.dtypes == expected.dtypes
    for one, other in zip(*(frame.orderBy("k").collect() for frame in (same, expected)), strict=True):
        for name, value in one.asDict().items():
            assert value == (pytest.approx(other[name], rel=1e-12) if isinstance(value, float) else other[name]), name

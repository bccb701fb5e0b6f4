"""The sketches that aggregates make are Spark's: its functions read them, and merge them with their own."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall

pytestmark = pytest.mark.spark

SIZE = 6_000

CALLS: dict[str, AggregateCall] = {
    "hll": aggregates.hll_sketch_agg("n"),
    "hll_text": aggregates.hll_sketch_agg("s", 10, where="n % 2 = 0"),
    "theta": aggregates.theta_sketch_agg("n"),
    "theta_text": aggregates.theta_sketch_agg("s"),
    "theta_float": aggregates.theta_sketch_agg("x"),
    "kll": aggregates.kll_sketch_agg("n"),
    "kll_float": aggregates.kll_sketch_agg("x", 400),
    "kll_short": aggregates.kll_sketch_agg("y"),
}
SPARKS = {
    "hll": "hll_sketch_agg(n)",
    "hll_text": "hll_sketch_agg(s, 10) filter (where n % 2 = 0)",
    "theta": "theta_sketch_agg(n)",
    "theta_text": "theta_sketch_agg(s)",
    "theta_float": "theta_sketch_agg(x)",
    "kll": "kll_sketch_agg_bigint(n)",
    "kll_float": "kll_sketch_agg_double(x, 400)",
    "kll_short": "kll_sketch_agg_double(y)",
}
MERGED = {
    "hll": "hll_sketch_estimate(hll_union({0}, {1}))",
    "theta": "theta_sketch_estimate(theta_union({0}, {1}))",
}
READ = {"hll": "hll_sketch_estimate", "theta": "theta_sketch_estimate"}
ITEMS = ("tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp", "timestamp_ntz")


def rows_of(spark: SparkSession, size: int = SIZE) -> DataFrame:
    """Return rows of three keys, of which one has few different values, with nulls, empty strings, zeros and NaN."""
    return spark.range(size).selectExpr(
        "int(id % 3) as k",
        "if(id % 11 = 0, null, if(id % 3 = 0, id % 7, id)) as n",
        "if(id % 13 = 0, '', if(id % 17 = 0, null, concat('ä', id))) as s",
        "if(id % 19 = 0, double('nan'), if(id % 23 = 0, -0.0D, id / 8)) as x",
        "float(id / 8) as y",
        "timestamp_seconds(id) as at",
    )


@pytest.fixture
def pond(tmp_path: Path) -> Millpond:
    return Millpond(application_id="sketches", state_dir=str(tmp_path / "state"), partitions=2, backend="memory")


def test_functions_of_spark_read_the_sketches_and_merge_them_with_theirs(spark: SparkSession, pond: Millpond) -> None:
    rows = rows_of(spark)
    ours = pond.aggregate(rows, CALLS, by="k", time="at").select("k", *CALLS)
    theirs = rows.groupBy("k").agg(*(F.expr(text).alias(f"spark_{name}") for name, text in SPARKS.items()))
    both, wanted = ours.join(theirs, "k"), {}
    for name in CALLS:
        kind = name.partition("_")[0]
        if kind in READ:
            wanted[f"{name} ours"] = f"double({READ[kind]}({name}))"
            wanted[f"{name} theirs"] = f"double({READ[kind]}(spark_{name}))"
            wanted[f"{name} both"] = f"double({MERGED[kind].format(name, f'spark_{name}')})"
        else:
            type_ = "bigint" if name == "kll" else "double"
            for side, column in (("ours", name), ("theirs", f"spark_{name}")):
                wanted[f"{name} {side}"] = f"double(kll_sketch_get_n_{type_}({column}))"
            merged = f"kll_sketch_merge_{type_}({name}, spark_{name})"
            wanted[f"{name} both"] = f"kll_sketch_get_n_{type_}({merged}) / 2"
    found = both.selectExpr("k", *(f"{text} as `{name}`" for name, text in wanted.items())).collect()
    assert len(found) == 3
    for row in found:
        for name in CALLS:
            ours_, theirs_, merged_ = (row[f"{name} {side}"] for side in ("ours", "theirs", "both"))
            close = 0.12 if name.startswith(("hll", "theta")) else 0
            assert ours_ == pytest.approx(theirs_, rel=close), (row["k"], name)
            assert merged_ == pytest.approx(theirs_, rel=close), (row["k"], name)


@pytest.mark.first
def test_quantiles_that_spark_reads_are_within_the_error_of_the_sketch(spark: SparkSession, pond: Millpond) -> None:
    rows = rows_of(spark).where("k = 1")
    found = pond.aggregate(
        rows,
        {
            "n": aggregates.kll_sketch_agg("n"),
            "x": aggregates.kll_sketch_agg("x"),
            "near": aggregates.approx_percentile("n", 0.25, 400),
        },
        by=[],
        time="at",
    ).selectExpr("kll_sketch_get_quantile_bigint(n, 0.5) as n", "kll_sketch_get_quantile_double(x, 0.9) as x", "near")
    exact = rows.selectExpr(
        "approx_percentile(n, array(0.47, 0.53)) as n",
        "approx_percentile(if(isnan(x), null, x), array(0.87, 0.93)) as x",
        "approx_percentile(double(n), array(0.22, 0.28)) as near",
    )
    (row,), (bounds,) = found.collect(), exact.collect()
    for name in ("n", "x", "near"):
        assert bounds[name][0] <= row[name] <= bounds[name][1], name


def test_frequent_items_are_those_that_spark_finds_in_its_own_sketches_and_in_ours(
    spark: SparkSession, pond: Millpond
) -> None:
    values = {name: f"cast(cast(v as double) as {name})" for name in ("float", "double")}
    values |= {name: f"cast(v as {name})" for name in ("tinyint", "smallint", "int", "bigint", "string")}
    values |= {"date": "date_add(date'2024-02-28', v)", "timestamp": "timestamp_seconds(v)"}
    values |= {"timestamp_ntz": "cast(timestamp_seconds(v) as timestamp_ntz)"}
    rows = spark.range(400).selectExpr("int(sqrt(id)) as v", "timestamp_seconds(id) as at")
    rows = rows.selectExpr("at", *(f"{values[name]} as {name}" for name in ITEMS))
    calls = {name: aggregates.approx_top_k_accumulate(name, 100) for name in ITEMS}
    listed = {f"{name}_list": aggregates.approx_top_k(name, 3, 100) for name in ITEMS}
    ours = pond.aggregate(rows, {**calls, **listed}, by=[], time="at")
    theirs = rows.agg(*(F.expr(f"approx_top_k_accumulate({name}, 100)").alias(f"spark_{name}") for name in ITEMS))
    sparks = theirs.toDF(*ITEMS)
    assert ours.select(*ITEMS).schema.simpleString() == sparks.schema.simpleString()
    combined = ours.select(*ITEMS).union(sparks).agg(*(F.expr(f"approx_top_k_combine({name}, 100)") for name in ITEMS))
    both, (shown,) = combined.toDF(*ITEMS), ours.select(*listed).collect()
    estimates = [F.expr(f"approx_top_k_estimate({name}, 3)").alias(name) for name in ITEMS]
    (one,), (other,), (twice,) = (frame.select(*estimates).collect() for frame in (ours, sparks, both))
    for place, name in enumerate(ITEMS):
        entries = [[tuple(entry) for entry in row[place]] for row in (one, other, shown)]
        assert entries[0] == entries[1] == entries[2], name
        assert [tuple(entry) for entry in twice[place]] == [(item, 2 * count) for item, count in entries[0]], name

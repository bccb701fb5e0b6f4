"""The text of a user's parameter: it is the same however it was written, on every day and in every session."""

from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark.verbs.frames.expressions import Expression, kept_as, kept_in

pytestmark = pytest.mark.spark


@pytest.mark.first
def test_equal_expressions_have_one_text_and_others_have_others(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr(
        "id a", "'x' b", "timestamp'2024-01-01' t", "array(1) xs", "named_struct('u', 1) s", "id `odd name`"
    ).alias("q")  # fmt: skip
    a = F.col("a")
    same: list[tuple[list[Any], str]] = [
        (["a", a, F.col("q.a"), F.col("`a`"), a.alias("x"), F.expr("q.a as y"), frame["a"]], "a"),
        (["odd name", F.col("`odd name`")], "odd name"),
        ([F.lit("a"), F.lit("a").alias("b"), F.expr("'a'")], "'a'"),
        ([a * 2, F.expr("a*2"), (F.col("q.a") * F.lit(2)).alias("odd name")], "(a * 2)"),
        ([F.col("b").cast("long"), F.expr("CAST(b AS BIGINT) x")], "CAST(b AS BIGINT)"),
        ([F.col("s.u"), F.col("s")["u"], F.col("s").getField("u")], "s.u"),
        ([F.rand() + a, F.rand() + a, F.expr("rand(7) + a")], "(rand(...) + a)"),
        ([F.greatest("t", F.lit(datetime(2024, 1, day))) for day in (1, 2)], "greatest(t, TIMESTAMP '...')"),
        ([F.transform("xs", lambda one: one + 1), F.transform("xs", lambda other: other + 1)],
         "transform(xs, lambdafunction((namedlambdavariable() + 1), namedlambdavariable()))"),
    ]  # fmt: skip
    for columns, text in same:
        assert {Expression.of(frame, column).text for column in columns} == {text}
    kept = {name: Expression.of(frame, columns[-1]) for name, (columns, _) in zip("abcdefghi", same, strict=True)}
    assert kept_in(kept_as(kept).names) == kept
    assert kept["a"].release is None
    assert kept["c"].release == ".".join(spark.version.split(".")[:2])


def test_names_are_renamed_in_expressions_and_another_release_of_spark_may_name_them_otherwise() -> None:
    before = Expression("(a * ab)", "4.3")
    assert Expression("(b * ab)", "4.3").follows(before, {"a": "b"})
    assert not Expression("(b * ab)", "4.3").follows(before, {})
    assert Expression("multiply(a, ab)", "4.4").follows(before, {})
    assert not Expression("a").follows(before, {})
    assert Expression("b").follows(Expression("a"), {"a": "b"})
    assert not Expression("b").follows(Expression("a"), {})

"""Verbs answer what Spark SQL does for keys and values of all its types, as streams that are restarted."""

import pytest
from pyspark.sql import SparkSession

from tests.spark.random_verbs import JOBS, KEYS, difference
from tests.spark.test_verb_types import WIDE

LONG = pytest.mark.long
pytestmark = [pytest.mark.spark, pytest.mark.slow]


# Of the joins of tables, one is enough for each day.
@pytest.mark.parametrize("job", [pytest.param(job, marks=LONG if job == "foreign_keys" else ()) for job in JOBS])
def test_streams_over_all_types_answer_what_spark_sql_does(spark: SparkSession, job: str) -> None:
    assert difference(spark, job, seed=1) is None


def test_rows_have_all_types() -> None:
    assert len(KEYS) >= 16
    assert len(WIDE) >= 25

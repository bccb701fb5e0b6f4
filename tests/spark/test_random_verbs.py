"""Verbs answer what Spark SQL does for keys and values of all its types, as streams that are restarted."""

from collections.abc import Mapping, Sequence

import pytest
from pyspark.sql import SparkSession

from tests.spark.random_verbs import JOBS, KEYS, difference
from tests.spark.test_verb_types import WIDE

MARKS: Mapping[str, Sequence[pytest.MarkDecorator]] = {
    "foreign_keys": [pytest.mark.long],
    "windows_of_versions": [pytest.mark.long],
    "windows": [pytest.mark.long, pytest.mark.exhaustive],
    "pairs": [pytest.mark.long, pytest.mark.exhaustive],
}
"""Of all of them, one is enough for each day: ``tests/metamorphic/test_typed.py`` has more, over the same types.
Windows are behind another verb, too."""
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("job", [pytest.param(job, marks=MARKS.get(job, ())) for job in JOBS])
def test_streams_over_all_types_answer_what_spark_sql_does(spark: SparkSession, job: str) -> None:
    assert difference(spark, job, seed=1) is None


def test_rows_have_all_types() -> None:
    assert len(KEYS) >= 16
    assert len(WIDE) >= 25

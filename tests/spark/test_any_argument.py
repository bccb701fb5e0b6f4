"""Any value for a parameter of a verb of ``Millpond``: the call is answered, or refused in words of its own."""

import inspect
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.adapters.tables import ParquetTable
from millpond.errors import ConfigurationError, TopologyError
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor
from millpond.processors.verbs import aggregates as agg
from tests.drawing import tries

pytestmark = pytest.mark.spark

CALLS = {"c": agg.count(), "l": agg.last("n")}


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"a": row["n"]}


@pytest.fixture(scope="module")
def good(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
    """Calls of each verb, by parameter."""
    rate = spark.readStream.format("rate").load()
    rows = rate.selectExpr("cast(value as string) k", "timestamp t", "value n", "'upsert' o", "true yes")
    others = rate.selectExpr("cast(value as string) k", "timestamp u", "value m")
    directory: Path = tmp_path_factory.mktemp("table")
    at: Any = pa.array([1], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": ["x"], "u": at, "m": [1]}), directory / "1.parquet")
    join: dict[str, Any] = {"left": rows, "right": others, "on": "k", "left_time": "t", "right_time": "u"}
    keyed: dict[str, Any] = {"rows": rows, "key": "k", "time": "t"}
    grouped: dict[str, Any] = {"rows": rows, "by": "k", "time": "t"}
    return [
        ("latest", {**keyed, "history": "1 hour"}),
        ("aggregate", {**grouped, "calls": CALLS}),
        ("aggregate", {**grouped, "calls": CALLS, "window": TimeWindows("1 hour")}),
        ("aggregate", {**grouped, "calls": CALLS, "op": "o", "key": "n"}),
        ("top_n", {**grouped, "n": 1, "order": "n"}),
        ("deduplicate", {**keyed, "within": "1 hour"}),
        ("over", {**keyed, "calls": CALLS}),
        ("apply", {**keyed, "processor": PassOn(), "schema": "a bigint", "lateness": 0}),
        ("asof_join", {**join, "history": "1 hour"}),
        ("lookup_join", {**join, "right": ParquetTable(directory)}),
        ("stream_join", {**join, "within": "1 hour"}),
        ("table_join", join),
        ("multi_join", {"tables": {"a": rows, "b": others}, "on": "k", "time": {"a": "t", "b": "u"}}),
    ]


def test_any_argument_is_answered_or_refused_with_the_verb(
    good: list[tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    values = [None, 5, "", "K", [], [5], ["k", None], {}, {"a": 5}, dict, object(), F.col("n"), F.col("other")]

    def refusal(verb: str, given: Mapping[str, Any]) -> Exception | None:
        pond = Millpond(application_id="any", state_dir=str(tmp_path), partitions=1, backend="memory")
        try:
            getattr(pond, verb)(**given)
        except Exception as error:
            return error
        return None

    others = []
    for verb, call in good:
        assert refusal(verb, call) is None
        _, *parameters = inspect.signature(getattr(Millpond, verb)).parameters
        given = list(itertools.product(parameters, values))
        for name, value in Random(verb).sample(given, tries(len(given))):
            error = refusal(verb, {**call, name: value})
            said = isinstance(error, ConfigurationError | TopologyError) and str(error).startswith(verb)
            if error is not None and not said:
                others.append(f"{verb}({name}={value!r}): {error!r}")
    assert others == []

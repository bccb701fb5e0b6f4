"""Records that fail on Spark: what the user sees of one, and what is kept of those that are left out."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.verbs import KeyContext, KeyedProcessor
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark

ORDERS = [("a", 1, 1), ("b", -7, 2), ("a", 2, 3), (None, 3, 4), ("b", 5, 5)]
COLUMNS = "key string, value long, timestamp long"


def add(key: str, amount: int, total: int) -> int:
    if amount < 0:
        raise ValueError("bad order")
    return total + amount


def totals() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed("string", "int64")).group_by_key()
    kept = Materialized.with_serdes("string", "int64").with_caching()
    orders.aggregate(int, add, kept).to_stream().to("totals", Produced(schema="key string, value long"))
    return builder.build()


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    spark.createDataFrame(ORDERS, COLUMNS).coalesce(1).write.parquet(f"{tmp_path}/orders")
    return spark.readStream.schema(COLUMNS).parquet(f"{tmp_path}/orders")


def test_what_is_left_out_can_be_read_and_is_there_once_though_its_micro_batch_is_repeated(
    spark: SparkSession, tmp_path: Path, orders: DataFrame, run_stream: RunStream
) -> None:
    streams = SparkStreams(
        totals(),
        application_id="totals",
        state_dir=f"{tmp_path}/state",
        partitions=2,
        backend="memory",
        on_error="dead-letter",
    )
    assert streams.dead_letters().collect() == []
    assert run_stream(streams.transform({"orders": orders})) == [("a", 3), ("b", 5)]

    letters = streams.dead_letters().orderBy("timestamp").collect()
    assert [(row.operator, row.task, row.reason, row.key, row.value) for row in letters] == [
        ("KSTREAM-AGGREGATE-0000000002", letters[0].task, "dropped-user-error", "b", "-7"),
        (None, "split-0", "dropped-null-key", None, "3"),
    ]
    assert letters[0].error == "ValueError: bad order"
    assert {(row.application, row.name, row.topic, row.batch_id) for row in letters} == {
        ("totals", "totals", "orders", 0)
    }
    assert spark.sql("select 1").count() == 1  # the session has survived

    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()
    run_stream(streams.transform({"orders": orders}), out="again")
    again = streams.dead_letters("totals").orderBy("timestamp")
    assert again.drop("failed_at").collect() == [row[1:] for row in letters]
    assert streams.dead_letters("another sink").collect() == []

    damaged, *others = (tmp_path / "state" / "totals" / "dead-letters").rglob("*.parquet")
    damaged.write_bytes(b"half of a file")
    with pytest.raises(PythonException, match=rf"{damaged} cannot be read: .*; delete the file to read the others"):
        streams.dead_letters().collect()
    damaged.unlink()
    assert 0 < streams.dead_letters().count() < len(letters)
    assert others


def test_the_first_line_of_what_the_user_sees_names_the_function_the_record_and_the_reason(
    tmp_path: Path, orders: DataFrame, run_stream: RunStream
) -> None:
    streams = SparkStreams(
        totals(), application_id="totals", state_dir=f"{tmp_path}/state", partitions=1, backend="memory"
    )
    with pytest.raises(StreamingQueryException) as caught:
        run_stream(streams.transform({"orders": orders.dropna()}))
    shown = str(caught.value)
    assert (
        "UserFunctionError: operator 'KSTREAM-AGGREGATE-0000000002' of task 0_0 (reads 'orders'): "
        "ValueError: bad order (key 'b', timestamp 2, value -7)"
    ) in shown.splitlines()[0], shown[:4000]
    assert "Traceback" not in shown


class Sums(KeyedProcessor):
    """Keeps a sum, which an order that fails must not change."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        total = context.state.get(0) + row["value"]
        context.state.set(total)
        yield {"sum": total}
        add(key, row["value"], total)


@pytest.mark.first
def test_a_verb_keeps_its_dead_letters_with_keys_and_rows_that_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    pond = Millpond(
        application_id="job", state_dir=f"{tmp_path}/state", partitions=1, backend="memory", on_error="dead-letter"
    )
    rows = spark.createDataFrame(ORDERS, COLUMNS).selectExpr(
        "key", "value", "if(key is null, null, timestamp_micros(timestamp)) as at"
    )
    sums = pond.apply(rows, Sums(), key="key", time="at", schema="sum long", lateness="1 second", name="sums")
    assert sorted(row.sum for row in sums.collect()) == [1, 3, 5]
    letters = pond.dead_letters("sums").orderBy("timestamp")
    found = letters.selectExpr("operator", "key", "value", "unix_micros(timestamp)", "reason", "batch_id").collect()
    assert [tuple(row) for row in found] == [
        (None, found[0][1], found[0][2], None, "dropped-bad-timestamp", None),
        (
            "sums",
            '{"key":"b"}',
            '{"key":"b","value":-7,"at":"1970-01-01 00:00:00.000002+00:00"}',
            2,
            "dropped-user-error",
            None,
        ),
    ]
    assert '"value":3' in str(found[0][2])

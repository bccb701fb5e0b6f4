"""Formats and tables of Spark's get each row at least once, and what cannot be merged into a table is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import FormatOutput, MergeOutput, SparkStreams, TableOutput
from millpond.adapters.spark.rows.sink import Sink
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Produced, StreamsBuilder, Topology

pytestmark = pytest.mark.spark

TABLE = "millpond_counts"
COUNTS = "key string, value long"
FORMATS = ("csv", "json", "parquet")
BATCHES = ([("a", "x", 1), ("b", "y", 2)], [("a", "z", 3)])
AVAILABLE = {"availableNow": True}


def counts() -> Topology:
    """Counts by key, once for each format, for a table, and for what is written last."""
    builder = StreamsBuilder()
    counted = builder.stream("in", Consumed("string", "string")).group_by_key().count().to_stream()
    for sink in (*FORMATS, "table", "then"):
        counted.to(sink, Produced(schema=COUNTS))
    return builder.build()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """The name of a table that does not exist, neither before nor after."""
    spark.sql(f"drop table if exists {TABLE}")
    yield TABLE
    spark.sql(f"drop table if exists {TABLE}")


@pytest.mark.long
def test_formats_and_a_table_get_each_row_and_those_of_a_repeated_micro_batch_again(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    ddl = "key string, value string, timestamp long"
    inputs = {"in": spark.readStream.schema(ddl).parquet(str(tmp_path / "in" / "*"))}
    streams = SparkStreams(
        counts(), application_id="counts", state_dir=str(tmp_path / "state"), partitions=1, backend="memory"
    )

    def arrive(number: int) -> None:
        rows = spark.createDataFrame(BATCHES[number], ddl).coalesce(1)
        rows.write.parquet(str(tmp_path / "in" / str(number)))

    def run(then: Any) -> None:
        sinks = {
            **{name: FormatOutput(name, {"path": str(tmp_path / name)}) for name in FORMATS},
            "table": TableOutput(table, "parquet", {"path": str(tmp_path / "table")}),
            "then": then,
        }
        checkpoint = str(tmp_path / "checkpoint")
        streams.start(inputs, sinks=sinks, checkpoint_location=checkpoint, trigger=AVAILABLE).awaitTermination()

    def found() -> dict[str, list[tuple[Any, ...]]]:
        frames = {name: spark.read.schema(COUNTS).format(name).load(str(tmp_path / name)) for name in FORMATS}
        spark.catalog.refreshTable(table)  # a query has a session of its own, and so another list of the table's files
        frames["table"] = spark.table(table)
        return {name: sorted(map(tuple, frame.collect())) for name, frame in frames.items()}

    def fail(rows: DataFrame, number: int) -> None:
        raise RuntimeError(f"no more of micro-batch {number}")

    arrive(0)
    run(lambda rows, number: None)
    once = [("a", 1), ("b", 1)]
    assert found() == dict.fromkeys((*FORMATS, "table"), once)
    arrive(1)
    with pytest.raises(StreamingQueryException, match="no more of micro-batch 1"):
        run(fail)
    assert found() == dict.fromkeys((*FORMATS, "table"), sorted([*once, ("a", 2)]))
    run(lambda rows, number: None)
    assert found() == dict.fromkeys((*FORMATS, "table"), sorted([*once, ("a", 2), ("a", 2)]))


FEED = "key string, value long, op string, sequence bigint"


@pytest.mark.parametrize(
    ("output", "ddl", "message"),
    [
        (MergeOutput("t", ["key"]), "key string, value long, op string", "no change feed"),
        (MergeOutput("t", ["key"]), "key string, op string, sequence int", "no change feed"),
        (MergeOutput("t", "key"), FEED, "keys are a list of columns, one at least, not 'key'"),
        (MergeOutput("t", []), FEED, r"keys are a list of columns, one at least, not \[\]"),
        (MergeOutput("t", ["kye"]), FEED, "'kye' cannot be a key of its table; did you mean 'key'"),
        (MergeOutput("t", ["op"]), FEED, r"has the columns \['key', 'value'\], so 'op' cannot be a key"),
        (MergeOutput("delta.s3://b/t", ["key"]), FEED, "'delta.s3://b/t' is not the name of a table"),
        (MergeOutput("", ["key"]), FEED, "'' is not the name of a table"),
        (MergeOutput("t", ["key"]), FEED, "the session has no Delta Lake"),
    ],
)
def test_what_cannot_be_merged_into_a_table_is_refused(
    spark: SparkSession, output: MergeOutput, ddl: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"sink 'counts'.* {message}"):
        output.check("counts", Sink.of("counts", Produced(schema=ddl)).schema, spark)

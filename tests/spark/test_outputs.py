"""Formats and tables of Spark's get each row at least once, and what cannot be merged into a table is refused."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
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
    """Return counts by key, once for each format, for a table, and for what is written last."""
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
PACKAGES = "spark.jars.packages"


class Started:
    """The tests' session, as if it had been started with these settings, maybe as that of another release."""

    def __init__(self, spark: SparkSession, settings: dict[str, str], version: str | None = None) -> None:
        self._spark, self._settings = spark, settings
        self.version = version or spark.version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    @property
    def conf(self) -> Any:
        return SimpleNamespace(get=lambda name, default=None: self._settings.get(name) or default)

    @property
    def _jvm(self) -> Any:
        """Finds Delta Lake if its package was asked for, in a release of its own, as it must be."""
        package = re.fullmatch(r"io\.delta:(delta-spark_[\d.]+_2\.13):([\d.]+)", self._settings.get(PACKAGES, ""))
        if package is None:
            return self._spark._jvm
        places = {"getName": "org.apache.spark.sql.delta.sources.DeltaDataSource"}
        places |= {"getLocation": f"file:/jars/io.delta_{package[1]}-{package[2]}.jar"}
        found: Any = SimpleNamespace(**{name: partial(str, place) for name, place in places.items()})
        found.getProtectionDomain = found.getCodeSource = lambda: found
        jvm: Any = SimpleNamespace(lookupDataSource=lambda name, conf: found)
        for name in reversed(["org", "apache", "spark", "sql", "execution", "datasources", "DataSource"]):
            jvm = SimpleNamespace(**{name: jvm})
        return jvm


def settings_in(refused: pytest.ExceptionInfo[ConfigurationError]) -> dict[str, str]:
    """Return the settings of a session that a message advises, with the newest release of Delta Lake by now."""
    return dict(re.findall(r"(spark[\w.]+)=([\w.:-]+\w)", refused.value.sentence.replace("RELEASE", "4.4.0")))


def merged(spark: Any, output: MergeOutput, ddl: str = FEED) -> None:
    output.check("counts", Sink.of("counts", Produced(schema=ddl)).schema, spark)


def test_a_session_without_delta_lake_is_started_with_what_the_messages_say(spark: SparkSession) -> None:
    output = MergeOutput("no_such_table", ["key"])
    with pytest.raises(ConfigurationError, match="the session has no Delta Lake; start it with ") as refused:
        merged(spark, output)
    told = settings_in(refused)
    assert sorted(told) == ["spark.jars.packages", "spark.sql.catalog.spark_catalog", "spark.sql.extensions"]
    merged(Started(spark, told), output)
    with pytest.raises(ConfigurationError, match="is not set up for it; start it with ") as refused:
        merged(Started(spark, {PACKAGES: told[PACKAGES]}), output)
    merged(Started(spark, {PACKAGES: told[PACKAGES], **settings_in(refused)}), output)
    older = {**told, PACKAGES: "io.delta:delta-spark_4.0_2.13:4.0.0"}
    with pytest.raises(
        ConfigurationError, match=r"is for Spark 4\.0, and this is .*, or take PySpark 4\.0 \["
    ) as refused:
        merged(Started(spark, older), output)
    merged(Started(spark, {**older, **settings_in(refused)}), output)
    merged(Started(spark, older, "4.0.2"), output)
    pom = (Path(__file__).parents[1] / "delta" / "pom.xml").read_text()
    assert "<artifactId>delta-spark_${spark.version}_2.13</artifactId>" in pom, "as the package is called"


def test_a_sink_is_merged_into_a_table_as_the_messages_say(spark: SparkSession, table: str) -> None:
    with pytest.raises(ConfigurationError, match="the session has no Delta Lake") as refused:
        merged(spark, MergeOutput(table, ["key"]))
    session = Started(spark, settings_in(refused))
    with pytest.raises(
        ConfigurationError, match=r"no change feed, .* columns: Produced\(schema='\.\.\., op"
    ) as refused:
        merged(session, MergeOutput(table, ["key"]), COUNTS)
    merged(session, MergeOutput(table, ["key"]), refused.value.sentence.split("'")[-2].replace("...", COUNTS))
    with pytest.raises(ConfigurationError, match=r"not the name of a table; .* as delta\.`s3://bucket/table`"):
        merged(session, MergeOutput("delta.s3://bucket/table", ["key"]))
    merged(session, MergeOutput("delta.`s3://bucket/table`", ["key"]))
    spark.sql(f"create table {table} (key string) using parquet")
    feed = f"`the time` timestamp, {FEED}"
    with pytest.raises(ConfigurationError, match=r"\['the time', 'value'\], which the table \w+ lacks; ") as refused:
        merged(session, MergeOutput(table, ["key"]), feed)
    merged(session, MergeOutput(table, ["key"]), "key string, op string, sequence bigint")
    spark.sql(refused.value.sentence.partition("add them to it: ")[2])
    merged(session, MergeOutput(table, ["key"]), feed)
    assert dict(spark.table(table).dtypes) == {"key": "string", "the time": "timestamp", "value": "bigint"}


@pytest.mark.parametrize(
    ("output", "ddl", "message"),
    [
        (MergeOutput("t", ["key"]), "key string, op string, sequence int", "no change feed"),
        (MergeOutput("t", "key"), FEED, "keys are a list of columns, one at least, not 'key'"),
        (MergeOutput("t", []), FEED, r"keys are a list of columns, one at least, not \[\]"),
        (MergeOutput("t", ["kye"]), FEED, "'kye' cannot be a key of its table; did you mean 'key'"),
        (MergeOutput("t", ["op"]), FEED, r"has the columns \['key', 'value'\], so 'op' cannot be a key"),
        (MergeOutput("", ["key"]), FEED, "'' is not the name of a table"),
    ],
)
def test_what_cannot_be_merged_into_a_table_is_refused(
    spark: SparkSession, output: MergeOutput, ddl: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"sink 'counts'.* {message}"):
        output.check("counts", Sink.of("counts", Produced(schema=ddl)).schema, spark)

"""Delta tables get each row of a sink once, or are kept at what a change feed says, whatever is repeated."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import FileOutput, FormatOutput, MergeOutput, SparkStreams, TableOutput
from millpond.adapters.spark.outputs.output import MicroBatch, Output
from millpond.adapters.spark.rows.sink import CHANGE_COLUMNS
from millpond.adapters.tables import DeltaTable
from millpond.errors import ConfigurationError, FormatError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology

PRICES = "key string, value double"
FEED = "shop string, `the-item` int, price double, op string, sequence bigint"

Prices = list[tuple[str, float | None]]


def prices() -> Topology:
    """Return the changes of a table, for sinks that are written in the order of their names."""
    builder = StreamsBuilder()
    changes = builder.table("in", Consumed("string", "float64"), Materialized("prices")).to_stream()
    for sink in ("appended", "files", "named", "then"):
        changes.to(sink, Produced(schema=PRICES))
    changes.to("kept", Produced(schema=f"{PRICES}, timestamp timestamp, op string, sequence bigint"))
    return builder.build()


def random_prices(seed: int, count: int) -> Prices:
    """Return changes of few keys, so that each has several, one in four of them a tombstone."""
    rng = random.Random(seed)
    return [(rng.choice("abcdefghijkl"), rng.choice([None, 1.0, 2.0, rng.random()])) for _ in range(count)]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def versions(spark: SparkSession, table: str) -> int:
    """Return how many commits a table has had."""
    return spark.sql(f"DESCRIBE HISTORY {table}").count()


def test_micro_batches_that_are_repeated_change_nothing_and_a_restart_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    ddl = "key string, value double, timestamp long"
    inputs = {"in": spark.readStream.schema(ddl).parquet(str(tmp_path / "in" / "*"))}
    streams = SparkStreams(prices(), application_id="prices", state_dir=str(tmp_path / "state"), backend="memory")
    tables = {name: f"delta.`{tmp_path / name}`" for name in ("appended", "kept")} | {"named": "named_prices"}
    arrived: Prices = []

    def arrive(number: int, changes: Prices) -> None:
        arrived.extend(changes)
        rows = [(key, value, 1_000 * number + at) for at, (key, value) in enumerate(changes)]
        spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(tmp_path / "in" / str(number)))

    def run(then: Callable[[DataFrame, int], object]) -> None:
        query = streams.start(
            inputs,
            sinks={
                "appended": FormatOutput("delta", {"path": str(tmp_path / "appended")}),
                "files": FileOutput(str(tmp_path / "files")),
                "kept": MergeOutput(tables["kept"], keys=["key"]),
                "named": TableOutput(tables["named"], "delta"),
                "then": then,
            },
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    def check() -> None:
        newest = {key: (key, value) for key, value in arrived}
        each = sorted(arrived, key=repr)
        assert rows_of(spark.table(tables["kept"]).select("key", "value")) == sorted(
            row for row in newest.values() if row[1] is not None
        )
        assert spark.table(tables["kept"]).columns == ["key", "value", "timestamp"]
        assert rows_of(spark.table(tables["appended"])) == each
        assert rows_of(spark.table(tables["named"])) == each
        assert rows_of(spark.read.schema(PRICES).parquet(str(tmp_path / "files")).select("key", "value")) == each

    written: list[int] = []

    def fail(last: int | None, rows: DataFrame, number: int) -> None:
        written.append(number)
        if number == last:
            raise RuntimeError(f"no more of micro-batch {number}")

    arrive(0, random_prices(0, 60))
    for number in range(2):
        with pytest.raises(StreamingQueryException, match=f"no more of micro-batch {number}"):
            run(partial(fail, number))
        check()
        assert {name: versions(spark, table) for name, table in tables.items()} == {
            "appended": number + 1,
            "kept": number + 2,  # it was made by itself
            "named": number + 1,
        }
        arrive(number + 1, [*((key, None) for key in "abc"), ("b", 7.0), *random_prices(number + 1, 60)])
    run(partial(fail, None))
    check()
    assert written == [0, 0, 1, 1, 2]
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None


def feed(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), FEED)


def test_the_newest_change_of_each_key_is_merged_once_for_each_writer(spark: SparkSession, path: str) -> None:
    output = MergeOutput(path, keys=["shop", "the-item"])
    output.write(
        feed(
            spark,
            ("x", 1, 3.0, "upsert", 12),
            ("x", 1, 2.0, "upsert", 11),
            ("x", 2, None, "delete", 14),
            ("x", 2, 5.0, "upsert", 13),
            (None, 1, 6.0, "upsert", 15),
            ("y", 1, None, "upsert", 16),
        ),
        MicroBatch(4, "query-sink"),
    )
    first = [("x", 1, 3.0), ("y", 1, None), (None, 1, 6.0)]
    assert rows_of(spark.table(path)) == sorted(first, key=repr)
    changes = feed(
        spark, ("x", 1, None, "delete", 20), (None, 1, 7.0, "upsert", 21), ("y", 1, 1.0, "delete", 22),
        ("y", 1, 8.0, "upsert", 23), ("z", 9, None, "delete", 24),
    )  # fmt: skip
    for number in (4, 3):
        output.write(changes, MicroBatch(number, "query-sink"))
        assert rows_of(spark.table(path)) == sorted(first, key=repr)
    output.write(changes, MicroBatch(4, "another query's-sink"))
    assert rows_of(spark.table(path)) == sorted([("y", 1, 8.0), (None, 1, 7.0)], key=repr)
    with pytest.raises(PySparkException, match="op is 'upsert' or 'delete', not insert"):
        output.write(feed(spark, ("x", 1, 1.0, "insert", 30)), MicroBatch(5, "query-sink"))
    assert not [table for table in spark.catalog.listTables() if table.isTemporary]


def test_a_table_that_exists_keeps_its_other_columns(spark: SparkSession, path: str) -> None:
    columns = "SHOP string, note string, `the-item` int, price double"
    spark.sql(f"CREATE TABLE {path} ({columns}) USING delta PARTITIONED BY (shop)")
    spark.sql(f"INSERT INTO {path} VALUES ('x', 'mine', 1, 1.0)")
    output = MergeOutput(path, keys=["the-item"])
    output.check("prices", schema("shop", "the-item", "price"), spark)
    output.write(feed(spark, ("y", 1, 2.0, "upsert", 1), ("y", 2, 3.0, "upsert", 2)), MicroBatch(0, "query-sink"))
    assert rows_of(spark.table(path)) == [("y", "mine", 1, 2.0), ("y", None, 2, 3.0)]
    with pytest.raises(ConfigurationError, match=r"has the columns \['discount'\], which the table delta.* lacks"):
        output.check("prices", schema("the-item", "discount"), spark)


def schema(*columns: str) -> pa.Schema:
    """Return a change feed of these columns, of any type."""
    return pa.schema({**dict.fromkeys(columns, pa.int64()), **CHANGE_COLUMNS})


@pytest.mark.parametrize(
    "output",
    [FormatOutput("Delta", {"path": "nowhere"}), TableOutput("nowhere", "delta"), MergeOutput("nowhere", ["key"])],
)
def test_a_session_that_is_not_set_up_is_refused_and_so_are_the_jars_of_another_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, output: Output
) -> None:
    output.check("prices", schema("key"), spark)
    bare = spark.newSession()
    bare.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    with pytest.raises(ConfigurationError, match="'prices': the session has Delta Lake, but is not set up for it"):
        output.check("prices", schema("key"), bare)
    monkeypatch.setattr(type(spark), "version", property(lambda _: "9.8.7"))
    with pytest.raises(ConfigurationError, match=r"is for Spark 4\.1, and this is 9\.8\.7; .*delta-spark_9\.8_2\.13"):
        output.check("prices", schema("key"), spark)


def test_each_version_of_a_table_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """A table of partitions, changed in all ways, with checkpoints in between, as ``lookup_join`` reads it."""
    rng, table = random.Random(11), f"delta.`{tmp_path / 'a table'}`"
    spark.sql(
        f"CREATE TABLE {table} (k string, day date, at timestamp, plain timestamp_ntz, price decimal(10, 2), "
        "tags array<string>) USING delta PARTITIONED BY (day, k) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', 'delta.checkpointInterval' = '4')"
    )
    changes = [
        "UPDATE {} SET price = price + 1 WHERE k = 'b'",
        "DELETE FROM {} WHERE price < 3",
        "OPTIMIZE {}",
        "ALTER TABLE {} ADD COLUMN note string",
        "INSERT INTO {} (k, day, at, note) VALUES (null, date'2026-01-09', timestamp'2026-01-09 12:00:00.123456', 'x')",
    ]
    for number in range(12):
        rows = ", ".join(
            f"('{rng.choice(['a', 'b', 'c d'])}', date'2026-01-0{rng.randint(1, 4)}', "
            f"timestamp'2026-02-01 10:00:{at}', "
            f"timestamp_ntz'2026-02-01 10:00:{at}', {rng.randint(0, 900) / 100}, array('x', null))"
            for at in range(10, 16)
        )
        spark.sql(f"INSERT INTO {table} (k, day, at, plain, price, tags) VALUES {rows}")
        if number % 2:
            spark.sql(changes[number // 2 % len(changes)].format(table))
        ours = DeltaTable(tmp_path / "a table")
        there = spark.table(table)
        names, version = there.columns, ours.version()
        assert version == str(spark.sql(f"DESCRIBE HISTORY {table}").agg({"version": "max"}).collect()[0][0])
        assert ours.schema().names == names
        columns = ours.schema()
        found = [
            pa.Table.from_arrays(
                [part[one.name].cast(one.type) if one.name in part.column_names else pa.nulls(len(part), one.type)
                 for one in columns], schema=columns,
            )
            for text in ours.parts(version) for part in [ours.read(text, names)]
        ]  # fmt: skip
        theirs = there.toArrow().cast(columns)
        assert sorted(map(repr, pa.concat_tables(found).to_pylist())) == sorted(map(repr, theirs.to_pylist()))
    assert list((tmp_path / "a table" / "_delta_log").glob("*.checkpoint.parquet"))


def test_rows_that_are_deleted_by_vectors_are_refused_until_they_are_purged(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = f"delta.`{tmp_path / 'table'}`"
    spark.sql(f"CREATE TABLE {table} (k int) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.range(100).selectExpr("int(id) k").coalesce(1).write.format("delta").mode("append").save(
        str(tmp_path / "table")
    )
    ours = DeltaTable(tmp_path / "table")
    assert len(ours.parts(ours.version())) == 1
    spark.sql(f"DELETE FROM {table} WHERE k = 7")
    with pytest.raises(FormatError, match=r"deletion vector, .* \(REORG TABLE"):
        ours.parts(ours.version())
    spark.sql(f"REORG TABLE {table} APPLY (PURGE)")
    (part,) = ours.parts(ours.version())
    assert ours.read(part, ["k"]).num_rows == 99

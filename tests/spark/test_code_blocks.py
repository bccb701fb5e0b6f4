"""The Python blocks of pages that need Spark, as they are printed there, run on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.packaging.code_blocks import PAGES, blocks, run_block

SETTINGS = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled")
"""What the pages set in a session that all tests share."""

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The tests' session, afterwards with the settings that it had, and without queries."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    yield spark
    for query in spark.streams.active:
        query.stop()
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_every_page_that_needs_spark_is_run_here() -> None:
    pages = {page for page in PAGES if any(block.uses_spark for block in blocks(page))}
    assert pages == {"README.md", "docs/running-on-spark.md"}


def test_the_readmes_example_gives_the_same_on_spark(session: SparkSession, tmp_path: Path) -> None:
    prices = stream(session, tmp_path / "prices", [(1_000, 1.0), (5_000, 2.0), (3_000, 1.5)], "double")
    orders = stream(session, tmp_path / "orders", [(6_000, 3), (4_000, 3), (4_500, 3)], "long")
    names = {"spark": session, "prices_df": prices, "orders_df": orders}
    places = {f'"{name}"': f'"{tmp_path}/{name}"' for name in ("state", "checkpoint")}
    run_page("README.md", session, names, {**places, 'start("amounts")': f'start("{tmp_path}/amounts")'})
    rows = session.read.parquet(str(tmp_path / "amounts")).selectExpr("key", "value", "unix_millis(timestamp)")
    assert sorted(map(tuple, rows.collect())) == [
        ("apple", 4.5, 4_000),
        ("apple", 4.5, 4_500),
        ("apple", 6.0, 6_000),
    ]


def test_the_code_of_the_page_on_spark_counts_flights_and_looks_into_its_store(
    session: SparkSession, tmp_path: Path
) -> None:
    flights = "carrier string, departure timestamp"
    session.sql(
        "select 'UA' carrier, timestamp_millis(id) departure from range(3) union all select 'AA', timestamp_millis(9)"
    ).write.parquet(str(tmp_path / "flights"))
    session.sql(f"create table flights ({flights}) using parquet location '{tmp_path}/flights'")
    try:
        names: dict[str, Any] = {}
        run_page("docs/running-on-spark.md", session, names, {"s3://bucket": str(tmp_path)})
        written = session.read.parquet(str(tmp_path / "counts")).select("key", "value")
        store = names["streams"].read_store("counts", f"{tmp_path}/checkpoint").select("key", "value")
        for rows in (written, store):
            assert sorted(map(tuple, rows.collect())) == [("AA", 1), ("UA", 3)]
    finally:
        session.sql("drop table flights")


def run_page(page: str, spark: SparkSession, names: dict[str, Any], replaced: dict[str, str]) -> None:
    """Run a page's blocks, and let what queries they started use up their input before the next."""
    for block in blocks(page):
        run_block(page, block, names, replaced)
        for query in spark.streams.active:
            query.processAllAvailable()


def stream(spark: SparkSession, directory: Path, records: list[tuple[int, Any]], value: str) -> DataFrame:
    """Records with the key ``apple`` in this order, as a file stream."""
    rows = [("apple", value, timestamp) for timestamp, value in records]
    schema = f"key string, value {value}, timestamp long"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(directory))
    return spark.readStream.schema(schema).parquet(str(directory))

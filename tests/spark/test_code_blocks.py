"""The Python blocks of pages that need Spark, as they are printed there, run on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from tests.packaging.code_blocks import PAGES, blocks, run_block

SETTINGS = (
    "spark.millpond.application_id",
    "spark.millpond.state_dir",
    "spark.sql.python.filterPushdown.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
"""What the pages set in a session that all tests share."""

pytestmark = pytest.mark.spark


MakeTable = Callable[[str, str], None]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The tests' session, afterwards with the settings that it had, and without queries."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    yield spark
    for query in spark.streams.active:
        query.stop()
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def tables(session: SparkSession, tmp_path: Path) -> Iterator[MakeTable]:
    """Appends what a query gives to a table of that name, which is dropped in the end."""
    made = set()

    def append(name: str, query: str) -> None:
        made.add(name)
        session.sql(query).coalesce(1).write.option("path", str(tmp_path / f"table-{name}")).saveAsTable(
            name, mode="append"
        )

    yield append
    for name in made:
        session.sql(f"drop table {name}")


def test_every_page_that_needs_spark_is_run_here() -> None:
    pages = {page for page in PAGES if any(block.uses_spark for block in blocks(page))}
    assert pages == {
        "README.md",
        "docs/coming-from-spark.md",
        "docs/looking-at-state.md",
        "docs/pipelines.md",  # in test_pipelines.py
        "docs/running-on-spark.md",
        "docs/tutorial.md",  # in test_tutorial.py
        "docs/upgrading.md",
    }


@pytest.mark.first
def test_the_readmes_example_prints_what_it_shows(session: SparkSession, tmp_path: Path) -> None:
    run_page("README.md", session, {}, {'"state"': f'"{tmp_path}/state"'})


@pytest.mark.slow
def test_the_code_of_the_page_on_spark_joins_and_counts_flights_and_looks_into_its_store(
    session: SparkSession, tmp_path: Path, tables: MakeTable
) -> None:
    tables("flights", "select 'UA' carrier, 'JFK' airport, timestamp_millis(id) departure from range(3)")
    tables("flights", "select 'AA' carrier, 'LGA' airport, timestamp_millis(9) departure")
    tables("weather", "select 'JFK' airport, timestamp_millis(1) observed, 'rain' sky")
    names: dict[str, Any] = {}
    run_page("docs/running-on-spark.md", session, names, {"s3://bucket": str(tmp_path)})
    seen = session.read.parquet(str(tmp_path / "seen")).select("airport", "sky")
    assert list(map(tuple, seen.collect())) == [("JFK", "rain")] * 2
    written = session.read.parquet(str(tmp_path / "counts")).select("key", "value")
    store = names["streams"].read_store("counts", f"{tmp_path}/checkpoint").select("key", "value")
    for rows in (written, store):
        assert sorted(map(tuple, rows.collect())) == [("AA", 1), ("UA", 3)]


@pytest.mark.slow
def test_the_code_for_those_who_come_from_spark_keeps_a_table_current(
    session: SparkSession, tmp_path: Path, tables: MakeTable
) -> None:
    tables("sales", "select 1L id, 'ann' customer, 1.5 amount, timestamp'2026-01-05' sold")
    tables("payments", "select 1L id, timestamp'2026-01-05' paid")
    tables("customers", "select 'ann' customer, 'Ann' name, timestamp'2026-01-05' since, 'insert' op")
    tables("customers", "select 'ann' customer, 'Anna' name, timestamp'2026-01-06' since, 'update' op")
    tables(
        "orders", "select id, 'ann' customer, 'new' status, timestamp'2026-01-05' changed, 'insert' op from range(2)"
    )
    tables("orders", "select 0L id, null customer, null status, timestamp'2026-01-06' changed, 'delete' op")
    run_page("docs/coming-from-spark.md", session, {"spark": session}, {"s3://bucket": str(tmp_path)})
    table = session.read.parquet(str(tmp_path / "table" / "0")).select("id", "status", "name")
    assert list(map(tuple, table.collect())) == [(1, "new", "Anna")]


@pytest.mark.slow
def test_the_code_of_the_page_on_looking_at_state_shows_counts_and_what_has_changed_in_them(
    session: SparkSession, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    flights = builder.stream("flights", Consumed("string", "int64"))
    flights.group_by_key().count(Materialized("counts")).to("out", Produced(schema="key string, value long"))
    streams = SparkStreams(builder.build(), application_id="counts", state_dir=f"{tmp_path}/state", partitions=1)
    for carrier in ("UA", "AA"):
        rows = session.createDataFrame([(carrier, 1, 1)], "key string, value long, timestamp long")
        rows.coalesce(1).write.mode("append").parquet(f"{tmp_path}/flights")
        output = streams.transform({"flights": session.readStream.schema(rows.schema).parquet(f"{tmp_path}/flights")})
        query = output.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()
    names: dict[str, Any] = {"spark": session}
    run_page("docs/looking-at-state.md", session, names, {"s3://bucket": str(tmp_path)})
    assert sorted(tuple(row)[:2] for row in names["counts"].collect()) == [("AA", 1), ("UA", 1)]
    assert [(row.change, row.key, row.before, row.after.value) for row in names["changed"].collect()] == [
        ("insert", "AA", None, 1)
    ]


@pytest.mark.long
def test_the_code_of_the_page_on_upgrading_has_a_job_go_on_with_one_more_input(
    session: SparkSession, tmp_path: Path
) -> None:
    ddl = "key string, value string, timestamp long"
    inputs = {}
    for topic in ("flights", "returns"):
        session.createDataFrame([("UA", "", 1), ("AA", "", 2)], ddl).coalesce(1).write.parquet(f"{tmp_path}/{topic}")
        inputs[topic] = session.readStream.schema(ddl).parquet(f"{tmp_path}/{topic}")
    before = SparkStreams(counted(["flights"]), application_id="counts", state_dir=f"{tmp_path}/state")
    query = before.transform({"flights": inputs["flights"]}).writeStream.option(
        "checkpointLocation", f"{tmp_path}/checkpoint"
    )
    query.trigger(availableNow=True).start(f"{tmp_path}/totals").awaitTermination()
    totals = session.createDataFrame([("UA", 1, 1)], "key string, value long, timestamp long")
    topologies = {"topology": counted(["flights", "returns"]), "other_topology": counted(["flights"])}
    other = {'"other"': '"counts"', "other-checkpoint": "checkpoint"}
    new = {'topology, application_id="new-counts"': 'other_topology, application_id="new-counts"', "delta": "parquet"}
    history = session.createDataFrame([("UA", "", 0), ("BA", "", 0)], ddl)
    run_page(
        "docs/upgrading.md",
        session,
        {**topologies, "totals": totals, "history": history, **inputs, **shops(session, tmp_path)},
        {
            'start("s3://bucket/new-totals': f'start("{tmp_path}/stream',
            'start("s3://bucket/shops': f'start("{tmp_path}/shops-stream',
            "s3://bucket": str(tmp_path),
            **other,
            **new,
        },
    )
    sums = {
        name: sorted(map(tuple, session.read.parquet(f"{tmp_path}/{name}").select("shop", "total").collect()))
        for name in ("shops", "shops-stream")
    }
    assert sums == {"shops": [("here", 2), ("there", 2)], "shops-stream": [("here", 5)]}
    written = {
        name: sorted(map(tuple, session.read.parquet(f"{tmp_path}/{name}").select("key", "value").collect()))
        for name in ("totals", "new-totals", "stream")
    }
    assert written == {
        "totals": [("AA", 1), ("AA", 2), ("UA", 1), ("UA", 2)],
        "new-totals": [("BA", 1), ("UA", 1)],
        "stream": [("AA", 1), ("UA", 2)],
    }


def shops(session: SparkSession, directory: Path) -> dict[str, DataFrame]:
    """Return sales and prices: old ones static, new ones as streams."""
    columns = {"sales": ["shop", "product", "sold"], "prices": ["product", "price", "since"]}
    rows = {
        "old_sales": "('here', 'tea', timestamp'2026-01-05'), ('there', 'tea', timestamp'2026-01-05')",
        "old_prices": "('tea', 2L, timestamp'2026-01-04')",
        "sales": "('here', 'tea', timestamp'2026-01-07')",
        "prices": "('tea', 3L, timestamp'2026-01-06')",
    }
    frames = {
        name: session.sql(f"values {text}").toDF(*columns[name.removeprefix("old_")]) for name, text in rows.items()
    }
    for name in columns:
        schema = frames[name].schema
        frames[name].coalesce(1).write.parquet(f"{directory}/{name}")
        frames[name] = session.readStream.schema(schema).parquet(f"{directory}/{name}")
    return frames


def counted(topics: list[str]) -> Topology:
    """Return counts the records of several topics together, by key."""
    builder = StreamsBuilder()
    first, *others = [builder.stream(topic, Consumed("string", "string")) for topic in topics]
    merged = first.merge(*others) if others else first
    merged.group_by_key().count(Materialized("totals")).to("totals", Produced(schema="key string, value long"))
    return builder.build()


def run_page(page: str, spark: SparkSession, names: dict[str, Any], replaced: dict[str, str]) -> None:
    """Run a page's blocks, and let what queries they started use up their input before the next."""
    for block in blocks(page):
        run_block(page, block, names, replaced)
        for query in spark.streams.active:
            query.processAllAvailable()

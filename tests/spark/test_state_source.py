"""``spark.read.format("millpond")``: stores and their changes as DataFrames, and what is said of wrong options."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo

from millpond.adapters.spark import Millpond, SparkStreams, register_state_source
from millpond.adapters.spark.reading.state_source import StateOptions, StateSource
from millpond.cli import main
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Materialized, Produced, SessionWindows, StreamsBuilder, TimeWindows, Topology

pytestmark = pytest.mark.spark

DDL = "key string, value long, timestamp long"


def kinds() -> Topology:
    """Return a store of each family."""
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("string", "int64"))
    grouped = numbers.group_by_key()
    numbers.to_table(Materialized.versioned("versions", history_retention="1 day"))
    grouped.windowed_by(TimeWindows(10, grace=100)).count(Materialized("windows"))
    grouped.windowed_by(SessionWindows(5, grace=100)).count(Materialized("sessions"))
    grouped.count(Materialized("counts")).to_stream().to("out", Produced(schema="key string, value long"))
    return builder.build()


class Query(NamedTuple):
    """A query that has run, and where it is."""

    spark: SparkSession
    checkpoint: str
    state_dir: str

    def options(self, store: str, **options: Any) -> dict[str, str]:
        given = {"checkpoint": self.checkpoint, "state_dir": self.state_dir, "store": store, **options}
        return {name: str(value) for name, value in given.items()}

    def load(self, store: str, **options: Any) -> DataFrame:
        return self.spark.read.format("millpond").options(**self.options(store, **options)).load()

    def rows(self, store: str, **options: Any) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.load(store, **options).collect()))


def run(spark: SparkSession, place: Path, made: Callable[[DataFrame], DataFrame], ddl: str, rows: list[Any]) -> None:
    """Run one micro-batch with these rows."""
    spark.createDataFrame(rows, ddl).coalesce(1).write.mode("append").parquet(str(place / "in"))
    output = made(spark.readStream.schema(ddl).parquet(str(place / "in"))).writeStream.format("noop")
    query = output.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """After micro-batch 0 and 1."""
    place = tmp_path_factory.mktemp("kinds")
    streams = SparkStreams(
        kinds(), application_id="job", state_dir=str(place / "state"), partitions=2, backend="memory"
    )
    for rows in ([("a", 5, 1), ("b", -7, 12)], [("a", 6, 3), ("d", 5, 20)]):
        run(spark, place, lambda frame: streams.transform({"numbers": frame}), DDL, rows)
    register_state_source(spark)
    return Query(spark, str(place / "checkpoint"), str(place / "state"))


def moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC).astimezone().replace(tzinfo=None)


def test_every_kind_of_store_is_a_dataframe_with_typed_columns(query: Query) -> None:
    counts = query.load("counts")
    assert counts.dtypes == [("key", "string"), ("value", "bigint"), ("timestamp", "timestamp")]
    assert counts.rdd.getNumPartitions() == 2
    assert query.rows("counts") == [("a", 2, moment(3)), ("b", 1, moment(12)), ("d", 1, moment(20))]
    assert query.rows("versions") == [
        ("a", 5, moment(1), moment(3)),
        ("a", 6, moment(3), None),
        ("b", -7, moment(12), None),
        ("d", 5, moment(20), None),
    ]
    assert [row[:2] for row in query.rows("windows")] == [("a", moment(0)), ("b", moment(10)), ("d", moment(20))]
    assert query.rows("sessions")[0] == ("a", moment(1), moment(3), 2)


def test_a_look_is_that_of_the_micro_batch_the_time_and_the_keys_that_are_asked_for(query: Query) -> None:
    assert query.rows("counts", batch=0) == [("a", 1, moment(1)), ("b", 1, moment(12))]
    assert [row[:2] for row in query.rows("versions", as_of=2)] == [("a", 5)]
    assert [row[:2] for row in query.rows("versions", as_of="1970-01-01T00:00:00.012+00:00")] == [("a", 6), ("b", -7)]
    assert [row[0] for row in query.rows("counts", key_from="b")] == ["b", "d"]
    assert [row[0] for row in query.rows("counts", key_to="b", sink="out", application="job")] == ["a"]


@pytest.mark.first
def test_filters_choose_rows_and_those_of_keys_also_what_is_read(query: Query) -> None:
    counts = query.load("counts")
    assert [row.key for row in counts.where("key = 'a'").collect()] == ["a"]
    assert sorted(row.key for row in counts.where("key between 'b' and 'd' and value = 1").collect()) == ["b", "d"]
    assert [row.key for row in counts.where("key in ('d', 'x')").collect()] == ["d"]
    reader: Any = StateSource(query.options("counts")).reader(counts.schema)
    assert list(reader.pushFilters([EqualTo(("key",), "a")])) == [EqualTo(("key",), "a")]
    read = [row["key"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert read == ["a"]


def test_the_change_feed_has_a_row_for_each_row_that_is_not_the_same(query: Query) -> None:
    feed = query.load("counts", changes_from=0)
    content = "struct<value:bigint,timestamp:timestamp>"
    assert feed.dtypes == [("change", "string"), ("key", "string"), ("before", content), ("after", content)]
    assert sorted((row.change, row.key, row.before and tuple(row.before), *row.after) for row in feed.collect()) == [
        ("insert", "d", None, 1, moment(20)),
        ("update", "a", (1, moment(1)), 2, moment(3)),
    ]
    assert [row.change for row in feed.where("key = 'd'").select("change").collect()] == ["insert"]
    assert query.rows("counts", changes_from=1) == []
    assert [tuple(row)[:2] for row in query.load("sessions", changes_from=0, key_to="b").sort("change").collect()] == [
        ("delete", "a"),
        ("insert", "a"),
    ]


def test_the_command_line_prints_the_same_feed(
    query: Query, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["millpond", "state", "diff", query.checkpoint, "counts", "--state-dir", query.state_dir]
    monkeypatch.setattr(sys, "argv", [*command, "--from-batch", "0", "--from", "b", "--json"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["change"], line["key"], line["before"], line["after"]["value"]) == ("insert", "d", None, 1)


@pytest.mark.first
def test_a_verbs_store_has_structs_and_what_was_loaded_stays_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    ddl = "id long, state string, changed timestamp"
    query = Query(spark, str(tmp_path / "checkpoint"), str(tmp_path / "state"))
    register_state_source(spark)

    def latest(frame: DataFrame) -> DataFrame:
        pond = Millpond(application_id="shop", state_dir=query.state_dir, partitions=2, backend="memory")
        return pond.latest(frame, key="id", time="changed", history="1 day")

    run(spark, tmp_path, latest, ddl, [(number, "new", moment(1000)) for number in range(4)])
    before = query.load("latest")
    run(spark, tmp_path, latest, ddl, [(2, "paid", moment(2000))])
    paid = query.load("latest").where("key.id = 2 and valid_to is null").select("key.id", "value.state")
    assert [tuple(row) for row in paid.collect()] == [(2, "paid")]
    assert {row.state for row in before.select("value.state").collect()} == {"new"}


def test_without_the_job_there_is_a_message_about_what_is_wrong(query: Query, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, str], str]] = [
        (query.options("count"), "there is no store 'count', only counts, sessions, versions, windows; did you mean"),
        (query.options("counts", batch=7), "has no micro-batch 7, only 0 to 1"),
        (query.options("counts", as_of=1), "keeps no versions; leave as_of out"),
        (query.options("counts", sink="other"), "there is no store 'counts' of that sink"),
        ({**query.options("counts"), "checkpoint": str(tmp_path)}, "there is no checkpoint at"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            StateSource(options).schema()
    with pytest.raises(AnalysisException, match="there is no store 'count', only counts"):
        query.load("count")


def test_a_schema_and_changes_that_are_yet_to_come_are_refused_with_what_to_ask_for(query: Query) -> None:
    with pytest.raises(ConfigurationError, match=r"end with 1; .* or that: \.option\('changes_from', 1\)"):
        StateSource(query.options("counts", changes_from=2)).schema()
    assert query.rows("counts", changes_from=1) == []
    assert len(query.rows("counts", changes_from=0)) == 2
    given = query.spark.read.format("millpond").schema("key string, value string").options(**query.options("counts"))
    with pytest.raises(
        AnalysisException, match=r"but the store has struct<key:string,value:bigint,timestamp:timestamp>; leave "
    ):
        given.load().collect()
    cast = query.load("counts").selectExpr("key", "cast(value as string)")
    assert sorted(map(tuple, cast.collect())) == [("a", "2"), ("b", "1"), ("d", "1")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"checkpoint": "d", "state_dir": "s"}, "needs the option 'store', the store's name; add .option"),
        ({"state_dir": "s", "store": "counts"}, "needs the option 'checkpoint', the query's checkpointLocation"),
        ({"statedir": "s"}, "has no option 'statedir'; did you mean 'state_dir'"),
        ({"checkpoint": "d", "state_dir": "s", "store": "x", "batch": "last"}, "'batch' is 'last'; give the number of"),
        ({"checkpoint": "d", "state_dir": "s", "store": "x", "changes_from": "-1"}, "'changes_from' is '-1'; give"),
    ],
)
def test_an_option_that_is_missing_unknown_or_no_number_is_refused_by_its_name(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        StateOptions.of(given)

"""A running job grows: partitions, names of stores and aggregations change at a restart, without replay of input."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution, Millpond, SparkStreams
from millpond.cli import main
from millpond.errors import StateConflictError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows, Topology
from millpond.processors.verbs.aggregates import count
from millpond.stores.specs.store_spec import StoreKind
from tests.command_line.documented import KEYS
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark

DDL = "key string, value string, timestamp long"
WORDS = [f"word {number}" for number in range(12)]


def counts(stores: Mapping[str, str]) -> Topology:
    """Return words counted in a window that stays open, in a store for each sink."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    for sink, store in stores.items():
        counted = words.windowed_by(TimeWindows("1 hour", grace="1 hour")).count(Materialized(store))
        counted.to_stream().to(sink, Produced(schema="key string, value long"))
    return builder.build()


only_counts = counts({"counts": "counts"})
MillpondState = Callable[..., str]


@pytest.fixture
def millpond_state(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> MillpondState:
    """Runs ``millpond state`` and gives what it said; an error, if it said nothing else."""

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["millpond", "state", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        said = capsys.readouterr()
        return said.out or said.err

    return run


class Query:
    """A query that is restarted again and again, each time with one more file of words."""

    def __init__(self, spark: SparkSession, directory: Path, run_stream: RunStream) -> None:
        self._spark, self._run_stream = spark, run_stream
        self.directory = directory
        self.checkpoint = str(directory / "checkpoint")

    def add(self, words: list[str]) -> DataFrame:
        """Return the stream of words, with one more file."""
        rows = self._spark.createDataFrame([(word, "", 1) for word in words], DDL)
        rows.coalesce(1).write.mode("append").parquet(f"{self.directory}/in")
        return self._spark.readStream.schema(DDL).parquet(f"{self.directory}/in")

    @property
    def places(self) -> dict[str, Any]:
        return {"state_dir": f"{self.directory}/state", "local_dir": f"{self.directory}/local", "backend": "lmdb"}

    def rows(self, words: list[str], topology: Topology, sink: str = "counts", **options: Any) -> DataFrame:
        """Return what a topology writes to a sink, with one more file of words."""
        streams = SparkStreams(topology, application_id="job", **self.places, **options)
        return streams.transform({"words": self.add(words)}, sink=sink)

    def run(self, rows: DataFrame, **places: str) -> Counter[str]:
        """Return the highest count of each word in the output, when all files are processed."""
        found: Counter[str] = Counter()
        for key, value in self._run_stream(rows.select("key", "value"), **places):
            found[key] = max(found[key], value)
        return found


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path, run_stream: RunStream) -> Iterator[Query]:
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    yield Query(spark, tmp_path, run_stream)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


@pytest.mark.first
@pytest.mark.slow
def test_counts_go_on_in_other_partitions_and_a_job_keeps_its_number_if_nothing_is_said(query: Query) -> None:
    topology, evolution = only_counts, Evolution(query.checkpoint)
    assert query.run(query.rows(WORDS, topology, partitions=2)) == Counter(WORDS)
    with pytest.raises(StateConflictError, match=r"another topology.*:\npartitions: 2 -> 5\n.*evolution=Evolution"):
        query.rows(WORDS[:5], topology, partitions=5)
    assert query.run(query.rows([], topology, partitions=5, evolution=evolution)) == Counter(WORDS + WORDS[:5])
    assert query.run(query.rows(WORDS[:3], topology)) == (expected := Counter(WORDS + WORDS[:5] + WORDS[:3]))
    assert query.run(query.rows(WORDS[:1], topology, partitions=3, evolution=evolution)) == expected + Counter(
        WORDS[:1]
    )
    streams = SparkStreams(topology, application_id="job", **query.places)
    stored = streams.read_store("counts", query.checkpoint).select("key", "value").collect()
    assert dict(map(tuple, stored)) == expected + Counter(WORDS[:1])


@pytest.mark.slow
def test_a_store_is_renamed_and_another_counts_from_now_on_even_if_the_first_micro_batch_fails(
    query: Query, millpond_state: MillpondState
) -> None:
    assert query.run(query.rows(WORDS, only_counts)) == Counter(WORDS)
    topology = counts({"counts": "tallies", "more": "more"})
    with pytest.raises(StateConflictError, match=r"store 'more': none -> .*\nstore 'tallies': none -> "):
        query.rows(WORDS[:2], topology)
    evolution = Evolution({"counts": query.checkpoint, "more": f"{query.directory}/more"}, {"counts": "tallies"})

    def fail(rows: DataFrame, _: int) -> None:
        rows.collect()
        raise OSError("the sink is full")

    rows = query.rows([], topology, evolution=evolution).writeStream.foreachBatch(fail)
    failing = rows.option("checkpointLocation", query.checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        failing.awaitTermination()
    assert query.run(query.rows([], topology, evolution=evolution)) == Counter(WORDS + WORDS[:2])
    beside = query.rows([], topology, "more", evolution=evolution)
    assert query.run(beside, out="out-more", checkpoint="more") == Counter(WORDS + WORDS[:2])

    back = ["evolve", query.checkpoint, "--state-dir", f"{query.directory}/state"]
    back += ["--topology", f"{__name__}:only_counts", "--drop", "more"]
    refused = "--rename is 'tallies', half of a pair; give OLD=NEW, as in --rename counts=totals"
    assert refused in millpond_state(*back, "--rename", "tallies", code=2)
    assert "job, counts: generation 2, " in millpond_state(*back, "--rename", "tallies=counts")
    assert query.run(query.rows(WORDS[:1], only_counts)) == Counter(WORDS + WORDS[:2] + WORDS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("into", [None, pytest.param("elsewhere", marks=pytest.mark.long)])
@pytest.mark.long
def test_a_job_that_nobody_has_stopped_loses_nothing_to_the_one_that_carries_its_state_over(
    query: Query, into: str | None
) -> None:
    new = None if into is None else f"{query.directory}/{into}"
    evolution, places = Evolution(query.checkpoint, into=new), {"checkpoint": into or "checkpoint"}
    assert query.run(query.rows(WORDS, only_counts, partitions=2)) == Counter(WORDS)
    not_stopped = query.rows(WORDS[:4], only_counts)
    carried = query.rows([], only_counts, partitions=3, evolution=evolution)
    assert query.run(not_stopped) == (counted := Counter(WORDS) + Counter(WORDS[:4]))
    query.add(WORDS)
    if new is None:
        with pytest.raises(StreamingQueryException, match="another micro-batch"):
            query.run(carried)
    else:
        with pytest.raises(StateConflictError, match="stands at 1 by now"):
            evolution.location(carried)
    again = query.rows([], only_counts, partitions=3, evolution=evolution)
    evolution.location(again)
    assert query.run(again, **places) == counted + Counter(WORDS)


def priced(prices: Materialized) -> Topology:
    """Return orders with the price of their goods; each micro-batch has its prices and orders in the order of time."""
    builder = StreamsBuilder()
    table = builder.table("prices", Consumed("string", "string"), prices)
    orders = builder.stream("orders", Consumed("string", "string"))
    joined = orders.left_join(table, lambda order, price: f"{order}: {price}")
    joined.to("priced", Produced(schema="key string, value string"))
    return builder.build()


latest_prices = priced(Materialized("prices", StoreKind.TIMESTAMPED_KEY_VALUE))
all_prices = priced(Materialized.versioned("prices", history_retention="1 hour"))


class Shop:
    """Two topics that several jobs read."""

    def __init__(self, query: Query, spark: SparkSession) -> None:
        self._query, self._spark = query, spark

    def add(self, topic: str, rows: list[tuple[str, str, int]]) -> None:
        frame = self._spark.createDataFrame(rows, DDL)
        frame.coalesce(1).write.mode("append").parquet(f"{self._query.directory}/{topic}")

    def rows(self, topology: Topology, application_id: str = "shop", **options: Any) -> DataFrame:
        streams = SparkStreams(topology, application_id=application_id, **self._query.places, **options)
        read = self._spark.readStream.schema(DDL)
        topics = {topic: read.parquet(f"{self._query.directory}/{topic}") for topic in ("prices", "orders")}
        return streams.transform(topics, sink="priced").select("key", "value")


@pytest.mark.long
def test_a_table_becomes_versioned_and_answers_as_of_times_as_if_it_had_always_been_and_is_what_it_was_again(
    query: Query, spark: SparkSession, run_stream: RunStream, millpond_state: MillpondState
) -> None:
    shop = Shop(query, spark)
    shop.add("prices", [("tea", "3.10", 100), ("tea", "3.30", 200), ("milk", "0.90", 150), ("rum", "9.00", 120)])
    shop.add("orders", [("tea", "first", 210)])
    elsewhere = {"out": "out-always", "checkpoint": "always"}
    assert run_stream(shop.rows(latest_prices, partitions=2)) == [("tea", "first: 3.30")]
    assert run_stream(shop.rows(all_prices, "always", partitions=2), **elsewhere) == [("tea", "first: 3.30")]
    with pytest.raises(
        StateConflictError, match=r"with converted=\{'prices': 'versioned'\} for what is of another kind"
    ):
        shop.rows(all_prices)
    command = ["evolve", query.checkpoint, "--state-dir", f"{query.directory}/state"]
    to_all = [*command, "--topology", f"{__name__}:all_prices", "--convert", "prices=versioned", "--dry-run"]
    assert "timestamped-key-value -> versioned, loses nothing" in millpond_state(*to_all)
    previewed = json.loads(millpond_state(*to_all, "--json"))
    assert tuple(previewed) == KEYS["state evolve --dry-run"]
    assert (previewed["refused"], previewed["stores"][0]["kind"]) == (None, "versioned")

    shop.add("prices", [("tea", "3.50", 300), ("milk", "", 310)])
    late = [("tea", "then", 250), ("tea", "now", 305), ("milk", "then", 160), ("rum", "now", 320), ("gin", "now", 330)]
    shop.add("orders", late)
    evolution = Evolution(query.checkpoint, converted={"prices": "versioned"})
    expected = [
        ("gin", "now: None"),
        ("milk", "then: 0.90"),
        ("rum", "now: 9.00"),
        ("tea", "first: 3.30"),
        ("tea", "now: 3.50"),
        ("tea", "then: 3.30"),
    ]
    assert run_stream(shop.rows(all_prices, partitions=3, evolution=evolution)) == expected
    assert run_stream(shop.rows(all_prices, "always"), **elsewhere) == expected

    back = [*command, "--topology", f"{__name__}:latest_prices", "--convert", "prices=timestamped-key-value"]
    would_be = millpond_state(*back, "--dry-run", code=1)
    assert "'prices' loses 2 versions" in would_be
    assert "refused: " in would_be
    assert "refused: " not in millpond_state(*back, "--accept-loss", "--dry-run")
    assert "shop, priced: generation 2, 3 partitions" in millpond_state(*back, "--accept-loss")
    again = json.loads(millpond_state(*back, "--accept-loss", "--json"))
    assert tuple(again) == KEYS["state evolve"]
    assert (again["application"], again["changed"], again["generation"], again["partitions"]) == ("shop", False, 2, 3)
    shop.add("orders", [("tea", "last", 250)])
    assert ("tea", "last: 3.50") in run_stream(shop.rows(latest_prices))


@pytest.mark.slow
def test_the_command_line_gives_a_verb_other_partitions(query: Query, millpond_state: MillpondState) -> None:
    def rows(words: list[str], partitions: int | None) -> DataFrame:
        pond = Millpond(application_id="pond", partitions=partitions, **query.places)
        time = F.timestamp_millis("timestamp")
        return pond.aggregate(query.add(words), {"value": count()}, by="key", time=time, name="counted")

    assert query.run(rows(WORDS, 2)) == Counter(WORDS)
    command = ["repartition", query.checkpoint, "--state-dir", f"{query.directory}/state", "--partitions", "5"]
    for said in ("pond.counted, counted: generation 1, 5 partitions, after micro-batch 0", "nothing to do"):
        assert said in millpond_state(*command)
    again = json.loads(millpond_state(*command, "--json"))
    assert tuple(again) == KEYS["state repartition"]
    assert (again["changed"], again["generation"], again["partitions"]) == (False, 1, 5)
    assert query.run(rows(WORDS[:5], None)) == Counter(WORDS + WORDS[:5])


@pytest.mark.slow
@pytest.mark.long
def test_a_verb_gets_other_partitions_in_the_job_itself(query: Query) -> None:
    def rows(words: list[str], partitions: int | None, evolution: Evolution | None = None) -> DataFrame:
        pond = Millpond(application_id="pond", partitions=partitions, evolution=evolution, **query.places)
        time = F.timestamp_millis("timestamp")
        return pond.aggregate(query.add(words), {"value": count()}, by="key", time=time, name="counted")

    assert query.run(rows(WORDS, 2)) == Counter(WORDS)
    with pytest.raises(StateConflictError, match=r"partitions: 2 -> 3\n.*evolution=Evolution"):
        rows(WORDS[:5], 3)
    evolution = Evolution({"counted": query.checkpoint})
    assert query.run(rows([], 3, evolution)) == Counter(WORDS + WORDS[:5])
    assert query.run(rows(WORDS[:2], 3, evolution)) == Counter(WORDS + WORDS[:5] + WORDS[:2])

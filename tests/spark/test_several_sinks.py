"""One query writes several sinks from one state, runs its tasks once in a micro-batch, and repeats no row in files."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.spark import Evolution, FileOutput, FormatOutput, MergeOutput, SparkStreams, TableOutput
from millpond.errors import ConfigurationError, MillpondError, StateConflictError, TopologyError
from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology, TopologyDriver
from millpond.processors.runtime.metrics import TaskMetric
from tests.spark.apart import kill_group, started
from tests.spark.orders import expected_totals, in_process, random_events, rated_orders, read_files, totals, write_files

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("killable_sinks.py")
RATED = "key string, item string, amount long, rate double, timestamp long"
TOTALS = "key string, orders long, amount long, timestamp timestamp"
AVAILABLE = {"availableNow": True}


def written(spark: SparkSession, path: Path, schema: str) -> list[tuple[Any, ...]]:
    """Return the rows that anybody finds in a directory of files, apart from the number of their micro-batch."""
    columns = [column.split()[0] for column in schema.split(", ")]
    return sorted(map(tuple, spark.read.schema(schema).parquet(str(path)).select(columns).collect()), key=repr)


def expected_rated(events: list[Any]) -> list[tuple[Any, ...]]:
    rows = ((key, v["item"], v["amount"], v["rate"], at) for key, v, at in in_process("rated", events))
    return sorted(rows, key=repr)


@pytest.fixture
def streams(tmp_path: Path) -> SparkStreams:
    return SparkStreams(rated_orders(), application_id="both", state_dir=str(tmp_path / "state"), backend="lmdb")


def test_sinks_of_two_operators_get_what_each_gets_alone(
    spark: SparkSession, tmp_path: Path, streams: SparkStreams
) -> None:
    events = random_events(1, 600)
    write_files(tmp_path / "in", events, 2)
    inputs, checkpoint = read_files(spark, tmp_path / "in"), str(tmp_path / "checkpoint")
    summed: list[tuple[Any, ...]] = []

    def start(evolution: Evolution) -> StreamingQuery:
        places: dict[str, Any] = {"application_id": "both", "state_dir": str(tmp_path / "state"), "backend": "lmdb"}
        return SparkStreams(rated_orders(), evolution=evolution, **places).start(
            inputs,
            sinks={
                "totals": lambda rows, _: summed.extend(map(tuple, rows.collect())),
                "rated": FileOutput(str(tmp_path / "rated"), partition_by=["item"]),
            },
            checkpoint_location=checkpoint,
            trigger=AVAILABLE,
            query_name="both-sinks",
        )

    with pytest.raises(ConfigurationError, match=r"'totals~rated' are several sinks, .* call start, with an output "):
        streams.transform(inputs, sink="totals~rated")
    with pytest.raises(ConfigurationError, match="goes on at its own checkpoint, so leave into out"):
        start(Evolution(checkpoint, into=f"{tmp_path}/new"))
    query = start(Evolution(checkpoint))
    query.awaitTermination()
    assert query.name == "both-sinks"
    assert totals(summed) == expected_totals(events)
    assert written(spark, tmp_path / "rated", RATED) == expected_rated(events)
    assert {path.name for path in (tmp_path / "rated").glob("batch_id=*")} == {"batch_id=0", "batch_id=1"}

    rates = streams.read_store("rates", checkpoint, sink="totals~rated", schema="key string, rate double")
    assert rates.count() == sum(topic == "rates" for topic, _ in events)
    inspector = StateInspector.at(checkpoint, str(tmp_path / "state"))
    assert [(view.sink, view.name) for view in inspector.stores()] == [
        ("rated~totals", "rates"),
        ("rated~totals", "sums"),
    ]
    assert sum(rows.num_rows for rows in inspector.store("sums", sink="rated~totals").rows()) == 3


def shouted(runs: Path) -> Topology:
    """Return words as they are, twice, on the map side; the number of each, and of each letter; and notes of others.

    Each time that a word passes the second operator, ``runs`` gets a byte.
    """

    def noted(word: str, count: int) -> tuple[str, int]:
        with runs.open("ab", buffering=0) as file:
            file.write(b".")
        return word[0], count

    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).map_values(str.lower)
    words.map_values(str.upper).to("loud", Produced(schema="value string, sequence bigint"))
    counts = words.select_key(lambda _, word: word, key_serde="string").group_by_key().count(Materialized("counts"))
    counts.to_stream().to("counts", Produced(schema="key string, value long"))
    by_letter = counts.to_stream().map(noted, key_serde="string", value_serde="int64")
    by_letter.group_by_key(Grouped("string", "int64")).count(Materialized("letters")).to(
        "letters", Produced(schema="key string, value long")
    )
    notes = builder.stream("notes", Consumed("string", "string"))
    notes.filter(lambda _, note: note != "").to("notes out", Produced(schema="value string"))
    return builder.build()


WORDS = ["Ale", "ant", "Bee", "ale", "cow", "bee", "ALE"]


def word_inputs(spark: SparkSession, directory: Path) -> dict[str, DataFrame]:
    """Return streams of words and notes; each of them is one file."""
    ddl = "key string, value string, timestamp long"
    for topic, texts in {"words": WORDS, "notes": ["one", "", "two"]}.items():
        rows = [(None, text, at) for at, text in enumerate(texts)]
        spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(directory / topic))
    return {topic: spark.readStream.schema(ddl).parquet(str(directory / topic)) for topic in ("words", "notes")}


@pytest.mark.first
def test_rows_of_the_map_side_and_of_all_operators_come_out_of_one_run(spark: SparkSession, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    topology = shouted(runs)
    inputs = word_inputs(spark, tmp_path)
    found: dict[str, list[tuple[Any, ...]]] = {}

    def collecting(sink: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: found.update({sink: list(map(tuple, rows.collect()))})

    streams = SparkStreams(topology, application_id="words", state_dir=str(tmp_path / "state"), backend="memory")
    query = streams.start(
        inputs,
        sinks={sink: collecting(sink) for sink in topology.sinks},
        checkpoint_location=str(tmp_path / "checkpoint"),
        trigger=AVAILABLE,
    )
    query.awaitTermination()
    assert runs.stat().st_size == len(WORDS)
    (progress,) = query.recentProgress
    (read,) = progress["observedMetrics"]["millpond.words:metrics"]["tasks"]
    assert read[TaskMetric.RECORDS_IN] == len(WORDS)
    with TopologyDriver(topology) as driver:
        driver.pipe_all("words", [(None, word, at) for at, word in enumerate(WORDS)])
        assert sorted(found["counts"]) == sorted((key, value) for key, value, _ in driver.read("counts"))
        assert sorted(found["letters"]) == sorted((key, value) for key, value, _ in driver.read("letters"))
    assert found["loud"] == [(word.upper(), number) for number, word in enumerate(WORDS)]
    assert found["notes out"] == [("one",), ("two",)]


@pytest.mark.slow
def test_a_micro_batch_that_fails_between_two_sinks_is_in_files_once(
    spark: SparkSession, tmp_path: Path, streams: SparkStreams
) -> None:
    events = random_events(2, 300)
    write_files(tmp_path / "in", events, 2)

    def run(sums: Any) -> None:
        sinks = {"rated": FileOutput(str(tmp_path / "rated"), "json"), "totals": sums}
        streams.start(
            read_files(spark, tmp_path / "in"),
            sinks=sinks,
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger=AVAILABLE,
        ).awaitTermination()

    def fail(rows: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("no more sums")

    with pytest.raises(StreamingQueryException, match="no more sums"):
        run(fail)
    assert (tmp_path / "rated" / "batch_id=1" / "_SUCCESS").exists()
    repeated: list[int] = []
    run(lambda _, number: repeated.append(number))
    assert repeated == [1]
    rows = spark.read.schema(RATED).json(str(tmp_path / "rated")).drop("batch_id").collect()
    assert sorted(map(tuple, rows), key=repr) == expected_rated(events)

    def refused(message: str, checkpoint: str, sinks: Mapping[str, Any]) -> None:
        with pytest.raises(StateConflictError, match=message):
            streams.start(
                read_files(spark, tmp_path / "in"), sinks=sinks, checkpoint_location=str(tmp_path / checkpoint)
            )

    files = FileOutput(str(tmp_path / "rated"))
    refused(r"writes the sinks \['rated', 'totals'\], not of one", "checkpoint", {"rated": None, "totals": fail})
    refused("rated has micro-batches of another query", "other", {"rated": files, "totals": fail})
    refused("rated has micro-batches of another query or sink", "checkpoint", {"rated": fail, "totals": files})
    (tmp_path / "plain" / "metadata").parent.mkdir()
    (tmp_path / "plain" / "metadata").touch()
    refused("is that of a query that was not started with sinks=", "plain", {"rated": files, "totals": fail})


def nothing(rows: DataFrame, number: int) -> None:
    """Write nothing."""


REFUSED: Mapping[str, tuple[type[MillpondError], Mapping[str, Any]]] = {
    r"has the sinks \['rated', 'totals'\], not \['total'\]": (TopologyError, {"rated": nothing, "total": nothing}),
    r"nothing says where the sinks \['totals'\] go": (TopologyError, {"rated": nothing}),
    r"none of the sinks \['rated', 'totals'\] is to be written": (TopologyError, {"rated": None, "totals": None}),
    "sink 'rated' goes to 5; give a FileOutput": (ConfigurationError, {"rated": 5, "totals": None}),
    "not 'parket'; did you mean 'parquet'": (ConfigurationError, {"rated": FileOutput("x", "parket"), "totals": None}),
    "cannot be partitioned by 'itm'; did you mean 'item'": (
        ConfigurationError,
        {"rated": FileOutput("x", partition_by=["itm"]), "totals": None},
    ),
    "the sinks 'rated' and 'totals' both have the path": (
        ConfigurationError,
        {"rated": FileOutput("/tmp/x/"), "totals": FileOutput("file:/tmp/x")},
    ),
    "writes the format 'memory' only as a query's own sink": (
        ConfigurationError,
        {"rated": FormatOutput("memory"), "totals": None},
    ),
    "the table has no name": (ConfigurationError, {"rated": TableOutput(""), "totals": None}),
    r"'rated': the session has no Delta Lake; start it with spark\.jars\.packages=io\.delta:delta-spark_\d": (
        ConfigurationError,
        {"rated": FormatOutput("delta", {"path": "x"}), "totals": None},
    ),
    "'rated': the session has no Delta": (ConfigurationError, {"rated": TableOutput("x", "DELTA"), "totals": None}),
    r"'rated' is no change feed, .* op string, sequence bigint'\)": (
        ConfigurationError,
        {"rated": MergeOutput("x", ["key"]), "totals": None},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_sinks_that_cannot_be_written_are_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path, streams: SparkStreams, message: str
) -> None:
    error, sinks = REFUSED[message]
    (tmp_path / "in").mkdir()
    write_files(tmp_path / "in", random_events(3, 10), 1)
    with pytest.raises(error, match=message):
        streams.start(read_files(spark, tmp_path / "in"), sinks=sinks, checkpoint_location=str(tmp_path / "checkpoint"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_static_dataframes_and_dataframes_of_several_sinks_are_refused(
    spark: SparkSession, tmp_path: Path, streams: SparkStreams
) -> None:
    write_files(tmp_path / "in", random_events(3, 10), 1)
    inputs = {topic: spark.read.parquet(str(tmp_path / "in" / topic)) for topic in ("orders", "rates")}
    with pytest.raises(ConfigurationError, match="call start"):
        streams.transform(inputs, sink="rated~totals")
    with pytest.raises(ConfigurationError, match="a query runs on streaming ones"):
        streams.start(
            inputs, sinks={"rated": nothing, "totals": nothing}, checkpoint_location=str(tmp_path / "checkpoint")
        )


@pytest.mark.long
def test_a_query_that_is_killed_between_two_sinks_leaves_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(4, 600)
    write_files(tmp_path / "in", events, 3)
    arguments = (tmp_path / "log", str(JOB), str(tmp_path))
    for number in (0, 2):
        # The job stops after the files of the first sink, and waits for its death.
        (tmp_path / f"stop-{number}").touch()
        with started(*arguments) as job:
            for _ in until(tmp_path / f"stopped-{number}"):
                assert job.poll() is None, (tmp_path / "log").read_text()[-5000:]
            assert (tmp_path / "rated" / f"batch_id={number}" / "_SUCCESS").exists()
            assert not (tmp_path / "totals" / f"batch_id={number}").exists()
            kill_group(job)
    with started(*arguments) as job:
        assert job.wait(timeout=240) == 0, (tmp_path / "log").read_text()[-5000:]
    assert written(spark, tmp_path / "rated", RATED) == expected_rated(events)
    rows = spark.read.schema(TOTALS).parquet(str(tmp_path / "totals")).drop("batch_id").collect()
    assert totals(map(tuple, rows)) == expected_totals(events)


def until(path: Path, seconds: int = 240) -> Iterator[None]:
    """Yield, and wait, until there is a file."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        yield
        time.sleep(0.05)

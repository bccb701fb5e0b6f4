"""New stores begin with the rows of a DataFrame, or of another job's store of any kind."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Evolution, SparkStreams
from millpond.adapters.spark.evolution.seeds import seeds_of
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import (
    Consumed,
    Materialized,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.processors.distribution.plan import make_plan
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark

DDL = "key string, value string, timestamp long"
FIRST = [("a", "x", 5), ("b", "y", 7), ("a", None, 12), ("a", "z", 21), ("c", "x", 33)]
THEN = [("a", "u", 40), ("b", None, 41), ("d", "v", 42)]


def kinds() -> Topology:
    """Return stores of all kinds behind one sink."""
    builder = StreamsBuilder()
    latest = builder.table("rows", Consumed("string", "msgpack"), Materialized("latest"))
    versions = builder.table(
        "versions", Consumed("string", "json"), Materialized.versioned("history", history_retention=3_600_000)
    )
    words = builder.stream("words", Consumed("string", "string"))
    grouped = words.filter(lambda _, word: word is not None).group_by_key()
    joined = words.join(versions, lambda word, version: f"{word} {version}")
    windows = grouped.windowed_by(TimeWindows(10, grace=20)).count(Materialized("windows"))
    sessions = grouped.windowed_by(SessionWindows(10, grace=20)).count(Materialized("sessions"))
    outputs = [
        joined.map_values(lambda value: f"joined {value}"),
        words.join(latest, lambda word, row: f"{word} {row}").map_values(lambda value: f"latest {value}"),
        grouped.count(Materialized("counts")).to_stream().map_values(lambda value: f"count {value}"),
        windows.to_stream().map(lambda key, value: (key.key, f"window {key.start} {value}")),
        sessions.to_stream().map(lambda key, value: (key.key, f"session {key.start} {key.end} {value}")),
    ]
    for stream in outputs[1:]:
        outputs[0] = outputs[0].merge(stream)
    outputs[0].to("out", Produced("string", "string"))
    return builder.build()


def counts(*stores: str) -> Topology:
    """Return words counted in each of the stores."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    counted = [words.count(Materialized(store)).to_stream() for store in stores]
    told = [
        one.map_values(lambda value, name=name: f"{name} {value}") for name, one in zip(stores, counted, strict=True)
    ]
    for one in told[1:]:
        told[0] = told[0].merge(one)
    told[0].to("out", Produced("string", "string"))
    return builder.build()


STORES = ("latest", "history", "counts", "windows", "sessions")


class Jobs:
    """Jobs of one topology, each with a checkpoint of its own, that read the same files."""

    def __init__(self, spark: SparkSession, directory: Path, run_stream: RunStream) -> None:
        self._spark, self._directory, self._run_stream = spark, directory, run_stream

    def frame(self, rows: list[tuple[Any, ...]], ddl: str = DDL) -> DataFrame:
        return self._spark.createDataFrame(rows, ddl)

    def streams(self, name: str, topology: Topology, **options: Any) -> SparkStreams:
        places: dict[str, Any] = {
            "state_dir": f"{self._directory}/state",
            "local_dir": f"{self._directory}/local-{name}",
        }
        return SparkStreams(topology, application_id=name, backend="lmdb", partitions=2, **places, **options)

    def checkpoint(self, name: str) -> str:
        return f"{self._directory}/checkpoint-{name}"

    def run(
        self, name: str, rows: list[tuple[Any, ...]], topology: Topology | None = None, **options: Any
    ) -> set[tuple[Any, ...]]:
        """Return what comes out for more rows, which all inputs get."""
        streams, inputs = self.streams(name, topology or kinds(), **options), f"{self._directory}/in-{name}"
        self.frame(rows).coalesce(1).write.mode("append").parquet(inputs)
        stream = self._spark.readStream.schema(DDL).parquet(inputs)
        out = streams.transform(dict.fromkeys((topology or kinds()).sources, stream)).select("key", "value")
        found = self._run_stream(out, out=f"out-{name}", checkpoint=f"checkpoint-{name}")
        return {tuple(row) for row in found}

    def words(self) -> dict[str, DataFrame]:
        """Return a stream of words that nobody reads."""
        self.frame([]).write.parquet(f"{self._directory}/words")
        return {"words": self._spark.readStream.schema(DDL).parquet(f"{self._directory}/words")}

    def store(self, name: str, store: str, **options: Any) -> DataFrame:
        return self.streams(name, kinds()).read_store(store, self.checkpoint(name), **options)


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path, run_stream: RunStream) -> Jobs:
    return Jobs(spark, tmp_path, run_stream)


@pytest.mark.slow
@pytest.mark.long
def test_a_job_that_begins_with_the_stores_of_another_goes_on_as_that_one_does(jobs: Jobs) -> None:
    first = jobs.run("old", FIRST)
    seeds = {name: jobs.store("old", name, for_seeds=True).cache() for name in STORES}
    assert len([row for row in seeds["history"].collect() if row.value is None]) == 1
    went_on = jobs.run("old", THEN) - first
    seeded = jobs.run("new", THEN, seeds=seeds)
    assert {("a", "count 3"), ("b", "window 40 1")} & went_on == {("a", "count 3")}
    assert seeded - first == went_on
    for name in ("history", "windows"):
        assert _rows(jobs.store("new", name)) == _rows(jobs.store("old", name))


def _rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def test_a_new_store_of_a_running_job_is_seeded_and_a_late_seed_is_refused(jobs: Jobs) -> None:
    jobs.run("job", FIRST, counts("counts"))
    seed, both = jobs.frame([("a", 100, 1), ("e", 7, 1)], LONGS), counts("counts", "more")
    evolution = Evolution(jobs.checkpoint("job"))
    with pytest.raises(StateConflictError, match=r"'counts'\] have begun without seeds"):
        jobs.run("job", [], both, evolution=evolution, seeds={"counts": seed})
    words = jobs.words()
    for wrong, said in (
        (
            seed.drop("timestamp"),
            "only key, value; a store of kind timestamped-key-value takes key, value, timestamp, as",
        ),
        (words["words"], "seed of store 'more': the DataFrame is streaming; give a static one"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            jobs.streams("job", both, evolution=evolution, seeds={"more": wrong}).transform(words)
    out = jobs.run("job", THEN, both, evolution=evolution, seeds={"more": seed})
    assert {("a", "more 101"), ("d", "more 1"), ("a", "counts 3")} <= out
    out = jobs.run("job", [("e", "q", 50)], both, evolution=evolution, seeds={"more": seed})
    assert ("e", "more 8") in out


LONGS = "key string, value long, timestamp long"


@pytest.mark.parametrize(
    ("store", "ddl", "message"),
    [
        ("none", LONGS, r"seeds name the stores \['none'\], but the topology has .*'counts'"),
        ("counts", "key string, value long", "seed of store 'counts': the DataFrame has no column 'timestamp'"),
        ("windows", LONGS, "no column 'window_start', 'window_end', only key, value, timestamp"),
        (
            "counts",
            "key string, value string, timestamp long",
            "^seed of store 'counts': column 'value' is of type str",
        ),
        ("counts", "key string, value long, timestamp string", "^seed of store 'counts': the timestamp column"),
    ],
)
def test_columns_that_do_not_fit_a_store_are_refused(jobs: Jobs, store: str, ddl: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        seeds_of(make_plan(kinds(), None, 2), {store: jobs.frame([], ddl)})


def test_rows_that_cannot_be_seeds_are_refused_and_the_job_has_not_begun(jobs: Jobs) -> None:
    def start(*rows: tuple[Any, ...]) -> None:
        jobs.streams("job", counts("counts"), seeds={"counts": jobs.frame([*rows], LONGS)}).transform(streaming)

    streaming = jobs.words()
    with pytest.raises(Exception, match=r"seed of store 'counts': .* is there twice"):
        start(("a", 1, 1), ("a", 2, 2))
    start(("a", 1, 1))
    static = {"words": jobs.frame(FIRST[:1])}
    with pytest.raises(ConfigurationError, match="static ones start from empty state; leave seeds out"):
        jobs.streams("job", counts("counts"), seeds={"counts": jobs.frame([], LONGS)}).transform(static)
    (row,) = jobs.streams("job", counts("counts")).transform(static).collect()
    assert (row.key, row.value) == ("a", "counts 1")


def test_a_query_takes_the_seeds_of_its_own_stores_and_leaves_others_to_other_sinks(jobs: Jobs) -> None:
    builder = StreamsBuilder()
    for sink in ("one", "other"):
        words = builder.stream(f"words of {sink}", Consumed("string", "string")).group_by_key()
        words.count(Materialized(sink)).to_stream().to(sink)
    frames = {"one": jobs.frame([("a", 1, 1)], LONGS)}
    seeds = seeds_of(make_plan(builder.build(), "one", 2), frames)
    assert seeds is not None
    assert seeds.stores == {"one"}
    assert seeds_of(make_plan(builder.build(), "other", 2), frames) is None

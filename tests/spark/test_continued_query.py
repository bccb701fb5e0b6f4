"""A query on Spark that goes on at another checkpoint, with one more operator, a new source, and without an old one."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from millpond.adapters.spark import Checkpoint, Evolution, SparkStreams
from millpond.adapters.spark.continuation.continuation import Continuation
from millpond.adapters.spark.continuation.continuing import EmptyRun, continue_checkpoint, source_occurrences
from millpond.adapters.spark.continuation.files import HadoopFiles
from millpond.adapters.spark.session.session import PARTITIONS_CONF
from millpond.errors import ConfigurationError, DurabilityError, StateConflictError
from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology, TopologyDriver

pytestmark = pytest.mark.spark

DDL = "key string, value long, timestamp long"
OUTPUT = "key string, value long"
OLD, NEW = "old 50%20#1", "a new checkpoint"
"""Checkpoints whose paths URIs write in another way."""
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
Row = tuple[str, int, int]


def counts_by_key() -> Topology:
    builder = StreamsBuilder()
    numbers, others = (builder.stream(topic, Consumed("string", "int64")) for topic in ("numbers", "others"))
    numbers.merge(others).group_by_key().count(Materialized("counts")).to_stream().to("out", Produced(schema=OUTPUT))
    return builder.build()


def counts_of_counts() -> Topology:
    """Return a topology with one operator more, a source more, which comes first, and one less."""
    builder = StreamsBuilder()
    letters, numbers = (builder.stream(topic, Consumed("string", "int64")) for topic in ("letters", "numbers"))
    counts = letters.merge(numbers).group_by_key().count(Materialized("counts"))
    by_parity = counts.to_stream().select_key(lambda _, count: f"parity {count % 2}", key_serde="string")
    parities = by_parity.group_by_key(Grouped("string", "int64")).count(Materialized("parities"))
    parities.to_stream().to("out", Produced(schema=OUTPUT))
    return builder.build()


@dataclass(frozen=True)
class FailingFiles(HadoopFiles):
    """Dies as soon as it is to write, copy or rename something of that name."""

    fatal: str = ""

    def write(self, path: str, text: str) -> None:
        self._check(path)
        super().write(path, text)

    def copy(self, source: str, target: str) -> None:
        self._check(target)
        super().copy(source, target)

    def rename(self, source: str, target: str) -> None:
        self._check(target)
        super().rename(source, target)

    def _check(self, path: str) -> None:
        if path.endswith(self.fatal):
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Place:
    spark: SparkSession
    directory: Path

    def add(self, topic: str, rows: Sequence[Row]) -> None:
        self.spark.createDataFrame(rows, DDL).coalesce(1).write.mode("append").parquet(f"{self.directory}/{topic}")

    def frame(self, topology: Topology, evolution: Evolution | None = None) -> DataFrame:
        streams = SparkStreams(
            topology,
            application_id="job",
            state_dir=f"{self.directory}/state",
            local_dir=f"{self.directory}/local",
            partitions=2,
            backend="lmdb",
            evolution=evolution,
        )
        stream = self.spark.readStream.schema(DDL)
        return streams.transform({topic: stream.parquet(f"{self.directory}/{topic}") for topic in topology.sources})

    def run(self, rows: DataFrame, checkpoint: str) -> dict[str, int]:
        """Run all micro-batches that there are to run; return the greatest number of each key of the output."""
        output = rows.writeStream.format("parquet").option("checkpointLocation", f"{self.directory}/{checkpoint}")
        output.trigger(availableNow=True).start(f"{self.directory}/out").awaitTermination()
        written = self.spark.read.schema(OUTPUT).parquet(f"{self.directory}/out")
        return {
            row.key: row.value for row in written.groupBy("key").agg({"value": "max"}).toDF("key", "value").collect()
        }

    def content(self, checkpoint: str) -> dict[str, bytes]:
        place = self.directory / checkpoint
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def rows_of(prefix: str, first: int, count: int) -> list[Row]:
    return [(f"{prefix} {number % 3}", number, number) for number in range(first, first + count)]


def counted(topology: Topology, records: Sequence[tuple[str, Row]]) -> Counter[str]:
    """Return the greatest number of each key that the topology writes for the records."""
    found: Counter[str] = Counter()
    with TopologyDriver(topology) as driver:
        for topic, (key, value, timestamp) in records:
            driver.pipe(topic, key, value, timestamp)
        for key, number, _ in driver.read("out"):
            found[key] = max(found[key], number)
    return found


@pytest.fixture
def shuffle_partitions(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    before = str(spark.conf.get(PARTITIONS_CONF))
    yield lambda number: spark.conf.set(PARTITIONS_CONF, str(number))
    spark.conf.set(PARTITIONS_CONF, before)


@pytest.mark.long
def test_a_query_goes_on_exactly_once_with_other_operators_and_sources(
    spark: SparkSession, tmp_path: Path, shuffle_partitions: Callable[[int], None]
) -> None:
    place = Place(spark, tmp_path)
    old, new = str(tmp_path / "old"), f"{tmp_path}/{NEW}"
    numbers = [("numbers", row) for row in rows_of("n", 0, 8)]
    others = [("others", row) for row in rows_of("o", 0, 5)]
    place.add("numbers", rows_of("n", 0, 4))
    place.add("others", rows_of("o", 0, 5))
    place.run(place.frame(counts_by_key()), "old")
    place.add("numbers", rows_of("n", 4, 4))
    seen = place.run(place.frame(counts_by_key()), "old")
    assert seen == counted(counts_by_key(), numbers + others)
    untouched = place.content("old")

    place.add("numbers", rows_of("n", 8, 7))
    place.add("letters", rows_of("l", 0, 6))
    later = [("numbers", row) for row in rows_of("n", 8, 7)] + [("letters", row) for row in rows_of("l", 0, 6)]
    shuffle_partitions(3)
    evolution = Evolution(old, into=new)
    with pytest.raises(ConfigurationError, match="has no checkpoint; give what the streaming query is to write"):
        evolution.location(spark.range(1))
    frame = place.frame(counts_of_counts(), evolution)
    assert source_occurrences(frame) == [0, 1]
    with pytest.raises(StateConflictError, match=r"the state of \['job'\] .*dropped=\['job'\]\) \[") as refused:
        continue_checkpoint(frame, old, new, carried={})
    assert f"with evolution=Evolution({old!r}, into={new!r})" in str(refused.value)
    with pytest.raises(ConfigurationError, match="declare it by number"):  # as below: nothing is missed of what is gone
        Evolution(old, into=new, dropped=["job"]).location(frame)
    with pytest.raises(ConfigurationError, match=r"(?s)declare it by number.*0: FileStreamSource.*letters"):
        evolution.location(frame)
    for fatal in ("/state/1/0/2.zip", "/commits/1", f"/{NEW}"):
        failing = FailingFiles(spark, fatal)
        with pytest.raises(KeyboardInterrupt):
            Continuation.between(failing, old, new).make([0, 1], 3, EmptyRun(frame), {0: None, 1: 0})
        assert not Continuation.between(failing, old, new).is_made()
    frame = place.frame(counts_of_counts(), evolution)  # whoever is killed builds the query again
    assert evolution.location(frame, sources={0: None, 1: 0}) == new
    assert place.content("old") == untouched
    assert Checkpoint(spark, new).newest() == (1, [])
    assert len(list(Path(new, "state", "1").glob("[0-9]"))) == 3

    unseen = counted(counts_of_counts(), numbers)  # the new aggregation sees only what comes after
    frame = place.frame(counts_of_counts(), evolution)
    made = place.content(NEW)
    assert evolution.location(frame) == new
    assert place.content(NEW) == made
    assert place.run(frame, NEW) == seen | (counted(counts_of_counts(), numbers + later) - unseen)
    place.add("letters", rows_of("l", 6, 2))
    place.add("numbers", rows_of("n", 15, 1))
    later += [("letters", row) for row in rows_of("l", 6, 2)] + [("numbers", row) for row in rows_of("n", 15, 1)]
    frame = place.frame(counts_of_counts(), evolution)
    assert place.run(frame, NEW) == seen | (counted(counts_of_counts(), numbers + later) - unseen)
    assert Checkpoint(spark, new).batches() == [1, 2, 3]
    assert {int(path.name) for path in (tmp_path / "out" / "_spark_metadata").glob("[0-9]")} == {0, 1, 2, 3}


def test_a_file_that_is_missing_is_an_error_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DurabilityError, match=f"cannot read {tmp_path}/nothing: java.io.FileNotFoundException"):
        HadoopFiles(spark).read(f"{tmp_path}/nothing")


def test_what_cannot_be_written_is_once_that_has_been_seen_to(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)

    def written_once_there_is(place: Path, write: Callable[[], None]) -> None:
        place.touch()
        with pytest.raises(
            DurabilityError, match=r"cannot (rename|write) .*; see (that both may|to the free).* run it"
        ):
            write()
        place.unlink()
        place.mkdir()
        write()

    files.write(f"{tmp_path}/draft/metadata", "1")
    written_once_there_is(tmp_path / "one", lambda: files.rename(f"{tmp_path}/draft", f"{tmp_path}/one/new"))
    written_once_there_is(tmp_path / "other", lambda: files.write(f"{tmp_path}/other/more", "2"))
    assert (files.read(f"{tmp_path}/one/new/metadata"), files.read(f"{tmp_path}/other/more")) == ("1", "2")


def test_a_query_stays_where_it_is_unless_it_is_to_go_on_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    rows, old, new = spark.range(1), f"{tmp_path}/{OLD}", f"{tmp_path}/{NEW}"
    assert Evolution(old).location(rows) == old
    assert Evolution({"out": old}).location(rows, name="out") == old
    assert Evolution({"out": old}).standpoint(spark, "more") is None
    assert Evolution({"out": old}, into={"more": new}).standpoint(spark, "out") == (old, None, False)
    assert Evolution(old, into=new).standpoint(spark, "out") == (old, new, False)
    with pytest.raises(ConfigurationError, match=r"no checkpoint of 'more', only of \['out'\]; give location"):
        Evolution({"out": old}).location(rows, name="more")
    assert [Evolution({"out": old, "more": new}).location(rows, name=name) for name in ("out", "more")] == [old, new]
    with pytest.raises(ConfigurationError, match="a static DataFrame has no checkpoint"):
        Evolution(old, into=new).location(rows)
    with pytest.raises(ConfigurationError, match=f"there is no checkpoint at file:{old}; .*leave into=... out"):
        Evolution(old, into=new).location(spark.readStream.format("rate").load())
    assert not any(tmp_path.iterdir())
    place = Place(spark, tmp_path)
    place.add("rows", rows_of("r", 0, 4))
    distinct = spark.readStream.schema(DDL).parquet(f"{tmp_path}/rows").dropDuplicates(["key"]).drop("timestamp")
    assert len(place.run(distinct, Path(Evolution(old).location(distinct)).name)) == 3
    with pytest.raises(
        StateConflictError, match=r"\(0 \(dedupe\)\), .* keep the query there, without into=.*, or start"
    ):
        Evolution(old, into=new).location(distinct)
    place.add("rows", rows_of("s", 0, 1))
    assert len(place.run(distinct, Path(Evolution(old).location(distinct)).name)) == 4


@pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="sources have names since PySpark 4.2")
def test_a_query_whose_sources_have_names_stays_where_it_is(spark: SparkSession, tmp_path: Path) -> None:
    place, old = Place(spark, tmp_path), str(tmp_path / "old")
    place.add("rows", rows_of("r", 0, 2))
    spark.conf.set(NAMED_SOURCES, "true")
    try:
        named = spark.readStream.schema(DDL).name("rows").parquet(f"{tmp_path}/rows").drop("timestamp")
        assert len(place.run(named, "old")) == 2
        with pytest.raises(ConfigurationError, match=r"/offsets/0 is of a query whose sources have .* without into"):
            Evolution(old, into=f"{tmp_path}/new").location(named)
        place.add("rows", rows_of("s", 0, 1))
        assert len(place.run(named, Path(Evolution(old).location(named)).name)) == 3
    finally:
        spark.conf.unset(NAMED_SOURCES)

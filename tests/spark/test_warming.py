"""Roll over: copies are warmed beside a query that goes on, and a restart on them restores nothing."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark import Checkpoint, Millpond, SparkStreams, Warmth
from millpond.adapters.spark.copies.upkeep import QueryState
from millpond.adapters.spark.copies.warm_query import Outcome, TaskCopies, WarmQuery
from millpond.adapters.spark.copies.warming import Warming, tasks_in_threads
from millpond.cli import main
from millpond.errors import ConfigurationError, MissingFileError
from millpond.processors import Topology
from millpond.processors.distribution.plan import make_plan
from millpond.processors.verbs.aggregates import count
from millpond.releases import RELEASE
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage
from millpond.stores.specs.store_spec import StoreKind
from tests.command_line.documented import KEYS as DOCUMENTED
from tests.spark.test_upgrades import counts

pytestmark = pytest.mark.spark

DDL = "key string, value string, timestamp long"
KEYS = 6

PLAIN = counts(StoreKind.KEY_VALUE)
TIMESTAMPED = counts(StoreKind.TIMESTAMPED_KEY_VALUE)


class Query:
    """A query that counts words, one file of them a micro-batch."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.checkpoint = str(directory / "checkpoint")
        self.batches = 0

    def arrive(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.batches += 1
            rows = [(f"word {key}", "", self.batches) for key in range(KEYS)]
            self.spark.createDataFrame(rows, DDL).coalesce(1).write.mode("append").parquet(f"{self.directory}/in")

    @property
    def words(self) -> DataFrame:
        reader = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{self.directory}/in")

    def streams(self, topology: Topology, local: str, **options: Any) -> SparkStreams:
        given: dict[str, Any] = {"state_dir": f"{self.directory}/state", "backend": "lmdb", "partitions": 2}
        return SparkStreams(topology, application_id="roll", local_dir=f"{self.directory}/{local}", **(given | options))

    @contextmanager
    def running(self, rows: DataFrame) -> Iterator[StreamingQuery]:
        writer = rows.writeStream.format("parquet").option("checkpointLocation", self.checkpoint)
        query = writer.start(f"{self.directory}/out")
        try:
            query.processAllAvailable()
            yield query
        finally:
            query.stop()

    def written(self, like: DataFrame) -> list[Any]:
        rows = self.spark.read.schema(like.schema).parquet(f"{self.directory}/out").collect()
        return sorted(tuple(row) for row in rows)

    def directories(self, local: str) -> dict[str, Path]:
        """Return those of all stores, by task and name."""
        found = (self.directory / local).glob("*/*/*/lmdb/*")
        return {f"{path.parts[-3]} {path.name}": path for path in found if path.is_dir()}


@contextmanager
def never_thrown_away(directories: dict[str, Path]) -> Iterator[None]:
    """A restore deletes the directory that is there; an open handle tells that it is still the same one."""
    handles = {name: os.open(path, os.O_RDONLY) for name, path in directories.items()}
    yield
    for name, handle in handles.items():
        assert os.path.samestat(os.fstat(handle), directories[name].stat())
        os.close(handle)


@pytest.mark.slow
@pytest.mark.long
def test_a_query_rolls_over_to_copies_that_were_warmed_while_it_ran(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(spark, tmp_path)
    query.arrive(2)
    warmed = query.streams(TIMESTAMPED, "warm")
    running = query.streams(TIMESTAMPED, "local", upgrade_from=RELEASE, upgrade_mode="roll_over")
    with query.running(query.streams(PLAIN, "local").transform({"words": query.words})):
        first = warmed.warm(query.checkpoint)
        assert (first.batch, first.behind, first.tasks) == (1, 0, 2)
        assert {(copy.task, copy.restored) for copy in first.copies} == {("0_0", True), ("0_1", True)}
    query.arrive()
    with query.running(running.transform({"words": query.words})) as old:
        second = warmed.warm(query.checkpoint)
        assert second.batch == 2
        assert not any(copy.restored for copy in second.copies)
        query.arrive()
        old.processAllAvailable()
        named = ["--topology", f"{__name__}:TIMESTAMPED"]
        told = warmed_by_command(tmp_path, monkeypatch, capsys, *named)
        assert (told["batch"], told["behind"], told["tasks"]) == (3, 0, 2)
        check_following(query, old)
    assert set(query.directories("local")) == {"0_0 counts", "0_1 counts"}
    query.arrive()
    rows = query.streams(TIMESTAMPED, "warm").transform({"words": query.words})
    assert set(query.directories("warm")) == {"0_0 counts-v2", "0_1 counts-v2"}
    with never_thrown_away(query.directories("warm")), query.running(rows):
        assert query.written(rows) == sorted((f"word {key}", number + 1) for key in range(KEYS) for number in range(6))


def warmed_by_command(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *options: str,
    local: str = "warm",
) -> dict[str, Any]:
    """Return what ``millpond state warm`` says once the copies of a query there stand at the last micro-batch."""
    places = [f"{directory}/checkpoint", "--state-dir", f"{directory}/state", "--local-dir", f"{directory}/{local}"]
    given = ["--backend", "lmdb", "--once", "--json", *options]
    niceness: list[int] = []
    monkeypatch.setattr(os, "nice", niceness.append)  # it would be that of all tests from here on
    monkeypatch.setattr(sys, "argv", ["millpond", "state", "warm", *places, *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert niceness == [10]
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert tuple(told) == DOCUMENTED["state warm --standby" if "--standby" in options else "state warm"]
    return told


def check_following(query: Query, old: StreamingQuery) -> None:
    """Check that garbage is no error unless the query needs it; an interrupt lets a pass end, and is the last."""
    plan = make_plan(TIMESTAMPED, None, 1)
    roll = WarmQuery.of_plan(
        plan, "roll", Storage.from_uri(query.directory / "state"), f"{query.directory}/warm", supplier("lmdb")
    )
    in_threads = tasks_in_threads(2)
    passes: list[str] = []

    def run(tasks: Sequence[TaskCopies]) -> Iterable[Outcome]:
        passes.append("")
        if len(passes) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        if len(passes) > 1:
            return in_threads(tasks)
        query.arrive()
        old.processAllAvailable()
        return [Outcome((), "gone") for _ in tasks]

    warming = Warming(Checkpoint(query.spark, query.checkpoint), [roll], run)
    told = list(warming.follow(0))
    assert [(one.batch, one.behind, one.tasks) for one in told] == [(4, 0, 2), (4, 0, 2)]
    assert len(list(told[0].lines())) == 3, "both tasks have caught up"
    assert list(told[1].lines()) == ["ready: all 2 tasks stand at micro-batch 4, 0 behind"]
    with pytest.raises(MissingFileError, match="gone"):
        replace(warming, run=lambda tasks: [Outcome((), "gone") for _ in tasks]).advance()


@pytest.mark.slow
def test_the_verbs_of_a_query_roll_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pond(local: str, **options: Any) -> tuple[Millpond, DataFrame]:
        made = Millpond(
            application_id="roll",
            state_dir=f"{tmp_path}/state",
            local_dir=f"{tmp_path}/{local}",
            partitions=1,
            backend="lmdb",
            **options,
        )
        words = query.words.selectExpr("key", "value", "timestamp_millis(timestamp) as at")
        latest = made.latest(words, key="key", time="at", history="1 day", name="words")
        return made, made.aggregate(
            latest.drop("op"), {"changes": count()}, by="key", time="at", name="changes of words"
        )

    query = Query(spark, tmp_path)
    query.arrive()
    with query.running(pond("local")[1]):
        warm = pond("warm", checksums=True)[0].warm(query.checkpoint)
        assert (warm.batch, warm.behind, warm.tasks) == (0, 0, 2)
        told = warmed_by_command(tmp_path, monkeypatch, capsys, "--checksums")
        assert (told["batch"], told["behind"], told["tasks"]) == (0, 0, 2)
        assert {copy["application"] for copy in told["copies"]} == {"roll.words", "roll.changes of words"}
        assert not any(copy["restored"] for copy in told["copies"]), "the command and the call warm the same copies"
    shutil.rmtree(tmp_path / "warm")
    told = warmed_by_command(tmp_path, monkeypatch, capsys, "--checksums")
    assert all(copy["restored"] for copy in told["copies"])
    query.arrive()
    directories = query.directories("warm")
    assert directories
    with never_thrown_away(directories), query.running(pond("warm", checksums=True)[1]):
        rows = spark.read.parquet(f"{tmp_path}/out").select("key", "changes").collect()
        assert sorted(map(tuple, rows)) == [(f"word {key}", number) for key in range(KEYS) for number in (1, 2)]


def test_what_cannot_be_warmed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    query.arrive()
    streams = query.streams(PLAIN, "local")
    with pytest.raises(ConfigurationError, match="there is no checkpoint at"):
        streams.warm(query.checkpoint)
    with query.running(streams.transform({"words": query.words})):
        pass
    given: dict[str, Any] = {
        "application_id": "roll",
        "state_dir": f"{tmp_path}/state",
        "local_dir": f"{tmp_path}/warm",
        "backend": "lmdb",
    }
    for options, message in (
        ({"local_dir": None}, "there is no local_dir to warm copies in: .*; give one, and restart the query with it"),
        ({"backend": "memory"}, "no store of the query has a backend that keeps local copies on disk"),
        ({"application_id": "another"}, "is not that of a query of this topology"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            SparkStreams(TIMESTAMPED, **(given | options)).warm(query.checkpoint)
    assert not (tmp_path / "warm").exists()
    assert SparkStreams(TIMESTAMPED, **given).warm(query.checkpoint).tasks == 2
    query.arrive()
    rows = query.streams(TIMESTAMPED, "warm").transform({"words": query.words})
    with never_thrown_away(query.directories("warm")), query.running(rows):
        assert query.written(rows) == sorted((f"word {key}", number) for key in range(KEYS) for number in (1, 2))
    state = Storage.from_uri(tmp_path / "state")
    for record in state.list("roll/evolution/counts"):
        state.delete(record.path)
    unknown = QueryState(Checkpoint(spark, query.checkpoint), state, tmp_path / "warm")
    with pytest.raises(ConfigurationError, match="nothing tells what the state of application 'roll' looks like"):
        unknown.warming(None, None, supplier("lmdb"), checksums=False)


def test_how_far_the_copies_are_is_told_in_a_line() -> None:
    assert str(Warmth(12, 1, ())) == "ready: all 0 tasks stand at micro-batch 12, 1 behind"

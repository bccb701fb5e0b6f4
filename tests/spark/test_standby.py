"""Standby: a query whose tasks move to another machine opens warm copies there, and restores nothing."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark.copies.copy_formats import CopyFormats
from millpond.adapters.spark.copies.standby import Round, Share, Standby
from millpond.adapters.spark.monitoring.measured import measured_in
from millpond.cli import main
from millpond.errors import ConfigurationError
from millpond.metrics import StoreMetric
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage
from tests.spark import test_warming
from tests.spark.test_warming import KEYS, TIMESTAMPED, Query, warmed_by_command


def standby_of(query: Query, local: str, *, backend: str = "lmdb") -> Standby:
    storage, formats = Storage.from_uri(query.directory / "state"), CopyFormats(None, None, supplier(backend), False)
    place = f"{query.directory}/{local}"
    return Standby(
        SparkCheckpoint.at(query.checkpoint, 2),
        lambda found: formats.queries(query.checkpoint, storage, place, found),
        workers=2,
    )


def restored(query: StreamingQuery) -> tuple[int, int]:
    """Return how many copies all micro-batches of a query have filled anew, and how many rows they read for copies."""
    measured = [one for progress in query.recentProgress for one in measured_in(progress.observedMetrics)]
    full, rows = (
        sum(one.figure(metric) or 0 for one in measured)
        for metric in (StoreMetric.RESTORE_FULL, StoreMetric.RESTORE_ROWS)
    )
    return int(full), int(rows)


@pytest.mark.slow
@pytest.mark.spark
def test_a_micro_batch_after_the_loss_of_a_machine_restores_only_what_no_standby_has_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(spark, tmp_path)
    query.arrive(2)
    with query.running(query.streams(TIMESTAMPED, "one").transform({"words": query.words})) as first:
        standby = standby_of(query, "two")
        done = standby.advance()
        assert (done.batch, done.behind, done.tasks, done.in_use, done.faults) == (1, 0, 2, 0, ())
        assert {(copy.task, copy.restored) for copy in done.copies} == {("0_0", True), ("0_1", True)}
        assert standby_of(query, "one").advance().in_use == 2, "the workers of that machine live"
        for batch in (2, 3):
            query.arrive()
            first.processAllAvailable()
            done = next(standby.follow(0))
            assert (done.batch, done.behind, done.tasks) == (batch, 0, 2)
            assert not any(copy.restored for copy in done.copies)
            assert sum(copy.rows for copy in done.copies) == KEYS
        assert done.lag_s > 0
        query.arrive()
        first.processAllAvailable()
        assert restored(first) == (0, 0)
    query.arrive()
    with query.running(query.streams(TIMESTAMPED, "two").transform({"words": query.words})) as taken_over:
        assert restored(taken_over) == (0, KEYS), "the micro-batch that the copies had missed"
    options = ["--standby", "--share", "1/2", "--topology", f"{test_warming.__name__}:TIMESTAMPED"]
    told = warmed_by_command(tmp_path, monkeypatch, capsys, *options, local="three")
    assert (told["batch"], told["behind"], told["tasks"], told["in_use"], told["faults"]) == (5, 0, 1, 0, [])
    query.arrive()
    rows = query.streams(TIMESTAMPED, "three").transform({"words": query.words})
    with query.running(rows) as half_warm:
        assert restored(half_warm)[0] == 1, "the task of the other share, which no standby has kept"
        assert query.written(rows) == sorted((f"word {key}", number + 1) for key in range(KEYS) for number in range(7))
    assert not list(tmp_path.glob("*/.standby*"))
    check_refusals(query, monkeypatch, tmp_path)


def check_refusals(query: Query, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Check that nonsense ends a standby, and that what the storage cannot give now is tried again."""
    standby = standby_of(query, "five")
    with pytest.raises(ConfigurationError, match="give 0 to 15 micro-batches"):
        replace(standby, lag=16)
    with pytest.raises(ConfigurationError, match="has no state of the job whose copies are to be kept"):
        replace(standby, queries=lambda _: []).advance()
    memory = standby_of(query, "five", backend="memory")
    with pytest.raises(ConfigurationError, match="no store of the query has a backend that keeps local copies on disk"):
        memory.advance()
    (snapshot, *_) = directory.rglob("*.snapshot.parquet")
    away = snapshot.rename(f"{snapshot}.away")
    done = next(standby.follow(0))
    assert len(done.faults) == 1
    assert "task 0_" in done.faults[0]
    assert list(done.lines())[-2:] == [f"failed: {done.faults[0]}", str(done)]
    away.rename(snapshot)
    assert next(standby.follow(0)).tasks == 2
    assert len(list(directory.glob("five/counts@*/roll/*/lmdb/counts-v2"))) == 2


def test_shares_part_all_tasks_and_what_is_none_is_refused() -> None:
    tasks = [Manifest.empty("app", f"{part}_{number}", "") for part in range(3) for number in range(8)]
    shares = [Share.parsed(f"{number}/3") for number in (1, 2, 3)]
    assert [[share.has(task) for share in shares].count(True) for task in tasks] == [1] * 24
    assert {sum(map(share.has, tasks)) for share in shares} == {8}
    for text in ("", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b"):
        with pytest.raises(ConfigurationError, match=r"give I/N with I from 1 to N"):
            Share.parsed(text)


def test_shares_and_lags_without_a_standby_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["millpond", "state", "warm", "checkpoint", "--state-dir", "state", "--local-dir", "local"]
    monkeypatch.setattr(sys, "argv", [*command, "--share", "1/2"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    assert "--share and --lag are for --standby" in capsys.readouterr().err


def test_how_far_the_standby_copies_are_is_told_in_a_line() -> None:
    assert str(Round(12, 1, 5.25, 3, 1, (), ("task 0_4 of app: gone",))) == (
        "standby: 3 tasks warm, 1 in use here, 1 failed; at micro-batch 12, at most 1 behind, and 5.2 s since the last "
        "round"
    )

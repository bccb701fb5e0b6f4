"""``millpond doctor`` names each bad state by its figures, and none in a query that is well."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.adapters.monitor.diagnosis import thresholds
from millpond.adapters.monitor.diagnosis.figures import Figures, OpenBatch, StandbyCopy
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.diagnosis.rules import RULES, diagnose
from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from millpond.adapters.monitor.kept.micro_batch import Limit, MicroBatch
from millpond.adapters.monitor.kept.runs import Runs
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.cli import app
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import filled
from tests.monitor.planted import (
    BEGIN,
    DISK,
    HOUR,
    MINUTE,
    QUERY,
    SECOND,
    TASKS,
    Story,
    healthy,
    micro_batch,
    with_counts,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"


def begun(batches: int = 30) -> Story:
    """Return a query that is well so far."""
    story = Story()
    for _ in range(batches):
        story.tell(8_000)
    return story


def skewed(one: MicroBatch) -> MicroBatch:
    """Return a micro-batch in which 99 % of the records have one key, whose task takes ten times as long."""
    reports = []
    for report in one.reports:
        each = list(report.each)
        if each:
            hot = each[2]
            figures = {**hot.figures, "records.in": 7_920, "task.duration": 800_000}
            each[2] = replace(hot, figures=figures, keys={'{"customer":7}': 7_900})
        reports.append(replace(report, each=tuple(each)))
    return replace(one, reports=tuple(reports))


def figures_of(one: MicroBatch, **figures: int) -> MicroBatch:
    """Return a micro-batch whose operator has measured this."""
    told = {name.replace("_", "."): amount for name, amount in figures.items()}
    reports = tuple(replace(one, figures={**one.figures, **told}) if one.each else one for one in one.reports)
    return replace(one, reports=reports)


def skewed_key() -> Story:
    story = begun()
    story.changed(skewed)
    return story


def growing_lag() -> Story:
    story = begun()
    for step in range(60):
        story.tell(8_000, lag=5 * SECOND + step * 15 * SECOND, took=20 * SECOND)
    return story


def growing_records() -> Story:
    story = begun()
    for step in range(60):
        story.tell(8_000, lag=5 * SECOND, took=20 * SECOND)
        (source,) = story.batches[-1].sources
        behind = replace(story.batches[-1], sources=(replace(source, behind=1_000 * (step + 1)),))
        story.history = story.history.with_batch(replace(behind, durations={}))
    return story


def died() -> Story:
    story = begun()
    story.die("org.apache.spark.SparkException: Job aborted.\nCaused by: java.net.ConnectException: refused")
    story.at += 11 * MINUTE
    return story


def died_at_once() -> Story:
    story = Story(at=BEGIN)
    story.open_batch = OpenBatch(0, BEGIN)
    story.die("pyspark.errors.exceptions.base.PySparkRuntimeError: there is no table")
    story.at += 11 * MINUTE
    return story


def killed() -> Story:
    story = begun()
    story.open_batch = OpenBatch(30, story.at, 1, TASKS, story.at + SECOND)
    story.at += 11 * MINUTE
    return story


def growing_state() -> Story:
    story = Story()
    for hour in range(72):
        story.tell(8_000, every=HOUR, state=1_000_000 * (hour + 10))
    story.at -= HOUR - SECOND
    return story


def full_disk() -> Story:
    story = begun()
    story.changed(lambda one: replace(one, limits=(Limit("disk", "operator.0 0_1", DISK * 97 // 100, DISK),)))
    return story


def filling_disk() -> Story:
    story = Story()
    for minute in range(120):
        story.tell(8_000, every=MINUTE, used=0.5 + minute / 300)
    return story


def slow_storage() -> Story:
    story = begun()
    story.changed(lambda one: figures_of(one, file_duration=TASKS * 3_000_000, task_duration=TASKS * 4_000_000))
    return story


def slow_checkpoint() -> Story:
    story = begun()
    story.changed(lambda one: replace(one, durations={"triggerExecution": 6_000, "walCommit": 3_000}))
    return story


def late_data() -> Story:
    story = begun()
    story.changed(lambda one: figures_of(with_counts(one, "late", 900), lateness_largest=7_200_000_000))
    return story


def poison() -> Story:
    story = begun()
    story.changed(lambda one: with_counts(one, "dropped", 3, "dropped-bad-value"))
    return story


def fatal_poison() -> Story:
    story = begun()
    story.die(
        "[PYTHON_EXCEPTION] An exception was thrown: millpond.errors.UserFunctionError: operator 'MAP' of task 0_1: "
        "ZeroDivisionError: division by zero SQLSTATE: 38000"
    )
    return story


def out_of_memory() -> Story:
    story = begun()
    story.die(
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 9 failed 4 times, most "
        "recent failure: ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Container "
        "from a bad node. Exit code 137"
    )
    return story


def heap() -> Story:
    story = begun()
    story.die("org.apache.spark.SparkException: Job aborted.\nCaused by: java.lang.OutOfMemoryError: Java heap space")
    return story


def stuck_sink() -> Story:
    story = begun()
    done = story.at + SECOND
    story.at += 11 * MINUTE
    story.open_batch = OpenBatch(30, done - SECOND, TASKS, TASKS, done)
    story.runs = story.runs.seen("r0", BEGIN, story.at - 30 * SECOND)
    return story


def clock_back() -> Story:
    story = begun()
    story.at -= HOUR
    story.tell(8_000)
    story.at += HOUR
    story.tell(8_000)
    return story


def future() -> Story:
    story = begun()
    story.changed(lambda one: figures_of(one, stream_lag=-86_400_000_000))
    return story


def listing_ends_early() -> Story:
    story = begun()
    for batch in (27, 28, 29):
        del story.committed[batch]
    story.at += 2 * MINUTE
    return story


def listing_has_a_gap() -> Story:
    story = begun()
    del story.committed[20]
    return story


def corrupt_copy() -> Story:
    story = begun()
    story.die("Traceback\nmillpond.errors.CorruptStoreError: the local copy of store 'counts' of task 0_1 is damaged")
    return story


def forgotten_standby() -> Story:
    story = Story()
    story.tell(8_000)
    story.standby = [StandbyCopy("app 0_0", story.at), StandbyCopy("app 0_1", story.at)]
    for _ in range(500):
        story.tell(8_000)
    story.standby[1] = StandbyCopy("app 0_1", story.at - SECOND)
    return story


def moving_hot_key() -> Story:
    """Return a story whose keys are hours: all records of a micro-batch have the same."""
    story = begun()

    def hot(one: MicroBatch) -> MicroBatch:
        reports = []
        for report in skewed(one).reports:
            each = [replace(told, keys={str(one.batch): 7_900} if told.task == "0_2" else {}) for told in report.each]
            reports.append(replace(report, each=tuple(each)))
        return replace(one, reports=tuple(reports))

    story.changed(hot)
    return story


STORIES: list[tuple[State, Callable[[], Story], str]] = [
    (
        State.SKEW,
        skewed_key,
        r'key \{"customer":7\} has 99% of the 8,000 records of operator\.0 .* 0_2 took 800 ms',
    ),
    (
        State.SKEW,
        moving_hot_key,
        r"key 34 has 99% of the 8,000 records .* and one key half or more in each of the last 5",
    ),
    (State.LAG, growing_lag, r"lag went from .* min .* to 14 min 50 s in 10 min .* took 100% of the time"),
    (State.LAG, growing_records, r"the records that a source is behind went from .* to 60,000"),
    (State.DIED, died, r"ended 11 min 0 s ago by ConnectException: refused"),
    (State.DIED, died_at_once, r"ended 11 min 0 s ago by PySparkRuntimeError: there is no table"),
    (State.DIED, killed, r"nobody has heard of the query for 11 min 9 s, in micro-batch 30, which is not committed"),
    (State.STATE, growing_state, r"from 10\.0 MB to 81\.0 MB in 2 d 23 h .* doubles in 3 d .* fills the disk in"),
    (State.DISK, full_disk, r"97% of the disk of task operator\.0 0_1, 97\.0 GB of 100\.0 GB, is used"),
    (State.DISK, filling_disk, r"90% of the disk .* it is full in \d+ min"),
    (State.STORAGE, slow_storage, r"durable file took 3\.0 s on average .* 75% of the tasks' time"),
    (State.STORAGE, slow_checkpoint, r"Spark's two files of the last micro-batch took 3\.0 s of its 6\.0 s"),
    (
        State.LATE,
        late_data,
        r"4,500 of 160,000 records of operator\.0 were late .* 2\.8%; .* came 2 h 0 min too",
    ),
    (State.POISON, poison, r"15 rows could not be used .*; 15 of operator\.0 by dropped-bad-value"),
    (
        State.POISON,
        fatal_poison,
        r"by UserFunctionError: operator 'MAP' of .*: division by zero$",
    ),
    (State.OUT_OF_MEMORY, out_of_memory, r"by SparkException: .* Exit code 137"),
    (State.OUT_OF_MEMORY, heap, r"by OutOfMemoryError: Java heap space"),
    (State.STUCK_SINK, stuck_sink, r"all 4 tasks of micro-batch 30 were done 10 min 59 s ago, .* took 1\.0 s"),
    (State.CLOCK, clock_back, r"micro-batch 30 was begun 59 min 50 s before micro-batch 29"),
    (State.CLOCK, future, r"stream time was 1 d 0 h ahead of the clock"),
    (State.LISTING, listing_ends_early, r"micro-batch 29 ended 2 min 9 s ago, .* ends with 26"),
    (State.LISTING, listing_has_a_gap, r"has micro-batches 0 to 29, and its listing lacks 20$"),
    (
        State.CORRUPT_COPY,
        corrupt_copy,
        r"by CorruptStoreError: the local copy of store 'counts' .* is damaged",
    ),
    (State.STANDBY, forgotten_standby, r"1 of 2 copies .* that of task app 0_0 for 1 h 23 min, in which at least 100"),
]


@pytest.mark.parametrize(("state", "story", "words"), STORIES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_state_is_named_alone_by_its_figures(state: State, story: Callable[[], Story], words: str) -> None:
    (found,) = diagnose(story().figures())
    assert found.state is state
    assert re.search(words, found.figures), found.figures
    assert found.since is not None
    assert found.advice


def test_every_state_has_a_story_a_rule_and_a_section_of_the_page() -> None:
    page = (DOCS / "doctor.md").read_text()
    assert {state for state, *_ in STORIES} == {*State} == {*RULES}
    assert [line[3:] for line in page.splitlines() if line.startswith("## ") and line[3:] in {*State}] == [*State]
    assert all(Finding(state, "", None, "").page == f"docs/doctor.md#{state}" for state in State)


def test_the_page_tells_every_threshold() -> None:
    page = (DOCS / "doctor.md").read_text()
    names = [name for name in vars(thresholds) if name.isupper() and name not in ("SECOND", "MINUTE", "HOUR")]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_wrong_with_a_query_that_is_well(seed: int) -> None:
    story = healthy(seed)
    for kept in (10, 60, 200):
        story.kept = kept
        assert diagnose(story.figures()) == []


@pytest.mark.parametrize("seed", range(50, 60))
def test_nothing_is_wrong_at_any_moment_of_it(seed: int) -> None:
    """Also in the middle of an outage, of a burst, or of the catching up."""
    moments: list[Figures] = []
    whole = healthy(seed)
    story = Story()
    for one in whole.batches[:300]:
        story.at, story.run = one.started, int(one.run[1:])
        story.run_started = min(other.started for other in whole.batches if other.run == one.run)
        story.add(one, max(one.took, SECOND))
        if one.batch % 9 == 0:
            moments.append(story.figures())
    assert [found for figures in moments for found in diagnose(figures)] == []


def test_figures_below_the_thresholds_are_not_named() -> None:
    story = begun()
    story.changed(skewed, thresholds.IN_A_ROW - 1)
    assert diagnose(story.figures()) == []
    story = begun()
    story.changed(lambda one: with_counts(one, "dropped", 1, "dropped-bad-value"))
    assert diagnose(story.figures()) == []
    alone = begun()
    alone.changed(skewed)
    one_task = [replace(one, reports=tuple(replace(each, tasks=1) for each in one.reports)) for one in alone.batches]
    assert diagnose(replace(alone.figures(), batches=one_task)) == [], "a query of one task has all keys in it"


def test_a_sink_that_writes_what_an_outage_has_left_is_not_stuck_and_a_clock_that_went_back_once_is_forgotten() -> None:
    story = begun()
    done = story.at + 20 * MINUTE
    story.open_batch, story.at = OpenBatch(30, story.at, TASKS, TASKS, done), done + 15 * MINUTE
    story.runs = story.runs.seen("r0", BEGIN, story.at)
    assert diagnose(story.figures()) == []
    story.at += 6 * MINUTE
    story.runs = story.runs.seen("r0", BEGIN, story.at)
    assert [found.state for found in diagnose(story.figures())] == [State.STUCK_SINK]
    back = clock_back()
    for _ in range(thresholds.DATA_BATCHES):
        back.tell(8_000)
    assert diagnose(back.figures()) == []


@pytest.mark.parametrize(
    "failure", ["KeyError: 'room'", "java.lang.IllegalStateException: no BloomFilter", "ValueError: zoom"]
)
def test_words_with_other_words_in_them_tell_of_no_memory(failure: str) -> None:
    story = begun()
    story.die(failure)
    assert [found.state for found in diagnose(story.figures())] == [State.DIED]
    story.die("io.fabric8.PodException: the pod was OOMKilled")
    assert [found.state for found in diagnose(story.figures())] == [State.OUT_OF_MEMORY]


def test_a_query_is_not_taken_for_dead_where_nobody_tells_of_its_runs() -> None:
    story = begun()
    story.at += 24 * HOUR
    assert [found.state for found in diagnose(story.figures())] == [State.DIED]
    earlier = [replace(one, run="of an earlier release") for one in story.batches]
    assert diagnose(replace(story.figures(), batches=earlier)) == []
    assert diagnose(replace(story.figures(), runs=Runs(QUERY))) == []
    on = {**story.committed, 30: story.at - SECOND}
    assert diagnose(replace(story.figures(), committed=on)) == [], "it commits, and only nobody tells any more"


def test_old_micro_batches_that_spark_deletes_in_any_order_are_not_missed() -> None:
    story = begun()
    for batch in (1, 3, 5, 6, 8):
        del story.committed[batch]
    assert diagnose(story.figures()) == []


def planted(query: Query, directory: Path, story: Story) -> None:
    """Keep what a story tells, as a listener does."""
    writer = ProgressWriter.at(str(directory))
    for one in story.batches:
        writer.keep(one)
    writer.keep_runs(story.runs)
    writer.end(QUERY)


def shown(query: Query, *arguments: object) -> Any:
    return CliRunner().invoke(app, ["doctor", str(query.checkpoint), *map(str, arguments)])


def test_the_command_says_what_is_wrong_and_ends_with_1(tmp_path: Path) -> None:
    query, story = filled(tmp_path), Story()
    story.add(micro_batch(0, BEGIN, 8_000), SECOND)
    story.die("java.net.ConnectException: refused")
    planted(query, tmp_path / "progress", story)
    result = shown(query, "--progress", tmp_path / "progress")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("query-died, since ")
    assert "by ConnectException: refused" in result.stdout
    assert "(docs/doctor.md#query-died)" in result.stdout
    found = json.loads(shown(query, "--progress", tmp_path / "progress", "--json").stdout)
    (one,) = found["findings"]
    assert (one["state"], one["since"], one["page"]) == ("query-died", story.at, "docs/doctor.md#query-died")
    seen = QueryMonitor(str(query.checkpoint), None, str(tmp_path / "progress")).look()
    assert (seen.run, seen.restarts) == (story.runs.last[-1], 0)
    assert seen.commit_age is not None
    assert "query-died" in CliRunner().invoke(
        app, ["top", str(query.checkpoint), "--progress", str(tmp_path / "progress")]
    ).stdout.replace("\n", "")


def test_the_command_ends_with_0_where_nothing_is_wrong(tmp_path: Path) -> None:
    query, story = filled(tmp_path), Story()
    story.add(micro_batch(0, BEGIN, 8_000), SECOND)
    story.runs = story.runs.ended("r0", BEGIN, story.at, None)
    planted(query, tmp_path / "progress", story)
    result = shown(query, "--progress", tmp_path / "progress")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "nothing is known to be wrong with it")


def test_a_standby_that_nobody_keeps_is_seen_by_its_seals(tmp_path: Path) -> None:
    query = filled(tmp_path)
    copy = tmp_path / "warm" / "app" / "0_1" / "lmdb"
    copy.mkdir(parents=True)
    seal = copy / ".counts-v1.seal"
    seal.write_text("")
    os.utime(seal, (1_000_000, 1_000_000))
    assert (
        f"{tmp_path}/none has no local copies"
        in QueryMonitor(str(query.checkpoint), standby=tmp_path / "none").look().notes
    )
    watched = QueryMonitor(str(query.checkpoint), standby=tmp_path / "warm")
    assert watched.look().findings == (), "the query has committed too little for a copy to be far behind"
    for batch in range(3, 20):
        query._write(f"commits/{batch}", "v1\n{}")
        query._write(f"offsets/{batch}", "v1\n{}\n{}")
    (found,) = watched.look().findings
    assert (found.state, found.since) == (State.STANDBY, 1_000_000_000)
    assert "task app 0_1" in found.figures


def test_a_micro_batch_whose_tasks_are_done_is_told_by_the_checkpoint(tmp_path: Path) -> None:
    query = filled(tmp_path)
    query._write("offsets/3", "v1\n{}\n{}")
    (found,) = [QueryMonitor(str(query.checkpoint))._open(_checkpoint(query), 3, 7, [])]
    assert (found.number, found.since, found.done) == (3, 7, 0)
    for partition in range(found.partitions):
        (query.checkpoint / "state" / "0" / str(partition) / "4.changelog").write_bytes(b"")
    (found,) = [QueryMonitor(str(query.checkpoint))._open(_checkpoint(query), 3, 7, [])]
    assert found.done == found.partitions > 0
    assert found.done_at is not None


def _checkpoint(query: Query) -> Any:
    from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint

    return SparkCheckpoint.at(str(query.checkpoint), 2)

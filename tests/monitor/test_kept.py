"""The kept figures of a query: micro-batches of each release, its runs, its history of a bounded size."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest

from millpond.adapters.monitor.kept.history import LEVELS, History, Point, point_of
from millpond.adapters.monitor.kept.kept_progress import ProgressReader, ProgressWriter
from millpond.adapters.monitor.kept.micro_batch import Limit, MicroBatch, Report, SourceRead
from millpond.adapters.monitor.kept.runs import LAST, Run, Runs, cause
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.errors import FormatError, UserFunctionError
from tests.inspect.test_state_inspector import filled
from tests.monitor.planted import BEGIN, HOUR, QUERY, SECOND, Story, healthy, micro_batch

FIRST = (
    '{"progress":1,"query":"3f","run":"r","name":"counts","batch":7,"started":1000000,'
    '"durations":{"addBatch":300,"triggerExecution":500},"sources":[{"name":"Kafka[clicks]","rows":10,"behind":40}],'
    '"reports":[{"application":"app","operator":"operator.0","tasks":2,"figures":{"records.in":10,"plain:file.size":7},'
    '"dropped":{"join:dropped-late":1},"late":{"join:dropped-late":1},"waiting":{"join:waiting":5}}]}'
)
"""As the releases before version 2 have written it."""


def test_what_earlier_releases_have_kept_is_read() -> None:
    late = {"join:dropped-late": 1}
    report = Report("app", "operator.0", 2, {"records.in": 10, "plain:file.size": 7}, late, late, {"join:waiting": 5})
    durations = {"addBatch": 300, "triggerExecution": 500}
    sources = (SourceRead("Kafka[clicks]", 10, 40),)
    assert MicroBatch.from_json(FIRST) == MicroBatch("3f", "r", "counts", 7, 1_000_000, durations, sources, (report,))


def test_a_micro_batch_is_read_as_it_was_written() -> None:
    one = micro_batch(3, BEGIN, 8_000)
    assert MicroBatch.from_json(one.to_json()) == one
    assert (one.limits, one.reports[1].each[2].task) == ((Limit("disk", "operator.0 0_1", 40 * 10**9, 10**11),), "0_2")
    for damaged in ('"each":[7', '"late":-1', '"keys":[]', '"used":"x"'):
        name = damaged.partition(":")[0]
        text = re.sub(rf"{name}:(\[\{{|\d+|\{{[^}}]*\}})", damaged, one.to_json(), count=1)
        with pytest.raises(FormatError, match="damaged"):
            MicroBatch.from_json(text)


def test_a_run_is_told_of_from_its_start_to_its_end() -> None:
    runs = Runs(QUERY).named("counts").seen("a", 10, 12).seen("a", 10, 15).seen("a", 10, 14)
    assert (runs.last, runs.restarts, runs.name) == ((Run("a", 10, 15),), 0, "counts")
    runs = runs.ended("a", 10, 20, None).ended("b", 30, 40, "java.lang.OutOfMemoryError: heap")
    assert runs.last == (Run("a", 10, 20, 20), Run("b", 30, 40, 40, "OutOfMemoryError", "heap"))
    assert runs.restarts == 1
    for number in range(50):
        runs = runs.seen(f"run {number}", number, number)
    assert (len(runs.last), runs.restarts) == (LAST, 51)
    assert Runs.from_json(runs.to_json()) == runs


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        ("", "Exception", ""),
        ("[STREAM_FAILED] no", "Exception", "[STREAM_FAILED] no"),
        ("a.b.SparkException: x\nCaused by: java.net.ConnectException: no\n\tat x.y(z)", "ConnectException", "no"),
        (
            'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "w.py", line 1\n'
            "millpond.errors.StateConflictError: state 'a'\n  of another job\n\n\tat org.apache",
            "StateConflictError",
            "state 'a' of another job",
        ),
        ("x.SparkException: x\nCaused by: java.lang.NullPointerException\n\tat x.y(z)", "NullPointerException", ""),
        (
            'x.PythonException: Traceback:\n  File "w.py", line 1, in grow\n    bytes(size)\nMemoryError\n\n\tat x',
            "MemoryError",
            "",
        ),
        (
            "x.PythonException: [PYTHON_EXCEPTION] It was: millpond.errors.RecordError: bad SQLSTATE: 1a",
            "RecordError",
            "bad",
        ),
    ],
)
def test_the_cause_of_a_failure_is_the_last_error_that_it_tells_of(failure: str, error: str, message: str) -> None:
    assert cause(failure) == (error, message)


def test_a_run_that_ended_by_an_error_of_ours_has_its_code_however_long_the_message_is() -> None:
    for said in ("bad", "very " * 1_000 + "bad"):
        told = (
            f"x.PythonException: Traceback:\nmillpond.errors.UserFunctionError: {UserFunctionError(said)}\n\tat x.y(z)"
        )
        (run,) = Runs("q").ended("a", 1, 2, told).last
        assert (run.error, run.code) == ("UserFunctionError", "MILLPOND-USER-FUNCTION")
        assert len(run.message or "") <= 1_000
        assert Runs.from_json(Runs("q").ended("a", 1, 2, told).to_json()).last[0].code == run.code
    (run,) = Runs("q").ended("a", 1, 2, "java.lang.OutOfMemoryError: heap").last
    assert run.code is None


def test_a_history_has_each_micro_batch_in_each_level_as_far_as_that_reaches() -> None:
    story, random = Story(kept=500), Random(1)
    for _ in range(400):
        story.tell(random.randint(0, 9_000), took=random.randint(1, 90 * SECOND), every=random.randint(1, 2 * HOUR))
    for points, (every, count) in zip(
        (story.history.minutes, story.history.hours, story.history.days), LEVELS, strict=True
    ):
        assert len(points) <= count
        assert [point.at % every for point in points] == [0] * len(points)
        assert [point.at for point in points] == sorted({point.at for point in points})
        inside = [one for one in story.batches if one.started >= points[0].at]
        assert sum(point.batches for point in points) == len(inside)
        assert sum(point.rows for point in points) == sum(one.rows for one in inside)
        assert sum(point.took for point in points) == sum(one.took for one in inside)
        assert max(point.longest for point in points) == max(one.took for one in inside)
    assert History.from_json(story.history.to_json()) == story.history


def test_a_history_is_no_larger_after_years() -> None:
    story = Story()
    for _ in range(3_000):
        story.tell(8_000, every=6 * HOUR)
    history = story.history
    assert [len(points) for points in (history.minutes, history.hours, history.days)] == [
        180,
        168,
        400,
    ]
    assert len(history.to_json()) < 150_000


def test_points_may_be_added_in_any_grouping() -> None:
    points = [point_of(one, state) for state, one in enumerate(healthy(5).batches[:30])]
    left = points[0]
    for point in points[1:]:
        left = left + point
    right = points[-1]
    for point in reversed(points[:-1]):
        right = point + right
    assert left == right
    assert left.state == 29
    assert {one.name for one in fields(Point)} == set(vars(left))


def test_the_size_of_state_is_that_of_all_tasks_also_of_those_that_did_not_run() -> None:
    story = Story()
    story.tell(8_000, state=4_000)
    one = micro_batch(1, story.at, 8_000, state=8_000)
    only = replace(one, reports=tuple(replace(report, each=report.each[:1]) for report in one.reports))
    story.add(only, SECOND)
    assert story.history.minutes[-1].state == 2_000 + 3 * 1_000


def test_the_history_is_written_at_the_beginning_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    writer = ProgressWriter.at(str(tmp_path))
    reader = ProgressReader(writer.storage, QUERY)
    assert reader.history() == History(QUERY)
    kept = []
    for batch in range(10):
        writer.keep(micro_batch(batch, BEGIN + batch * 20 * SECOND, 10))
        kept.append(sum(point.batches for point in reader.history().days))
    assert kept == [1, 1, 1, 4, 4, 4, 7, 7, 7, 10]
    again = ProgressWriter.at(str(tmp_path))
    again.keep(micro_batch(10, BEGIN + HOUR, 10, run="r1"))
    again.keep(micro_batch(11, BEGIN + HOUR + SECOND, 10, run="r1"))
    again.end(QUERY)
    assert sum(point.batches for point in reader.history().days) == 12
    assert [one.batch for one in reader.newest(99)] == list(range(12))


@pytest.mark.parametrize("name", ["runs", "history"])
def test_runs_and_history_that_are_damaged_are_deleted_and_those_of_a_newer_release_read_by_that(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, directory = filled(tmp_path), tmp_path / "progress"
    writer = ProgressWriter.at(str(directory))
    writer.keep(micro_batch(0, BEGIN, 10))
    writer.keep_runs(Runs(QUERY).seen("r", BEGIN, BEGIN))
    path = directory / QUERY / f"{name}.json"
    whole = path.read_text()

    def notes() -> str:
        return "\n".join(QueryMonitor(str(query.checkpoint), None, str(directory)).look().notes)

    for damaged in ("[", "{}", whole.replace(f'"query":"{QUERY}"', '"query":7'), whole[:-2]):
        path.write_text(damaged)
        assert re.search(
            rf"{path}: .*(is|are) damaged .*; delete the file \[|(has|have) version None", notes(), re.MULTILINE
        )
        assert writer.runs(QUERY).query == QUERY
    path.unlink()
    assert str(path) not in notes()
    path.write_text(json.dumps({**json.loads(whole), name: 2}))
    assert re.search(r"version 2, but .*; run the release that wrote it, or a newer one \[", notes(), re.MULTILINE)
    monkeypatch.setattr(f"millpond.adapters.monitor.kept.{name}.VERSION", 2)
    assert str(path) not in notes()

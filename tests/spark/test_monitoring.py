"""The report of a query on each micro-batch: its progress, a line of the log, metrics of OpenTelemetry."""

import json
import logging
import os
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row, SparkSession

from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from millpond.adapters.monitor.kept.micro_batch import Limit, MicroBatch, TaskReport
from millpond.adapters.monitor.query_monitor import QueryMonitor as Query
from millpond.adapters.spark import SparkStreams, watch
from millpond.adapters.spark.monitoring import live_runs, watching
from millpond.adapters.spark.monitoring.instruments import Instruments
from millpond.adapters.spark.monitoring.keeping import TASKS, micro_batch
from millpond.adapters.spark.monitoring.live_runs import EVERY, LiveRuns
from millpond.adapters.spark.monitoring.measured import Figure, Measured, Place, measured_in
from millpond.adapters.spark.monitoring.watching import log_line
from millpond.adapters.spark.operator.task_run import key_texts
from millpond.errors import ConfigurationError
from millpond.metrics import StoreMetric
from millpond.processors import Consumed, Materialized, StreamsBuilder, TimeWindows, Topology
from millpond.processors.distribution.execution import Decoder
from millpond.processors.runtime.metrics import TaskMetric
from millpond.stores.encoding.serdes import INT64, Serde

LOGGER = "millpond.spark.progress"
ARRIVALS = [[("a", 3), ("a", 7), ("b", 12), ("a", 4), ("a", 25)], [("a", 26)]]
INSTALLED = find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None


def window_counts() -> Topology:
    builder = StreamsBuilder(order="arrival")
    clicks = builder.stream("clicks", Consumed("string", "int64"))
    windows = TimeWindows(10, grace=0)
    clicks.group_by_key().windowed_by(windows).count(Materialized("counts")).to_stream().to("counts")
    return builder.build()


class Lines(logging.Handler):
    """Keeps the messages that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def of(self, query: str) -> list[str]:
        """Return those of one query."""
        return [said for said in self.messages if said.startswith(f"query {query},")]


def reader_and_provider() -> tuple[Any, Any]:
    """Return OpenTelemetry's reader of metrics in memory, and a provider for it; nothing where it is not installed."""
    if not INSTALLED:
        return None, None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    return reader, MeterProvider([reader])


class Watched(NamedTuple):
    """The report of a query of two micro-batches."""

    progress: list[dict[str, Any]]
    lines: list[str]
    reader: Any
    sizes: list[int]
    directory: Path


@pytest.fixture(scope="module")
def watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Clicks counted by windows, in two micro-batches."""
    directory = tmp_path_factory.mktemp("watched")
    (directory / "in").mkdir()
    for number, clicks in enumerate(ARRIVALS):
        keys, times = zip(*clicks, strict=True)
        file = directory / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"key": keys, "value": [1] * len(keys), "timestamp": times}), file)
        os.utime(file, (1_000_000_000 + number,) * 2)
    reader, provider = reader_and_provider()
    # What queries of earlier tests have told is on its way to whoever listens by then.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    handler, log = Lines(), logging.getLogger(LOGGER)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    listener = watch(SparkSession.builder.getOrCreate(), provider, keep=str(directory / "progress"))
    try:
        progress = run(spark, directory)
        deadline = time.monotonic() + 60
        while len(handler.of("watched")) < len(progress) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    sizes = [path.stat().st_size for path in sorted((directory / "state" / "clicks" / "0_0").rglob("*.parquet"))]
    return Watched(progress, handler.of("watched"), reader, sizes, directory)


def run(spark: SparkSession, directory: Path) -> list[dict[str, Any]]:
    source = spark.readStream.schema("key string, value long, timestamp long").option("maxFilesPerTrigger", 1)
    streams = SparkStreams(
        window_counts(), application_id="clicks", state_dir=f"{directory}/state", partitions=1, backend="lmdb"
    )
    rows = streams.transform({"clicks": source.parquet(f"{directory}/in")})
    writer = rows.writeStream.format("noop").queryName("watched")
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


@pytest.mark.first
@pytest.mark.spark
def test_the_progress_has_the_figures_of_each_task(watched: Watched) -> None:
    observed = [progress["observedMetrics"] for progress in watched.progress]
    inputs = [found["millpond.clicks:metrics"] for found in observed]
    assert [found["application"] for found in inputs] == ["clicks", "clicks"]
    assert [[(task["records.in"], task["records.out"]) for task in found["tasks"]] for found in inputs] == [
        [(5, 5)],
        [(1, 1)],
    ]
    tasks = [task for found in observed for task in found["millpond.operator.0:metrics"]["tasks"]]
    assert [(task["records.in"], task["records.out"], task["stream.time"]) for task in tasks] == [
        (5, 4, 25_000),
        (1, 1, 26_000),
    ]
    assert [task["file.size"] for task in tasks] == watched.sizes
    assert [task["counts:commit.rows"] > 0 for task in tasks] == [True, True]
    for task in tasks:
        assert task["stream.lag"] == pytest.approx(time.time() * 1_000_000, rel=0.001)
        assert task["counts:copy.size"] > 0
        parts = sum(task[f"{name}.duration"] for name in ("open", "process", "flush", "commit"))
        assert 0 < parts <= task["task.duration"]


@pytest.mark.first
@pytest.mark.spark
def test_spark_shows_each_task_as_one_row_of_state(watched: Watched) -> None:
    (state,) = watched.progress[-1]["stateOperators"]
    assert (state["numRowsTotal"], state["numRowsUpdated"]) == (1, 1)


@pytest.mark.spark
def test_the_log_gets_one_line_for_each_micro_batch(watched: Watched) -> None:
    first, second = watched.lines
    assert first.startswith("query watched, batch 0: clicks: 5 in, 5 out, process ")
    assert "; operator.0: 5 in, 4 out, 1 dropped, 1 late, latest by 0.0 s, lag " in first
    assert f"{watched.sizes[0]} bytes written" in first
    assert "; operator.0: 1 in, 1 out, lag " in second


@pytest.mark.spark
@pytest.mark.skipif(not INSTALLED, reason="needs the package opentelemetry-sdk")
def test_opentelemetry_gets_the_figures_of_all_micro_batches(watched: Watched) -> None:
    points = points_of(watched.reader)
    own = {"query": "watched", "application": "clicks", "operator": "operator.0", "task": "0_0"}
    assert [point.value for point in points["millpond.records.in", "{record}"] if point.attributes == own] == [6]
    assert [point.value for point in points["millpond.file.size", "By"]] == [sum(watched.sizes)]
    assert [point.value for point in points["millpond.stream.time", "s"]] == [0.026]
    ((node, late),) = [(point.attributes["node"], point.value) for point in points["millpond.records.late", "{record}"]]
    assert node
    assert late == 1
    (commits,) = points["millpond.commit.duration", "s"]
    assert (commits.count, commits.attributes) == (2, own)
    assert 0 < commits.sum < 60
    assert [point.attributes for point in points["millpond.engine.duration", "s"]] == [{**own, "store": "counts"}]


PROGRESS = SimpleNamespace(
    id="3f",
    runId="4a",
    name="watched",
    batchId=0,
    timestamp="2026-01-31T12:00:00.000Z",
    durationMs={"triggerExecution": 5},
    sources=[SimpleNamespace(description="Kafka", numInputRows=1, metrics={"maxOffsetsBehindLatest": "7"})],
    observedMetrics={
        "millpond.in": Row(tasks=[]),
        "millpond.in:metrics": Row(
            application="shop", tasks=[{"records.in": 1}], places=[Row(task=None, counts=None, keys=None)]
        ),
    },
)


@pytest.mark.spark
def test_another_process_sees_what_the_query_has_told(watched: Watched) -> None:
    place = watched.directory
    seen = Query(f"{place}/checkpoint", f"{place}/state", f"{place}/progress", window_counts()).look()
    assert (seen.name, seen.query, seen.batch, seen.notes) == ("watched", watched.progress[0]["id"], 1, ())
    assert [(one.rows, one.took) for one in seen.batches] == [
        (progress["numInputRows"], progress["durationMs"]["triggerExecution"]) for progress in watched.progress
    ]
    assert all(one.steps["addBatch"] > 0 < one.work["commit"] for one in seen.batches)
    clicks, counts = seen.operators
    assert (clicks.operator, clicks.records_in, counts.operator, counts.stream_time) == ("clicks", 1, "operator.0", 26)
    assert counts.lag == pytest.approx(time.time() * 1000, rel=0.001)
    assert {(one.reason, one.records) for one in seen.reasons} == {("dropped-late", 1)}
    assert [task.size for task in seen.tasks] == [sum(watched.sizes)]
    assert [one.title.splitlines()[-1] for one in seen.drawing.boxes if one.id == "topic clicks"] == ["1 in"]


def test_progress_that_cannot_be_kept_is_logged_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    handler, log = Lines(), logging.getLogger(LOGGER)
    log.addHandler(handler)
    try:
        watcher = watching._Watcher(None, ProgressWriter.at(f"{tmp_path}/file"))
        watcher.onQueryProgress(cast(Any, SimpleNamespace(progress=PROGRESS)))
    finally:
        log.removeHandler(handler)
    assert any("its progress is not kept: cannot write" in said for said in handler.messages)


def points_of(reader: Any) -> dict[tuple[str, str], list[Any]]:
    """Return the data points by the name and the unit of their metric."""
    found = reader.get_metrics_data()
    if found is None:
        return {}
    (resource,) = found.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "millpond"
    return {(metric.name, metric.unit): list(metric.data.data_points) for metric in scope.metrics}


SEEN = Measured(
    "shop",
    "operator.0",
    [
        {"records.in": 3, "stream.time": 50, "stream.lag": 10, "a:commit.rows": 2, "a:copy.size": 7},
        {"records.in": 4, "stream.time": 20, "stream.lag": 40, "a:commit.rows": 1, "b:commit.rows": 5},
        {"b:memory.held": 8, "lateness.largest": 2_000_000},
        {"lateness.largest": 7_500_000},
    ],
    [{"join:dropped-expired": 2, "join:waiting": 6, "other:dropped-null": 1}, {"join:passed-late": 3}],
)


def test_the_figures_of_tasks_are_added_but_of_times_the_one_that_is_furthest_behind_counts() -> None:
    assert SEEN.figures == {
        ("", "records.in"): 7,
        ("", "stream.time"): 20,
        ("", "stream.lag"): 40,
        ("a", "commit.rows"): 3,
        ("b", "commit.rows"): 5,
        ("a", "copy.size"): 7,
        ("b", "memory.held"): 8,
        ("", "lateness.largest"): 7_500_000,
    }
    assert [SEEN.figure(name) for name in ("commit.rows", "stream.lag", "file.size")] == [8, 40, None]
    assert SEEN.dropped == {("join", "dropped-expired"): 2, ("other", "dropped-null"): 1}
    assert SEEN.late == {("join", "dropped-expired"): 2, ("join", "passed-late"): 3}
    assert SEEN.waiting == {Figure("join", "waiting"): 6}
    assert log_line("q", 3, [SEEN]) == (
        "query q, batch 3: operator.0: 7 in, 0 out, 3 dropped, 5 late, 6 waiting, latest by 7.5 s, lag 0.0 s, "
        "8 rows written"
    )


def test_of_a_micro_batch_without_records_the_line_says_so() -> None:
    assert log_line("q", 4, [Measured("shop", "operator.0", [], [])]) == "query q, batch 4: no records"


def test_what_others_observe_is_not_ours() -> None:
    observed = {
        "theirs:metrics": Row(rows=3),
        "millpond.latest-id.input": Row(tasks=[]),
        "millpond.latest-id.input:metrics": Row(
            application="shop", tasks=[{"records.in": 1}], places=[Row(task=None, counts=None, keys=None)]
        ),
        "millpond.in": Row(tasks=[{"dropped-null-key": 4}]),
        "millpond.in:metrics": Row(
            application="shop", tasks=[{"records.in": 2}], places=[Row(task=None, counts=None, keys=None)]
        ),
    }
    found = measured_in(observed)
    assert [(one.operator, one.application, one.figure("records.in")) for one in found] == [
        ("in", "shop", 2),
        ("latest-id.input", "shop", 1),
    ]
    assert found[0].dropped == {("", "dropped-null-key"): 4}
    told = Row(application="shop", tasks=[{"records.in": 2}], places=[{"task": "0_1", "keys": {"ann": 2}}])
    (read,) = measured_in({"millpond.operator.0": Row(tasks=[]), "millpond.operator.0:metrics": told})
    assert read.places == [Place("0_1", {}, {"ann": 2})], "as JSON has it, without nulls"
    assert read.operator == "operator.0"
    verb = {f"millpond.totals.operator.{n}{more}": told for n in (0, 1) for more in ("", ":metrics")}
    assert [one.operator for one in measured_in(verb)] == ["totals", "totals.operator.1"], "by the name of the verb"
    assert measured_in({"theirs:metrics": Row(rows=3)}) == []


@pytest.mark.spark
def test_only_a_session_can_be_watched(watched: Watched) -> None:
    with pytest.raises(
        ConfigurationError, match=r"watch takes a SparkSession, not 'spark'; give .*\.getOrCreate\(\) \["
    ):
        watch("spark")  # type: ignore[arg-type]
    assert len(watched.lines) == len(watched.progress), "what its fixture has done as is advised"


@pytest.mark.parametrize("name", [*TaskMetric, *StoreMetric])
def test_every_figure_has_an_instrument(name: str) -> None:
    made: list[str] = []

    def make(full_name: str, *arguments: Any, **options: Any) -> None:
        made.append(full_name)

    Instruments(
        SimpleNamespace(create_counter=make, create_gauge=make, create_histogram=make, create_observable_gauge=make)
    )
    assert made.count(f"millpond.{name}") == 1


def test_without_opentelemetry_there_is_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    assert watching._instruments(None) is None


class _Place:
    """The place of kept runs, read back."""

    def __init__(self, directory: Path) -> None:
        self.writer = ProgressWriter.at(str(directory))
        self.runs = LiveRuns(self.writer)

    def last(self, query: str = "q") -> list[tuple[str, bool, str | None]]:
        return [(one.run, one.ended is not None, one.error) for one in self.writer.runs(query).last]


def test_a_run_is_told_of_at_its_first_micro_batch_each_minute_and_at_its_end(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    runs, now = place.runs, round(time.time() * 1000)
    runs.begun("q", "a", None, now)
    runs.beat(now + 1)
    assert place.last() == [], "nobody knows whose it is"
    assert runs.progressed("q", "a", "counts", now) == 0
    before = place.writer.runs("q").last[-1].seen
    runs.beat(before + EVERY - 10)
    assert place.writer.runs("q").last[-1].seen == before
    runs.beat(before + EVERY + 10)
    assert place.writer.runs("q").last[-1].seen == before + EVERY + 10
    runs.ended("q", "a", None)
    assert (place.last(), place.writer.runs("q").name) == ([("a", True, None)], "counts")
    runs.begun("q", "b", None, now)
    runs.beat(now + 1)
    assert place.last() == [("a", True, None), ("b", False, None)], "a run of a known query is told of at once"
    assert runs.progressed("q", "b", None, now) == 1
    runs.ended("q", "b", "java.lang.OutOfMemoryError: heap")
    assert place.last()[-1] == ("b", True, "OutOfMemoryError")


def test_of_queries_of_others_nothing_is_told_unless_they_die_before_anybody_knows(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    place.runs.begun("theirs", "a", None, 1)
    place.runs.is_foreign("a")
    place.runs.ended("theirs", "a", "x.YError: z")
    place.runs.begun("done", "b", None, 1)
    place.runs.ended("done", "b", None)
    assert (place.last("theirs"), place.last("done")) == ([], [])
    place.runs.begun("q", "c", None, 1)
    place.runs.progressed("q", "c", None, 1)
    place.runs.is_foreign("c")
    place.runs.ended("q", "c", None)
    assert place.last() == [("c", True, None)], "a micro-batch without figures makes no query foreign that had some"
    place.runs.ended("unknown", "d", "x.YError: z")
    assert place.last("unknown") == [("d", True, "YError")]


def test_who_tells_that_runs_live_ends_with_who_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_runs, "_LOOK", 0.01)
    place = _Place(tmp_path)
    thread = next(one for one in reversed(threading.enumerate()) if one.name == "millpond-alive")
    del place
    thread.join(30)
    assert not thread.is_alive()


TOLD = Measured(
    "shop",
    "operator.0",
    [
        {"records.in": 3, "a:commit.rows": 2, "b:commit.rows": 1, "a:copy.size": 7, "b:memory.held": 5, "disk.free": 4},
        {"records.in": 9, "disk.free": 2, "disk.size": 10, "memory.budget": 8, "b:memory.held": 6},
    ],
    [{"join:dropped-late": 2}],
    [Place("0_0", {"join:dropped-late": 2}, {}), Place("0_1", {}, {"ann": 8})],
)


def test_each_task_is_kept_with_its_counts_its_hot_keys_and_its_limits() -> None:
    one = micro_batch(PROGRESS, [TOLD])
    (report,) = one.reports
    assert report.each == (
        TaskReport("0_1", {"records.in": 9, "state.size": 6}, keys={"ann": 8}),
        TaskReport("0_0", {"records.in": 3, "commit.rows": 3, "state.size": 12}, late=2, dropped=2),
    )
    assert one.limits == (Limit("disk", "operator.0 0_1", 8, 10), Limit("memory", "operator.0 0_1", 6, 8))
    assert (report.figures["disk.free"], MicroBatch.from_json(one.to_json())) == (2, one)
    many = [{"records.in": number} for number in range(TASKS + 50)]
    places = [Place(f"0_{number}", {}, {}) for number in range(TASKS + 50)]
    (report,) = micro_batch(PROGRESS, [Measured("shop", "operator.0", many, [], places)]).reports
    assert (len(report.each), report.each[0].task) == (TASKS, f"0_{TASKS + 49}")


class Broken(Serde[str]):
    """A serde of a user's that reads nothing."""

    name = "broken"

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        raise ValueError(data)


def test_every_key_has_a_text_of_a_bounded_length() -> None:
    decoders = {name: Decoder(name, serde, None) for name, serde in (("n", INT64), ("broken", Broken()), ("raw", None))}
    keys = {
        ("n", INT64.serialize(7)): 3,
        ("broken", b"ann"): 4,
        ("raw", None): 5,
        ("raw", b"\xff"): 6,
        ("?", b"x" * 99): 1,
    }
    assert key_texts(keys, decoders, {}) == {"7": 3, "ann": 4, "null": 5, "/w==": 6, "x" * 80: 1}
    assert key_texts({("raw", b"a"): 1, ("?", b"a"): 2}, decoders, {}) == {"a": 3}


@pytest.mark.skipif(not INSTALLED, reason="needs the package opentelemetry-sdk")
def test_each_task_that_says_which_it_is_has_figures_of_its_own() -> None:
    reader, provider = reader_and_provider()
    instruments = Instruments(provider.get_meter("millpond"))
    tasks = [{"records.in": 5, "stream.time": 2_000_000}, {"records.in": 7, "stream.time": 3_000_000}]
    late = {"KSTREAM-FILTER:dropped-late": 2}
    places = [Place("0_0", {}, {}), Place("0_1", late, {})]
    instruments.record("q", Measured("shop", "operator.0", tasks, [late], places))
    instruments.record("q", Measured("shop", "orders", [{"records.in": 1}, {"records.in": 2}], [], ()))
    points = points_of(reader)
    own = {"query": "q", "application": "shop", "operator": "operator.0"}

    def told(name: str, unit: str) -> list[tuple[dict[str, str], float]]:
        return [(dict(point.attributes), point.value) for point in points[f"millpond.{name}", unit]]

    first, second = {**own, "task": "0_0"}, {**own, "task": "0_1"}
    of_input = {**own, "operator": "orders"}
    assert told("records.in", "{record}") == [(first, 5), (second, 7), (of_input, 3)]
    assert told("stream.time", "s") == [(first, 2), (second, 3)]
    ((attributes, number),) = told("records.late", "{record}")
    assert (attributes["task"], number) == ("0_1", 2)


@pytest.mark.skipif(not INSTALLED, reason="needs the package opentelemetry-sdk")
def test_the_age_of_the_last_commit_grows_until_a_query_is_stopped() -> None:
    reader, provider = reader_and_provider()
    instruments = Instruments(provider.get_meter("millpond"))
    instruments.committed("q", time.time() - 60)
    instruments.restarted("q", 3)
    points = points_of(reader)
    (age,) = points["millpond.commit.age", "s"]
    assert (age.attributes, age.value) == ({"query": "q"}, pytest.approx(60, abs=5))
    assert [point.value for point in points["millpond.query.restarts", "{restart}"]] == [3]
    for failure in ("x: millpond.errors.SerdeError: no [MILLPOND-SERDE]", "a.XError: y", "a.XError: y"):
        instruments.ended("q", failure)
    failures = points_of(reader)["millpond.query.failures", "{failure}"]
    assert {(one.attributes["code"], one.value) for one in failures} == {("MILLPOND-SERDE", 1), ("XError", 2)}
    assert [point.value > 55 for point in points_of(reader)["millpond.commit.age", "s"]] == [True]
    instruments.ended("q", None)
    assert ("millpond.commit.age", "s") not in points_of(reader)

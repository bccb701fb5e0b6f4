"""Flink SQL beside the jobs on Spark: its text, its process and its times, without Flink. make test-flink has Flink."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from rich.console import Console
from typer.testing import CliRunner

from millpond.bench.flink import jobs as flink_jobs
from millpond.bench.flink.jobs import FlinkJobs, Streamed, final_rows, write_rows
from millpond.bench.flink.process import PACKAGE, FlinkProcess, flink_process
from millpond.bench.flink.queries import FlinkQuery
from millpond.bench.flink.runner import LOOK_SECONDS, Watch, said_by
from millpond.bench.flink.settings import STATE_BACKENDS, settings_of
from millpond.bench.runs.processor_time import Spent
from millpond.bench.spark import growth, measure, tables
from millpond.bench.spark.contest import Contest
from millpond.bench.spark.document import document_of
from millpond.bench.spark.inputs import rows_of, write_inputs
from millpond.bench.spark.shapes import COUNTED, COUNTED_IN_WINDOW, JOINED, Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import WORKLOADS, Answer, chosen_contenders, workload_named
from millpond.cli import app
from millpond.errors import ConfigurationError, MillpondError
from tests.bench.sessions import no_session
from tests.spark.bench_answers import common_part

IN_FLINK = [name for name, workload in WORKLOADS.items() if workload.in_flink]
SCALE = Scale(1_234_567, 100)

FAKE = """#!{python}
import json, pathlib, sys, time
from urllib.parse import urlparse
import pyarrow as pa

print(json.dumps({{"flink": "2.3.0", "java": "17"}}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if "die" in job["query"]:
        sys.exit("out of luck")
    rows = [row for table in job["tables"] for row in pa.ipc.open_stream(table["file"]).read_all().to_pylist()]
    if "fail" in job["query"]:
        answer = {{"error": "no such column"}}
    else:
        running = 7 + len(rows) / {per_second}
        began = time.time()
        answer = {{"seconds": 3 + running, "running": [began, began + running], "checkpoints": 5}}
        answer["columns"] = [["key", "VARCHAR"], ["value", "BIGINT"]]
    if "changes" in job:
        seen, changes = {{}}, []
        for row in rows:
            before = seen.get(row["key"], 0)
            seen[row["key"]] = before + 1
            if before:
                changes.append({{"before": {{"key": row["key"], "value": before}}, "after": None, "op": "d"}})
            changes.append({{"before": None, "after": {{"key": row["key"], "value": before + 1}}, "op": "c"}})
        written = pathlib.Path(urlparse(job["changes"]).path, "part-0")
        written.write_text("".join(json.dumps(change) + "\\n" for change in changes))
    print(json.dumps(answer), flush=True)
"""
"""A Python that runs no program of ours, but answers like one that has Flink: the start takes ten seconds, it says."""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake(directory: Path, per_second: float = 100) -> Path:
    return program(directory / "python", FAKE.format(python=sys.executable, per_second=per_second))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[FlinkProcess]:
    with flink_process(fake(tmp_path), tmp_path) as made:
        yield made


def jobs(process: FlinkProcess, place: Path, batches: int) -> FlinkJobs:
    scale = Scale(50, 7, 2)
    write_inputs(place, WORKLOADS["count"].topics, scale, batches)
    return FlinkJobs(process, place, partial(rows_of, place, scale), rows=scale.rows, cores=2, more="--rows")


def query_of(name: str, scale: Scale = SCALE) -> FlinkQuery:
    query = WORKLOADS[name].flink
    assert query is not None
    return query(scale)


def text_of(name: str) -> tuple[str, str]:
    """Return all that Flink is told to do for a workload: the query, and the definitions of its tables."""
    query = query_of(name)
    return query.sql, "\n".join(table.definition for table in query.tables)


def test_every_workload_of_the_words_of_kafka_streams_but_the_exchange_runs_in_flink_on_both_state_backends() -> None:
    in_these_words = {name for name, workload in WORKLOADS.items() if workload.topology is not None}
    assert in_these_words - set(IN_FLINK) == {"exchange"}
    for name in IN_FLINK:
        assert {how.state_backend for how in WORKLOADS[name].in_flink.values()} == {"hashmap", "rocksdb"}


@pytest.mark.parametrize("name", IN_FLINK)
def test_a_query_reads_every_topic_and_gives_the_columns_of_the_workload(name: str) -> None:
    query, definitions = text_of(name)
    for topic in WORKLOADS[name].topics:
        assert re.search(rf"\b{topic.name}\b", query)
        assert f"CREATE TEMPORARY TABLE {topic.name} " in definitions
        assert f"LIKE {topic.name}_rows" in definitions
    given = [part.split(" AS ")[-1].split(".")[-1].strip("` ") for part in _selected(query)]
    shapes = [[column.split()[0] for column in shape.split(", ")] for shape in (COUNTED, COUNTED_IN_WINDOW, JOINED)]
    assert given in shapes


def _selected(query: str) -> list[str]:
    """Return the expressions between the first SELECT and its FROM."""
    selected = query.removeprefix("SELECT ").split(" FROM ")[0]
    return re.split(r", (?![^()]*\))", selected)


def test_lengths_of_time_are_those_of_the_workload_to_the_millisecond() -> None:
    assert "INTERVAL '0 00:20:34.567' DAY(3) TO SECOND(3)" in text_of("window")[0]
    assert "INTERVAL '23 03:33:20.000' DAY(3) TO SECOND(3)" in query_of("window", Scale(2_000_000_000, 1)).sql
    assert (
        text_of("session")[0].count("INTERVAL '0 00:04:06.913' DAY(3) TO SECOND(3)") == 2
    )  # of the gap, and off the end
    for name in ("stream-join", "stream-join-left"):
        query = text_of(name)[0]
        reach = "INTERVAL '0 00:02:03.456' DAY(3) TO SECOND(3)"
        assert f"r.`time` BETWEEN e.`time` - {reach} AND e.`time` + {reach}" in query
        assert ("LEFT JOIN" in query) == (name == "stream-join-left")


def test_only_what_is_looked_up_as_of_a_time_has_a_key_and_all_but_a_count_have_event_time() -> None:
    for name in IN_FLINK:
        query, definitions = text_of(name)
        assert ("FOR SYSTEM_TIME AS OF e.`time`" in query) == (name == "temporal-join")
        assert definitions.count("PRIMARY KEY (`key`) NOT ENFORCED") == (name == "temporal-join")
        timed = 0 if name == "count" else len(WORKLOADS[name].topics)
        assert definitions.count("WATERMARK FOR `time` AS `time`") == timed
    keyed = [table.name for table in query_of("temporal-join").tables if "PRIMARY KEY" in table.definition]
    assert keyed == ["rates"]


@pytest.mark.parametrize(("name", "both"), [("table-join", True), ("foreign-key", True), ("stream-join", False)])
def test_tables_keep_the_latest_row_of_each_key_by_its_time(name: str, both: bool) -> None:
    query, _ = text_of(name)
    for topic in WORKLOADS[name].topics:
        numbered = f"ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY `time` DESC) AS place FROM {topic.name})"
        assert (numbered in query) is both
    assert query.count("WHERE place = 1") == 2 * both


def test_jobs_run_on_all_cores_exactly_once_and_save_their_state_where_they_are_told(tmp_path: Path) -> None:
    found = settings_of("rocksdb", 3, tmp_path)
    assert found["parallelism.default"] == found["taskmanager.numberOfTaskSlots"] == "3"
    assert found["state.backend.type"] == "rocksdb"
    assert found["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert found["execution.checkpointing.dir"] == f"file://{tmp_path}/checkpoints"
    assert found["table.local-time-zone"] == "UTC"


def test_the_pin_of_flink_stands_in_one_file_and_in_the_message() -> None:
    pins = Path(flink_jobs.__file__).with_name("requirements.txt").read_text().split()
    assert pins == [PACKAGE]


def test_readers_that_take_turns_see_their_rows_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_jobs, "ARROW_ROWS", 7)
    topics, scale = WORKLOADS["foreign-key"].topics, Scale(50, 7, 3)
    write_inputs(tmp_path, topics, scale, 4)
    for topic in topics:
        names = [column.split()[0] for column in topic.schema.split(", ")]
        write_rows(tmp_path / "rows.arrow", rows_of(tmp_path, scale, topic.name, 3, names))
        with pa.OSFile(str(tmp_path / "rows.arrow"), "rb") as written, pa.ipc.open_stream(written) as stream:
            batches = list(stream)
        assert {len(batch) for batch in batches[:-1]} == {7}
        assert batches[0].schema.names == names
        times = pa.Table.from_batches(batches)["at"].to_numpy().tolist()
        assert times == sorted(times)
        assert len(times) == 3 * round(topic.share * 50)
        assert max(times) < 4 * 50  # the fourth micro-batch is not among them


def test_the_time_of_a_micro_batch_is_what_more_rows_take_and_the_start_is_told_apart(
    process: FlinkProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, made = query_of("count"), jobs(process, tmp_path, 6)
    assert made.measure(query, "hashmap", 2, 0) is None
    monkeypatch.setattr(Spent, "between", lambda _, began, ended: (ended - began) ** 2)
    ran = made.measure(query, "hashmap", 2, 4)
    assert ran is not None
    assert ran.seconds == pytest.approx(0.5)  # 50 rows, 100 a second
    assert ran.processor == pytest.approx(10**2 - 8**2)
    assert ran.start_up == pytest.approx(10 + process.start_seconds)
    assert ran.checkpoints == 5
    assert ran.versions == {"flink": "2.3.0", "java": "17"}


def test_too_few_rows_to_be_timed_are_refused(tmp_path: Path) -> None:
    with flink_process(fake(tmp_path, per_second=-1), tmp_path) as process:
        made = jobs(process, tmp_path, 3)
        with pytest.raises(ConfigurationError, match=r"1 and 3 micro-batches of 50 rows .* give more --rows"):
            made.measure(query_of("count"), "hashmap", 1, 2)


def test_the_answer_is_what_is_left_of_the_changes(process: FlinkProcess, tmp_path: Path) -> None:
    made = jobs(process, tmp_path, 2)
    rows = made.answer(query_of("count"), "rocksdb", 2).to_pylist()
    assert sum(row["value"] for row in rows) == 100
    assert len({row["key"] for row in rows}) == len(rows) == 7
    changes = [{"key": row["key"], "value": earlier} for row in rows for earlier in range(row["value"], 0, -1)]
    assert common_part(Answer.TABLE, rows) == common_part(Answer.TABLE, changes)
    assert common_part(Answer.TABLE, rows[1:]) != common_part(Answer.TABLE, changes)


def test_equal_rows_count_as_often_as_they_came_and_none_goes_that_did_not_come(tmp_path: Path) -> None:
    columns = [("key", "VARCHAR"), ("end", "TIMESTAMP_WITHOUT_TIME_ZONE"), ("average", "DOUBLE")]
    row = {"key": None, "end": "2015-07-15T00:00:00.401", "average": 0.1}
    came, went = {"before": None, "after": row, "op": "c"}, {"before": row, "after": None, "op": "d"}
    (tmp_path / "_metadata").write_text("no change")
    assert final_rows(tmp_path, columns).to_pylist() == []
    for number, changes in enumerate(([went, came], [came, came])):  # a task may be quicker than another
        (tmp_path / f"part-{number}").write_text("".join(json.dumps(change) + "\n" for change in changes))
    left = {"key": None, "end": 1_436_918_400_401, "average": 0.1}
    assert final_rows(tmp_path, columns).to_pylist() == [left] * 2
    (tmp_path / "part-2").write_text((json.dumps(went) + "\n") * 3)
    with pytest.raises(MillpondError, match="takes back rows"):
        final_rows(tmp_path, columns)


def test_times_are_written_for_flink_without_a_time_zone(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([1, None], pa.timestamp("ms", "UTC")), "key": ["a", "b"]})
    write_rows(tmp_path / "rows.arrow", rows)
    with pa.OSFile(str(tmp_path / "rows.arrow"), "rb") as written:
        found = pa.ipc.open_stream(written).read_all()
    assert found.schema.field("at").type == pa.timestamp("ms")
    assert found["at"].cast(pa.int64()).to_pylist() == [1, None]


def test_an_interpreter_that_is_not_there_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for wrong in (tmp_path / "flink" / "bin" / "python", tmp_path):
        with (
            pytest.raises(ConfigurationError, match=f"no Python at {wrong}.* pip install {PACKAGE}"),
            flink_process(wrong, tmp_path),
        ):
            pass


def test_an_interpreter_without_flink_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match=rf"(?s)No module named 'pyflink'.* pip install {PACKAGE}"),
        flink_process(Path(sys.executable), tmp_path),
    ):
        pass


def test_the_packages_of_millpond_are_kept_from_flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "ours")
    tell = "import json, os; print(json.dumps({'flink': os.environ.get('PYTHONPATH', 'its own')}), flush=True)"
    interpreter = program(tmp_path / "python", f"#!{sys.executable}\n{tell}\n")
    with flink_process(interpreter, tmp_path) as process:
        assert process.versions == {"flink": "its own"}


def test_what_is_no_python_is_refused_with_what_it_said(tmp_path: Path) -> None:
    wrong = program(tmp_path / "python", "#!/bin/sh\necho I am a shell >&2\nexit 3\n")
    with (
        pytest.raises(ConfigurationError, match="ended with code 3 and said: I am a shell"),
        flink_process(wrong, tmp_path),
    ):
        pass


def test_what_flink_says_of_a_failed_job_is_shown_and_the_next_job_runs(process: FlinkProcess, tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"tables": [], "settings": {}}
    with pytest.raises(MillpondError, match="says: no such column"):
        process.ask({**nothing, "query": "SELECT fail"})
    assert process.ask({**nothing, "query": "SELECT 1"})["seconds"] == 10


def test_a_process_that_dies_is_noticed_with_the_end_of_its_log(process: FlinkProcess) -> None:
    dying = {"tables": [], "settings": {}, "query": "die"}
    for _ in range(2):
        with pytest.raises(MillpondError, match="ended with code 1 and said: out of luck"):
            process.ask(dying)


def test_flink_is_left_out_without_an_interpreter_and_refused_if_it_was_asked_for() -> None:
    workload = workload_named("window")
    assert set(chosen_contenders(workload, ["lmdb"], None)).isdisjoint(STATE_BACKENDS)
    assert list(chosen_contenders(workload, ["lmdb"], None, with_flink=True))[-2:] == list(STATE_BACKENDS)
    with pytest.raises(ConfigurationError, match="flink_heap need a Python that has PyFlink; name it with --flink-py"):
        chosen_contenders(workload, ["lmdb"], ["flink_heap", "lmdb"])
    with pytest.raises(ConfigurationError, match=r"no contenders \['flink_heap'\]"):
        chosen_contenders(workload_named("exchange"), ["lmdb"], ["flink_heap"], with_flink=True)


def test_growth_is_not_measured_of_flink_which_has_no_micro_batches() -> None:
    contest = Contest("count", keys=10, batches=2, contenders=["lmdb", "flink_heap"], flink=Path("python"))
    with pytest.raises(ConfigurationError, match="compares micro-batches, and flink_heap have none"):
        growth.run(contest, no_session)


def test_rates_with_the_start_up_stand_beside_those_without() -> None:
    contest = Contest("count", keys=10, batches=4, rows=1_000)
    versions = {"flink": "2.3.0", "java": "17"}
    rounds = [Streamed(0.5, 1.25, 6.0, 3, versions), Streamed(0.5, 1.25, 10.0, 4, versions)]
    figures = measure.of_streams({"flink_heap": rounds}, {"flink_heap": 0.5, "lmdb": 1.0}, contest)["flink"]
    assert figures["start_up_seconds"] == {"flink_heap": 8.0}
    assert figures["rows_per_second_with_start_up"] == {"flink_heap": 400.0}
    assert figures["checkpoints"] == {"flink_heap": [3, 4]}
    assert measure.of_streams({}, {"lmdb": 1.0}, contest) == {}
    shown = Console(record=True, width=160, file=StringIO())
    seconds = {"lmdb": [1.0], "flink_heap": [0.5, 0.5]}
    found = measure.Measured(
        replace(contest, contenders=list(seconds), flink=Path("python")),
        seconds,
        dict.fromkeys(seconds, WorkerMemory()),
        dict.fromkeys(seconds, 0),
        {"lmdb": 3.0, "flink_heap": 2.5},
        {"flink_heap": rounds},
    )
    whole = document_of([found])
    tables.print_results(shown, whole)
    (flink,) = (one for one in whole["contenders"] if one["name"] == "flink_heap")
    assert (flink["distribution"], flink["version"], flink["kind"]) == ("apache-flink", "2.3.0", "peer")
    assert "a checkpoint every 2 s" in flink["durability"]
    (result,) = (one for one in whole["results"] if one["contender"] == "flink_heap")
    assert (result["operations"], result["throughput"]["runs"]) == (2 * 4 * 1_000, [2_000.0, 2_000.0])
    assert result["cpu_s"] == 2.5
    text = " ".join(shown.export_text().split())
    assert "Flink 2.3.0, Java 17: rows/s of a job that runs" in text
    assert "With a start-up of 8.0 s, flink_heap has 400 rows/s" in text


def test_the_command_names_flink_and_refuses_it_without_an_interpreter() -> None:
    shown = CliRunner().invoke(app, ["bench", "spark", "--help"], env={"COLUMNS": "1000"}).output
    assert [name for name in (*STATE_BACKENDS, "--flink-python", "MILLPOND_FLINK_PYTHON") if name not in shown] == []
    done = CliRunner().invoke(app, ["bench", "spark", "--contender", "flink_heap"])
    assert isinstance(done.exception, ConfigurationError)
    done = CliRunner().invoke(app, ["bench", "spark"], env={"MILLPOND_FLINK_PYTHON": "nowhere"})
    assert "there is no Python at nowhere" in str(done.exception)


class Cluster(BaseHTTPRequestHandler):
    """Flink's answers about a job of two tasks: one look at each line of ``looks``."""

    looks: ClassVar[list[tuple[str, int]]]

    def do_GET(self) -> None:
        told = json.dumps(self.told()).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(told)

    def told(self) -> dict[str, Any]:
        if self.path == "/jobs":
            return {"jobs": [{"id": "j"}]}
        if self.path == "/jobs/j/checkpoints":
            return {"counts": {"completed": 9 - len(self.looks)}}
        assert self.path == "/jobs/j"
        status, taken = self.looks[0]
        if len(self.looks) > 1:
            del self.looks[0]
        return {"vertices": [_task("RUNNING", 0), _task(status, taken)]}

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _task(status: str, taken: int) -> dict[str, Any]:
    return {"status": status, "metrics": {"read-records": taken}}


@contextmanager
def watched(looks: list[tuple[str, int]]) -> Iterator[Watch]:
    """A watch that has seen all of the looks, and the last one several times."""
    Cluster.looks = [*looks]
    with ThreadingHTTPServer(("localhost", 0), Cluster) as server:
        Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
        with Watch(server.server_port) as watch:
            while len(Cluster.looks) > 1:
                sleep(0.01)
            sleep(0.4)
        server.shutdown()
    yield watch


def test_a_job_is_timed_from_when_all_tasks_run_until_they_take_no_more_rows() -> None:
    with watched(
        [("INITIALIZING", 0)] * 3 + [("RUNNING", 10), ("RUNNING", 20), ("RUNNING", 20), ("RUNNING", 30)]
    ) as seen:
        assert seen.running is not None
        began, ended = seen.running
        assert 3 * LOOK_SECONDS <= ended - began < 3 * LOOK_SECONDS + 0.3  # neither the start nor the wait at the end
        assert seen.checkpoints == 8


def test_a_job_that_nobody_saw_run_has_no_time() -> None:
    with watched([("INITIALIZING", 5)]) as never, watched([("FINISHED", 5)]) as late:
        for seen in (never, late):
            assert seen.running is None


def test_an_error_has_its_causes_and_no_places_in_the_code_of_java() -> None:
    error = ValueError("it failed\n\tat java.Thread.run(1)\nCaused by: no such column\n\tat planner\n\t... 5 more")
    assert said_by(error) == "ValueError: it failed\nCaused by: no such column"

"""``millpond bench nexmark`` without Spark: what is asked, what is refused, and how figures are shown."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from rich.console import Console
from typer.testing import CliRunner

from millpond.bench.documents import parsed_document
from millpond.bench.flink.jobs import Streamed
from millpond.bench.flink.settings import STATE_BACKENDS
from millpond.bench.nexmark.answers import ANSWERS
from millpond.bench.nexmark.suite import QUERIES, NexmarkContest, nexmark_contests
from millpond.bench.nexmark.tables import print_results
from millpond.bench.pages.page import write_page
from millpond.bench.pages.words import asked
from millpond.bench.report import document
from millpond.bench.spark import measure
from millpond.bench.spark.contest import Runs
from millpond.bench.spark.document import document_of
from millpond.bench.spark.queries import Ran
from millpond.bench.spark.workers import WorkerMemory
from millpond.cli import app
from millpond.errors import ConfigurationError, MillpondError
from tests.bench.listening import listening
from tests.bench.sessions import no_session

SECONDS = {"verbs": 2.0, "spark_jvm": 5.0, "transform_with_state": 8.0, "flink_heap": 4.0, "flink_rocksdb": 6.0}
HOW: Any = {"batches": 2, "rows": 500, "backends": ["lmdb"]}


def in_flink(seconds: float, counted: int) -> Ran:
    """Return what a job of Flink takes, on one core."""
    versions = {"flink": "2.3.0", "java": "17"}
    stream = Streamed(seconds, seconds * counted, 9.0, 3, versions)
    return Ran([seconds] if counted else [], WorkerMemory(), stream.processor, stream=stream if counted else None)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contenders take ``SECONDS``, on half of a core; ``spark_jvm`` of q17 answers wrongly."""

    @contextmanager
    def hold(self: NexmarkContest, spark: Any, batches: int, *, growing: bool = False) -> Iterator[Runs]:
        def run_first(name: str, skipped: int, counted: int) -> Ran:
            if (self.workload, name) == ("q17", "spark_jvm"):
                raise MillpondError("the answer to q17 is wrong: 1 rows are missing")
            self.checked[name] = 7
            if name in STATE_BACKENDS:
                return in_flink(SECONDS[name], counted)
            return Ran([SECONDS[name]] * counted, WorkerMemory(1, 1), SECONDS[name] / 2 * counted, disk=3 << 20)

        yield Runs(run_first)

    monkeypatch.setattr(NexmarkContest, "hold", hold)


def test_every_query_has_an_answer_and_is_named_by_the_command() -> None:
    assert QUERIES.keys() == ANSWERS.keys()
    assert [name for name in QUERIES if not asked("nexmark", name)] == []
    shown = CliRunner().invoke(app, ["bench", "nexmark", "--help"], env={"COLUMNS": "1000"}).output
    peers = {name for query in QUERIES.values() for name in query.peers}
    names = *QUERIES, "verbs", *peers, *STATE_BACKENDS, "--flink-python", "--kafka", "--packages", "--partitions"
    assert [name for name in names if name not in shown] == []


def test_all_queries_run_unless_some_are_asked_for_and_contenders_where_they_are() -> None:
    assert [one.workload for one in nexmark_contests([], contenders=None, **HOW)] == list(QUERIES)
    found = nexmark_contests(["q18", "q4", "q18"], contenders=["spark_jvm", "verbs"], **HOW)
    assert [(one.workload, list(one.chosen)) for one in found] == [("q18", ["verbs", "spark_jvm"]), ("q4", ["verbs"])]
    beside = nexmark_contests(["q4"], contenders=None, flink=Path("python"), **HOW)
    assert [list(one.chosen) for one in beside] == [["verbs", *STATE_BACKENDS]]
    (lacking,) = nexmark_contests(["q4"], contenders=["flink_heap"], **HOW)
    with pytest.raises(ConfigurationError, match="flink_heap need a Python that has PyFlink; name it with --flink-py"):
        _ = lacking.chosen
    only = nexmark_contests([], contenders=["transform_with_state"], **HOW)
    assert [one.workload for one in only] == ["q9", "q18", "q19"]
    with pytest.raises(ConfigurationError, match="q4 have none of the contenders; leave out --contender"):
        nexmark_contests(["q4"], contenders=["spark_jvm"], **HOW)
    with pytest.raises(ConfigurationError, match="there is no query 'q6'; the queries are q3; q4"):
        nexmark_contests(["q6"], contenders=None, **HOW)
    with pytest.raises(ConfigurationError, match="there is no contender 'nobody'"):
        nexmark_contests(["q4"], contenders=["nobody"], **HOW)


@pytest.mark.usefixtures("without_spark")
def test_the_tables_have_cores_and_time_and_what_a_peer_takes_beside_verbs() -> None:
    chosen = nexmark_contests(["q18", "q17"], contenders=None, **HOW)
    figures = document_of([measure.run(one, no_session) for one in chosen])
    console = Console(record=True, width=160, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    print_results(console, figures)
    lines = [line.replace(" ", "") for line in console.export_text().splitlines()]
    assert "│q18│verbs│250│250to250│4.0│0.50│2.0│3│7│" in lines
    assert "│q18│spark_jvm│100│100to100│10.0│0.50│5.0│3│7│" in lines
    assert {"│q18│spark_jvm│2.50│2.50│", "│q18│transform_with_state│4.00│4.00│"} <= set(lines)
    assert any("│spark_jvm│q17│" in line and "theanswertoq17iswrong" in line for line in lines)
    assert "Flink" not in console.export_text()
    found = parsed_document(json.loads(json.dumps(document("nexmark", figures))))
    assert found.workloads() == ["q18", "q17"]
    assert found.settings["rate"] == 10_000


@pytest.mark.usefixtures("without_spark")
def test_flink_stands_beside_verbs_with_what_one_job_takes_for_all_micro_batches() -> None:
    chosen = nexmark_contests(["q4"], contenders=None, flink=Path("python"), **HOW)
    figures = document_of([measure.run(one, no_session) for one in chosen])
    console = Console(record=True, width=160, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    print_results(console, figures)
    text = console.export_text()
    lines = [line.replace(" ", "") for line in text.splitlines()]
    assert "│q4│flink_rocksdb│83│83to83│12.0│1.00│12.0││7│" in lines
    assert {"│q4│flink_heap│2.00│4.00│", "│q4│flink_rocksdb│3.00│6.00│"} <= set(lines)
    assert "Flink 2.3.0, Java 17: one job for the events of all micro-batches" in text
    found = json.loads(json.dumps(document("nexmark", figures)))
    assert found["queries"]["q4"]["ratios"] == {"flink_heap": 2.0, "flink_rocksdb": 3.0}
    assert found["queries"]["q4"]["flink"]["checkpoints"] == {"flink_heap": [3, 3], "flink_rocksdb": [3, 3]}


@pytest.mark.usefixtures("without_spark")
def test_the_command_ends_with_1_where_an_answer_is_wrong_and_writes_the_figures_of_the_others(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    command = ["bench", "nexmark", "--events", "1001", "--batches", "2", "--rate", "250", "--json", str(written)]
    done = CliRunner().invoke(app, [*command, "--query", "q17"])
    assert done.exit_code == 1, done.output
    figures = json.loads(written.read_text())
    assert [(one["contender"], one["workload"]) for one in figures["failures"]] == [("spark_jvm", "q17")]
    assert [one["contender"] for one in figures["results"]] == ["verbs"]
    assert figures["settings"] | {"rows": 501, "batches": 2, "rate": 250, "out_of_order": 1_000} == figures["settings"]
    assert CliRunner().invoke(app, [*command, "--query", "q12"]).exit_code == 0


@pytest.mark.usefixtures("without_spark")
def test_the_figures_say_that_the_events_come_from_kafka_in_which_partitions(tmp_path: Path) -> None:
    written, page = tmp_path / "figures.json", tmp_path / "page.html"
    command = ["bench", "nexmark", "--query", "q4", "--events", "1001", "--batches", "2", "--json", str(written)]
    with listening() as address:
        done = CliRunner().invoke(app, [*command, "--kafka", address, "--partitions", "3"])
    assert done.exit_code == 0, done.output
    assert "6,000 events in 2 micro-batches of topics of Kafka" in done.output
    figures = json.loads(written.read_text())
    assert figures["settings"] | {"source": "kafka", "partitions": 3, "rows": 3_000} == figures["settings"]
    assert "files" not in figures["settings"]
    write_page(figures, page)
    assert "events in 2 micro-batches of topics of Kafka" in page.read_text()
    again = CliRunner().invoke(app, [*command, "--files", "3"])
    assert "1,002 events in 2 micro-batches\n" in re.sub(" +\n", "\n", again.output)
    assert "source" not in json.loads(written.read_text())["settings"]


def test_what_makes_no_sense_is_refused_before_anything_starts() -> None:
    for wrong, why in (
        (["--backend=nothing"], "nothing"),
        (["--out-of-order=953"], "no multiple of 953"),
        (["--kafka=broker"], "write --kafka HOST:PORT"),
    ):
        done = CliRunner().invoke(app, ["bench", "nexmark", *wrong])
        assert isinstance(done.exception, ConfigurationError)
        assert why in str(done.exception)

"""The settings of ``configure``, and the warnings of a session; refusals are in ``test_refusals.py``."""

import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond, SparkStreams, configure
from millpond.adapters.spark.configuring import _LOUD, shorten_uncaught
from millpond.adapters.spark.continuation.files import HadoopFiles
from millpond.adapters.spark.session import session as session_module
from millpond.adapters.spark.session.session import check_operator
from millpond.errors import ConfigurationError, PerformanceWarning
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The tests' session without what ``configure`` sets, and afterwards with the settings that it had."""
    before = {name: spark.conf.get(name, None) for name in (PROVIDER, CHANGELOG)}
    for name in before:
        spark.conf.unset(name)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def fresh(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own on the same two cores, which nobody has been warned of."""
    fresh = spark.newSession()
    fresh.conf.set(PROVIDER, ROCKSDB)
    yield fresh
    spark.range(0)  # makes the tests' session the active one again


def count(session: SparkSession, state: Path) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "int64"))
    words.group_by_key().count(Materialized("counts")).to("counts", Produced(schema="key string, value long"))
    streams = SparkStreams(builder.build(), application_id="words", state_dir=str(state), partitions=2)
    streams.transform({"words": session.createDataFrame([], "key string, value long, timestamp long")})


def test_shuffle_partitions_that_nobody_has_set_become_one_per_core(fresh: SparkSession, tmp_path: Path) -> None:
    fresh.conf.set(PARTITIONS, "7")
    count(fresh, tmp_path / "one")
    assert fresh.conf.get(PARTITIONS) == "7"
    fresh.conf.unset(PARTITIONS)
    count(fresh, tmp_path / "another")
    assert fresh.conf.get(PARTITIONS) == "2"


def test_a_running_session_is_given_what_millpond_needs(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"configure\(spark\)"):
        count(session, tmp_path)
    assert configure(session) is session
    assert (session.conf.get(PROVIDER), session.conf.get(CHANGELOG)) == (ROCKSDB, "true")
    count(session, tmp_path)


def test_a_running_session_keeps_its_choice_about_changelogs(session: SparkSession) -> None:
    session.conf.set(CHANGELOG, "false")
    configure(session)
    assert session.conf.get(CHANGELOG) == "false"


def test_a_builder_makes_a_session_with_what_millpond_needs(session: SparkSession) -> None:
    builder = SparkSession.builder.appName("any")
    assert configure(builder) is builder
    builder.getOrCreate()
    assert (session.conf.get(PROVIDER), session.conf.get(CHANGELOG)) == (ROCKSDB, "true")


def test_what_is_set_in_a_builder_afterwards_wins(session: SparkSession) -> None:
    configure(SparkSession.builder).config(CHANGELOG, "false").getOrCreate()
    assert session.conf.get(CHANGELOG) == "false"


def test_configure_says_in_one_line_what_it_has_set_and_why(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.conf.set(CHANGELOG, "false")
    with caplog.at_level("INFO", "millpond.spark.session"):
        configure(session)
        configure(session)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"configure set {PROVIDER} = {ROCKSDB} (Spark's operator for Python state runs on no other)")
    assert CHANGELOG not in line


@pytest.mark.first
def test_a_configured_session_reads_stores(spark: SparkSession, tmp_path: Path) -> None:
    builder = configure(SparkSession.builder.appName("any"))
    for session in (configure(spark.newSession()), builder.getOrCreate()):
        look = session.read.format("millpond").options(checkpoint=str(tmp_path), state_dir=str(tmp_path), store="any")
        with pytest.raises(PySparkException, match="there is no checkpoint"):
            look.load()
    spark.range(0)  # makes the tests' session the active one again


@pytest.mark.parametrize("other", [None, "local[2]"])
def test_configure_takes_nothing_else(other: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a SparkSession or SparkSession\.builder, not"):
        configure(other)


def test_far_more_shuffle_partitions_than_cores_are_worth_one_warning(fresh: SparkSession, tmp_path: Path) -> None:
    fresh.conf.set(PARTITIONS, "200")
    with pytest.warns(PerformanceWarning, match=r"is 200, but this session has 2 cores.*shuffle.partitions', 2\)"):
        count(fresh, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        count(fresh, tmp_path)


@pytest.mark.parametrize("partitions", ["4", "16"])
def test_some_more_shuffle_partitions_than_cores_are_not(fresh: SparkSession, tmp_path: Path, partitions: str) -> None:
    fresh.conf.set(PARTITIONS, partitions)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        count(fresh, tmp_path)


def test_the_driver_of_a_cluster_needs_a_python_with_millpond_where_executors_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "files"))
    settings: Any = {"spark.master": "spark://host:7077", PROVIDER: ROCKSDB, PARTITIONS: "2"}
    settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = "10000"
    cluster: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec="./env/bin/python", environment={"PYTHONPATH": "/own"}),
        conf=SimpleNamespace(get=lambda name, default=None: settings.get(name, default)),
    )
    with pytest.raises(
        ConfigurationError, match=r"starts \./env/bin/python for a verb .* that cannot run Millpond \(\[Err"
    ):
        check_operator(cluster)
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    session_module._why_not.cache_clear()
    check_operator(cluster)
    assert cluster.sparkContext.environment == {"PYTHONPATH": "/own"}
    brought = str(tmp_path / "files" / "millpond.zip")
    monkeypatch.setattr(sys, "path", [brought, *sys.path])
    for _ in range(2):
        check_operator(cluster)
    assert cluster.sparkContext.environment == {"PYTHONPATH": f"{brought}{os.pathsep}/own"}


def test_a_session_of_spark_connect_does_not_reach_files_and_a_classic_one_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    without_jvm: Any = SimpleNamespace()
    with pytest.raises(
        ConfigurationError, match=r"Spark Connect does not reach .*; .* SparkSession\.builder\.master\("
    ):
        HadoopFiles.of(without_jvm)
    files = HadoopFiles.of(SparkSession.builder.master("local[2, 4]").getOrCreate())
    files.write(f"{tmp_path}/note", "written")
    assert files.read(f"{tmp_path}/note") == (tmp_path / "note").read_text() == "written"


def test_what_has_no_session_is_told_to_start_one_which_any_thread_may_have_done(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond = Millpond(application_id="none", state_dir=str(tmp_path), backend="memory")

    def late_rows() -> list[Any]:
        return pond.late_rows().collect()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(SparkSession.getActiveSession).result() is None
        assert thread.submit(late_rows).result() == []
    with ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
        with pytest.raises(ConfigurationError, match=r"no Spark session; start one .*: SparkSession\.builder\.getOrCr"):
            thread.submit(late_rows).result()
        thread.submit(SparkSession.builder.getOrCreate).result()
        assert thread.submit(late_rows).result() == []


def local_session(python: str, **settings: str) -> Any:
    """Return a stand-in for a local session whose workers run that Python."""
    there = {"spark.master": "local[2]", **settings}
    return SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec=python),
        conf=SimpleNamespace(get=lambda name, default=None: there.get(name, default)),
    )


def test_workers_on_this_machine_run_the_python_of_the_program_unless_one_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    plain = local_session("python-that-is-not-there")
    assert session_module.give_own_python(plain) == plain.sparkContext.pythonExec == sys.executable
    assert session_module.give_own_python(plain) is None
    chosen = {"spark.pyspark.python": "another"}, {"spark.master": "spark://host:7077"}
    for settings in chosen:
        other = local_session("another", **settings)
        assert session_module.give_own_python(other) is None
        assert other.sparkContext.pythonExec == "another"
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    assert session_module.give_own_python(local_session("another")) is None


def test_loggers_of_what_works_tell_of_errors_alone(session: SparkSession) -> None:
    configure(session)
    log4j = session.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in _LOUD:
        assert log4j.LogManager.getLogger(name).getLevel().toString() == "ERROR"
    options = configure(SparkSession.builder)._options
    assert options["spark.ui.showConsoleProgress"] == "false"
    wanted = configure(SparkSession.builder.config("spark.ui.showConsoleProgress", "true"))
    assert wanted._options["spark.ui.showConsoleProgress"] == "true"


FAILED = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the Python \
worker: millpond.errors.UserFunctionError: verb 'totals', customer='ann': ValueError: boom (task 0_0, row n=1)
raised in process, job.py:24; nothing of this micro-batch was kept
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan:
~WriteToMicroBatchDataSourceV1
"""


def test_a_failure_that_nobody_catches_is_printed_by_what_millpond_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    shorten_uncaught()
    for text, shown in ((FAILED, "verb 'totals', customer='ann': ValueError: boom"), ("no table", "no table")):
        try:
            raise PySparkException(text)
        except PySparkException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        said = capsys.readouterr().err
        assert shown in said
        assert "raise PySparkException(text)" in said
        assert "~WriteToMicroBatch" not in said
        assert said.count("left out here") == (text == FAILED)
    monkeypatch.setattr(sys, "excepthook", print)
    shorten_uncaught()
    assert sys.excepthook is print

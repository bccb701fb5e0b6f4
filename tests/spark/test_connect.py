"""Jobs run through Spark Connect as they do in a classic session."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")

from tests.spark.orders import in_process, random_events

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

JOB = Path(__file__).with_name("connect_job.py")


def started(directory: Path, python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the ended job, which had a server of its own whose workers ran this Python."""
    # Under test, PySpark's server takes a free port instead of a fixed one.
    environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_TESTING": "1"}
    return subprocess.run(
        [sys.executable, str(JOB), str(directory), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=directory,
        check=False,
    )


def run(directory: Path, python: str) -> dict[str, Any]:
    """Return what a session of Spark Connect gave."""
    done = started(directory, python)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["session"].startswith("pyspark.sql.connect")
    return result


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what came out with the Python that the refusal of one without packages names, and that refusal."""
    directory = tmp_path_factory.mktemp("connect")
    bare = directory / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    refused = run(directory, str(bare))
    python = re.search(r"to a Python that has it, such as (\S+) if", refused["bare workers"])
    assert python is not None, refused
    return {**refused, **run(directory, python[1])}


def test_a_count_goes_on_where_it_stopped(found: dict[str, Any]) -> None:
    assert found["first run"]["written"] == [["a", 2], ["b", 1]]
    assert found["second run"]["written"] == [["a", 2], ["a", 3], ["b", 1], ["c", 1]]


def test_the_log_gets_a_line_for_a_micro_batch(found: dict[str, Any]) -> None:
    (line,) = found["lines"]
    assert re.match(r"query [0-9a-f-]{36}, batch 0: operator\.0: 3 in, 2 out, lag .*; words: 3 in, 3 out, ", line)


def test_its_store_can_be_read(found: dict[str, Any]) -> None:
    assert found["first run"]["stored"] == [["a", 2], ["b", 1]]
    assert found["second run"]["stored"] == [["a", 3], ["b", 1], ["c", 1]]


def test_static_frames_are_joined_as_in_process(found: dict[str, Any]) -> None:
    expected = [
        [key, order["item"], order["amount"], order["rate"], at]
        for key, order, at in in_process("rated", random_events(3, 60))
    ]
    assert sorted(found["join"], key=repr) == sorted(expected, key=repr)


def test_verbs_are_chained(found: dict[str, Any]) -> None:
    assert found["verbs"] == [["EUR", 6.5]]


def test_a_verb_is_called_at_its_dataframe(found: dict[str, Any]) -> None:
    assert found["at rows"] == [["a", 0], ["a", 1]]


def test_a_function_gets_the_changes_of_a_streaming_verb_batch_by_batch(found: dict[str, Any]) -> None:
    assert found["each batch"] == [["a", 3], ["b", 1], ["c", 1]]


def test_a_topology_without_state_runs(found: dict[str, Any]) -> None:
    assert found["stateless"] == [["b", 2]]


def test_workers_whose_python_lacks_millpond_are_refused(found: dict[str, Any]) -> None:
    assert "No module named" in found["bare workers"]
    assert "set the environment variable PYSPARK_PYTHON" in found["bare workers"]


def test_another_state_store_provider_is_refused_until_the_session_is_configured(found: dict[str, Any]) -> None:
    assert "keeps its state with some.other.Provider" in found["other provider"]
    assert found["configured"] == "not refused"


def test_two_hundred_shuffle_partitions_are_worth_one_warning(found: dict[str, Any]) -> None:
    (warning,) = found["warnings"]
    assert warning.startswith("PerformanceWarning: spark.sql.shuffle.partitions is 200, but this session has 2 cores")


def test_an_uncaught_failure_ends_on_the_sentence_that_names_verb_key_and_column(tmp_path: Path) -> None:
    done = started(tmp_path, sys.executable, "fails")
    assert done.returncode == 1
    said, aside = done.stderr.splitlines()[-2:]
    assert re.search(r"verb 'totals'.*column 'at'.*'customer': 'c1'.*\[MILLPOND-[A-Z-]+\]$", said), done.stderr[-3000:]
    assert aside == "(Spark's plan and stack are left out here)"

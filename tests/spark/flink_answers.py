"""Flink SQL answers what Millpond does in each workload of ``millpond bench spark`` that it has, and in Nexmark.

``make test-flink`` makes the environment that this needs and runs it. No other target collects this file, because its
name does not begin like that of a test.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.bench.flink.jobs import FlinkJobs
from millpond.bench.flink.process import FlinkProcess, flink_process
from millpond.bench.flink.settings import STATE_BACKENDS
from millpond.bench.nexmark.suite import QUERIES
from millpond.bench.spark.inputs import Source, write_inputs
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import WORKLOADS, Answer, Workload
from tests.spark import test_nexmark as nexmark
from tests.spark.bench_answers import BACKEND, BATCHES, SCALE, common_part, written_by

pytestmark = pytest.mark.spark

IN_FLINK = [name for name, workload in WORKLOADS.items() if workload.in_flink]
CORES = 2


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkProcess]:
    interpreter = Path(os.environ["MILLPOND_FLINK_PYTHON"])
    with flink_process(interpreter, tmp_path_factory.mktemp("flink")) as made:
        yield made


def jobs_on(process: FlinkProcess, place: Path, workload: Workload[Source], scale: Scale) -> FlinkJobs:
    rows_of = partial(workload.rows_of, place, scale)
    return FlinkJobs(process, place, rows_of, rows=scale.rows, cores=CORES, more="rows")


@pytest.mark.parametrize("name", IN_FLINK)
def test_flink_gives_the_same_answers(name: str, process: FlinkProcess, spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    write_inputs(tmp_path, workload.topics, SCALE, BATCHES)
    on_spark = written_by(spark, tmp_path, workload, workload.contenders([BACKEND])[BACKEND])
    jobs = jobs_on(process, tmp_path, workload, SCALE)
    for contender, how in workload.in_flink.items():
        query = how.query(SCALE)
        answer = Answer.TABLE if query.is_table else workload.answer
        expected = common_part(answer, on_spark)
        assert len(expected) >= SCALE.keys
        given = jobs.answer(query, how.state_backend, BATCHES).to_pylist()
        assert common_part(answer, given) == expected, contender


@pytest.mark.parametrize("name", QUERIES)
def test_flink_answers_the_queries_of_nexmark(name: str, process: FlinkProcess, tmp_path: Path) -> None:
    found = nexmark.contest(name)
    found.work.write(tmp_path, found.work.topics, nexmark.SCALE, nexmark.BATCHES)
    jobs = jobs_on(process, tmp_path, found.work, nexmark.SCALE)
    for contender, how in found.work.in_flink.items():
        answer = jobs.answer(how.query(nexmark.SCALE), how.state_backend, nexmark.BATCHES)
        found.check(tmp_path, contender, nexmark.BATCHES, partial(list, [answer]))
    assert found.checked.keys() == STATE_BACKENDS.keys()
    assert len(set(found.checked.values())) == 1
    assert min(found.checked.values()) > 1


def test_a_job_of_flink_is_timed_and_saves_its_state(process: FlinkProcess, tmp_path: Path) -> None:
    workload = WORKLOADS["count"]
    scale = Scale(500_000, 1_000, files=2)
    write_inputs(tmp_path, workload.topics, scale, 6)
    jobs = jobs_on(process, tmp_path, workload, scale)
    for how in workload.in_flink.values():
        assert jobs.measure(how.query(scale), how.state_backend, 1, 0) is None
        ran = jobs.measure(how.query(scale), how.state_backend, 1, 5)
        assert ran is not None
        assert ran.seconds > 0
        assert ran.processor > 0
        assert ran.checkpoints > 0
        assert ran.versions["flink"].startswith("2.")

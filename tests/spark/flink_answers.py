"""Flink SQL answers what Millpond does, in each workload of ``millpond bench spark`` that it has.

``make test-flink`` makes the environment that this needs and runs it. No other target collects this file, because its
name does not begin like that of a test.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.bench.spark.flink.jobs import FlinkJobs
from millpond.bench.spark.flink.process import FlinkProcess, flink_process
from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import WORKLOADS, Answer
from tests.spark.bench_answers import BACKEND, BATCHES, SCALE, common_part, written_by

pytestmark = pytest.mark.spark

IN_FLINK = [name for name, workload in WORKLOADS.items() if workload.in_flink]
CORES = 2


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkProcess]:
    interpreter = Path(os.environ["MILLPOND_FLINK_PYTHON"])
    with flink_process(interpreter, tmp_path_factory.mktemp("flink")) as made:
        yield made


@pytest.mark.parametrize("name", IN_FLINK)
def test_flink_gives_the_same_answers(name: str, process: FlinkProcess, spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    write_inputs(tmp_path, workload.topics, SCALE, BATCHES)
    on_spark = written_by(spark, tmp_path, workload, workload.contenders([BACKEND])[BACKEND])
    jobs = FlinkJobs(process, tmp_path, workload.topics, SCALE, CORES)
    for contender, how in workload.in_flink.items():
        answer = Answer.TABLE if how.query.table else workload.answer
        expected = common_part(answer, on_spark)
        assert len(expected) >= SCALE.keys
        assert common_part(answer, jobs.answers(how, BATCHES)) == expected, contender


def test_a_job_of_flink_is_timed_and_saves_its_state(process: FlinkProcess, tmp_path: Path) -> None:
    workload = WORKLOADS["count"]
    scale = Scale(500_000, 1_000, files=2)
    write_inputs(tmp_path, workload.topics, scale, 6)
    jobs = FlinkJobs(process, tmp_path, workload.topics, scale, CORES)
    for contender in workload.in_flink.values():
        assert jobs.measure(contender, 1, 0).seconds == []
        ran = jobs.measure(contender, 1, 5)
        assert ran.stream is not None
        assert ran.seconds[0] > 0
        assert ran.stream.checkpoints > 0
        assert ran.stream.versions["flink"].startswith("2.")

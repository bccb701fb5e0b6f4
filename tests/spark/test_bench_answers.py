"""``millpond bench spark`` compares like with like: in each workload, all contenders give the same answers."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.bench.spark.inputs import ACCOUNTS_PER_SEGMENT, write_inputs
from millpond.bench.spark.queries import measure
from millpond.bench.spark.workloads import COSTS, WORKLOADS
from tests.spark.bench_answers import BACKEND, BATCHES, SCALE, common_part, written_by

pytestmark = pytest.mark.spark

MOSTLY = ("count", "temporal-join", "table-join", "stream-join-left", "session-aggregates", "hot-keys", "chain")
"""The workloads that are compared with every change; make test-exhaustive compares them all."""


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in MOSTLY else pytest.mark.exhaustive) for name in WORKLOADS]
)
def test_all_contenders_give_the_same_answers(name: str, spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    write_inputs(tmp_path, workload.topics, SCALE, BATCHES)
    mute = {peer for peer, found in workload.all_peers.items() if not found.answers}
    answers = {
        contender: common_part(workload.answer, written_by(spark, tmp_path, workload, how))
        for contender, how in workload.contenders([BACKEND]).items()
        if contender not in mute
    }
    first, *others = answers
    fewer = {"feed-aggregate": ACCOUNTS_PER_SEGMENT, "skewed-key": SCALE.keys}
    assert len(answers[first]) >= SCALE.keys // fewer.get(name, 1)
    assert set(others) & set(workload.all_peers)
    for contender in others:
        assert answers[contender] == answers[first], contender


@pytest.mark.slow
def test_contenders_that_only_move_rows_get_all_of_them(spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS["table-join"]
    write_inputs(tmp_path, workload.topics, SCALE, 1)
    contenders = workload.contenders([BACKEND])
    moved = [written_by(spark, tmp_path, workload, contenders[name], 1) for name in COSTS]
    assert [len(rows) for rows in moved] == [SCALE.rows, 0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_each_micro_batch_is_timed_and_the_memory_of_workers_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS["count"]
    write_inputs(tmp_path, workload.topics, SCALE, 3)
    contenders = workload.contenders([BACKEND])
    in_python, in_jvm = (
        measure(spark, tmp_path, workload, contenders[name], SCALE, skipped=1, counted=2)
        for name in ("map_in_arrow", "spark_jvm")
    )
    assert len(in_python.seconds) == len(in_jvm.seconds) == 2
    assert all(seconds > 0 for seconds in (*in_python.seconds, *in_jvm.seconds))
    for ran in (in_python, in_jvm):
        assert ran.processor is not None
        assert 0 < ran.processor < 64 * sum(ran.seconds)
    assert in_python.memory.resident > in_python.memory.own > 10 << 20
    assert in_jvm.memory.resident == 0
    assert in_jvm.disk > in_python.disk == 0  # the one keeps counts in the checkpoint

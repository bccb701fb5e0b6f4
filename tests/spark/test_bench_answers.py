"""``millpond bench spark`` compares like with like: in each workload, all contenders give the same answers."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row, SparkSession

from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.queries import measure, writer_of
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import COSTS, VERBS, WORKLOADS, Answer, Contender, Workload

pytestmark = pytest.mark.spark

BACKEND = "memory"
SCALE = Scale(400, 80, files=2)
BATCHES = 4

Rows = Counter[tuple[tuple[str, Any], ...]]


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_all_contenders_give_the_same_answers(name: str, spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    write_inputs(tmp_path, workload.topics, SCALE, BATCHES)
    peers = {peer for peer, found in workload.all_peers.items() if found.answers}
    contenders = workload.contenders(BACKEND)
    answers = {
        contender: common_part(workload.answer, written_by(spark, tmp_path, workload, contenders[contender]))
        for contender in contenders
        if contender in {BACKEND, VERBS, *peers}
    }
    expected = answers.pop(BACKEND)
    assert len(expected) >= SCALE.keys
    assert set(answers) >= peers
    for contender, answer in answers.items():
        assert answer == expected, contender


@pytest.mark.slow
def test_contenders_that_only_move_rows_get_all_of_them(spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS["table-join"]
    write_inputs(tmp_path, workload.topics, SCALE, 1)
    contenders = workload.contenders(BACKEND)
    moved = [written_by(spark, tmp_path, workload, contenders[name], 1) for name in COSTS]
    assert [len(rows) for rows in moved] == [SCALE.rows, 0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_each_micro_batch_is_timed_and_the_memory_of_workers_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS["count"]
    write_inputs(tmp_path, workload.topics, SCALE, 2)
    contenders = workload.contenders(BACKEND)
    in_python, in_jvm = (
        measure(spark, tmp_path, workload, contenders[name], SCALE, 2) for name in ("map_in_arrow", "spark_jvm")
    )
    assert len(in_python.seconds) == len(in_jvm.seconds) == 2
    assert all(seconds > 0 for seconds in (*in_python.seconds, *in_jvm.seconds))
    assert in_python.memory.resident > in_python.memory.own > 10 << 20
    assert in_jvm.memory.resident == 0


def written_by(
    spark: SparkSession, place: Path, workload: Workload, contender: Contender, batches: int = BATCHES
) -> list[Row]:
    """All rows that the contender's query writes."""
    writer = writer_of(spark, place, workload, contender, SCALE, batches)
    writer.format("memory").queryName("answers").start().awaitTermination()
    rows = spark.table("answers").collect()
    spark.catalog.dropTempView("answers")
    return rows


def common_part(answer: Answer, rows: Iterable[Row]) -> Rows:
    """How often there is each row, of those in which contenders may not differ."""
    found = [row.asDict() for row in rows]
    if answer is Answer.SETTLED:
        settled = SCALE.rows * (BATCHES - 1)  # time begins with the length of a micro-batch
        found = [row for row in found if (row["window_end"] if "window_end" in row else row["timestamp"]) <= settled]
    if answer is Answer.TABLE:
        found = list({row["key"]: row for row in sorted(found, key=lambda row: row["timestamp"])}.values())
    return Counter(tuple(sorted(row.items())) for row in found)

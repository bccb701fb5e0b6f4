"""The answers of contenders of ``millpond bench spark`` on a small scale, and the part that is the same for all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import SparkSession

from millpond.bench.spark.inputs import Source
from millpond.bench.spark.queries import writer_of
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import Answer, Contender, Workload

BACKEND = "memory"
SCALE = Scale(400, 80, files=2)
BATCHES = 6
SETTLED = 3
"""Of how many micro-batches the time is over at the end, for three verbs in a chain, each of which waits for one."""

Rows = Counter[tuple[tuple[str, Any], ...]]


def written_by(
    spark: SparkSession, place: Path, workload: Workload[Source], contender: Contender, batches: int = BATCHES
) -> list[dict[str, Any]]:
    """Return all rows that the contender's query writes."""
    own = Path(mkdtemp(dir=place))
    writer = writer_of(spark, place, workload, contender, SCALE, batches, own)
    writer.format("memory").queryName("answers").start().awaitTermination()
    rows = spark.table("answers").collect()
    spark.catalog.dropTempView("answers")
    return [row.asDict() for row in rows]


def common_part(answer: Answer, rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Return how often there is each row, of those in which contenders may not differ."""
    found = list(rows)
    if answer is Answer.SETTLED:
        settled = SCALE.rows * SETTLED  # time begins with the length of a micro-batch
        found = [row for row in found if (row["window_end"] if "window_end" in row else row["timestamp"]) <= settled]
    if answer in (Answer.TABLE, Answer.UNTIMED_TABLE):
        found = list({row["key"]: row for row in sorted(found, key=_progress)}.values())
    if answer is Answer.UNTIMED_TABLE:
        found = [{name: value for name, value in row.items() if name != "timestamp"} for row in found]
    return Counter(tuple(sorted(row.items())) for row in found)


def _progress(row: Mapping[str, Any]) -> int:
    """Return what does not go back from one row of a key to its next: its time, or a count."""
    made: int = row["timestamp"] if "timestamp" in row else row["value"]
    return made

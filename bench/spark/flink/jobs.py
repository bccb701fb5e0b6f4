"""One contender of Flink: its jobs, their times, and their answers.

Flink has no micro-batches. So it runs the first rows, and then those and the others; the difference is what the others
take, and neither start nor end is in it.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.bench.spark.flink.process import FlinkProcess
from millpond.bench.spark.flink.queries import FlinkContender, Table, settings_of, tables_of
from millpond.bench.spark.inputs import Source
from millpond.bench.spark.queries import Ran, Streamed
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.errors import ConfigurationError, MillpondError

ARROW_ROWS: Final = 5_000
"""Rows that are read at once. Tasks that read take turns at these, so each sees its rows in the order of time."""

_COMES: Final = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}

Row = Mapping[str, Any]
"""Values by column."""


class FlinkJobs:
    """The jobs of contenders on the inputs of one workload.

    Args:
        process: where they run.
        place: where ``write_inputs`` has written.
        topics: what is read.
        scale: how much that is.
        cores: parallel tasks.
    """

    def __init__(self, process: FlinkProcess, place: Path, topics: Sequence[Source], scale: Scale, cores: int) -> None:
        self._process = process
        self._place = place
        self._topics = topics
        self._scale = scale
        self._cores = cores

    def measure(self, contender: FlinkContender, skipped: int, counted: int) -> Ran:
        """Return the time of a micro-batch's rows after the first ``skipped``, as the mean of ``counted``.

        Raises:
            MillpondError: a job failed, or had too few rows for a difference.
        """
        first, spent_on_first = self._run(contender, skipped)
        if not counted:
            return Ran([], WorkerMemory())
        both, spent_on_both = self._run(contender, skipped + counted)
        ran = [job["running_seconds"] for job in (first, both)]
        if None in ran or ran[0] >= ran[1]:
            raise ConfigurationError(
                f"{skipped} and {skipped + counted} micro-batches of {self._scale.rows:,} rows are over too soon to be "
                "told apart in Flink; give more rows"
            )
        seconds = (ran[1] - ran[0]) / counted
        start_up = self._process.start_seconds + both["seconds"] - seconds * (skipped + counted)
        streamed = Streamed(start_up, both["checkpoints"], self._process.versions)
        return Ran([seconds], WorkerMemory(), max(0.0, spent_on_both - spent_on_first), stream=streamed)

    def _run(self, contender: FlinkContender, batches: int) -> tuple[dict[str, Any], float]:
        """Return the answer of a job, and the seconds of the processor that it took."""
        before = self._process.processor_seconds()
        answer = self._process.ask(self._job(contender, batches))
        return answer, self._process.processor_seconds() - before

    def answers(self, contender: FlinkContender, batches: int) -> list[Row]:
        """Return the rows that there are in the end, when all changes are done; times are milliseconds."""
        answer = self._process.ask(self._job(contender, batches, collect=True))
        return final_rows(answer["columns"], answer["changes"])

    def _job(self, contender: FlinkContender, batches: int, *, collect: bool = False) -> dict[str, Any]:
        own = Path(tempfile.mkdtemp(prefix="flink-", dir=self._place))
        return {
            "settings": settings_of(contender.state_backend, self._cores, own),
            "tables": [self._with_rows(table, batches) for table in tables_of(contender.query, self._topics)],
            "query": contender.query.select(self._scale),
            "collect": collect,
        }

    def _with_rows(self, table: Table, batches: int) -> dict[str, Any]:
        file = self._place / f"{table.topic}-{batches}.arrow"
        if not file.exists():
            write_rows(file, self._place / table.topic, batches, [name for name, _ in table.columns])
        return {
            "source": table.source,
            "file": str(file),
            "columns": table.columns,
            "definition": table.definition,
        }


def write_rows(file: Path, directory: Path, batches: int, columns: Sequence[str]) -> None:
    """Write the first micro-batches of a topic as a stream of Arrow batches.

    Args:
        file: where to.
        directory: the topic's, with a Parquet file or more for each micro-batch.
        batches: how many micro-batches.
        columns: which columns, in order.
    """
    parts = [part for number in range(batches) for part in sorted(directory.glob(f"{number:06d}-*.parquet"))]
    rows = pa.concat_tables([pq.read_table(part, columns=list(columns)) for part in parts]).combine_chunks()
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=ARROW_ROWS)


def final_rows(columns: Sequence[str], changes: Iterable[tuple[str, Sequence[Any]]]) -> list[Row]:
    """Return the rows that are left of a stream of changes.

    Args:
        columns: their names.
        changes: what becomes of which row, in Flink's short words.

    Raises:
        MillpondError: a row goes that has not come.
    """
    left: Counter[tuple[Any, ...]] = Counter()
    for kind, row in changes:
        left[tuple(row)] += _COMES[kind]
    if min(left.values(), default=0) < 0:
        raise MillpondError("Flink takes back rows that it has not given")
    return [dict(zip(columns, row, strict=True)) for row in left.elements()]

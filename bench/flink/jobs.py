"""One contender of Flink: its jobs, their times, and their answers.

Flink has no micro-batches. So it runs the first rows, and then those and the others; the difference is what the others
take, and neither start nor end is in it. Times and processor times are those while tasks take rows.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from millpond.bench.flink.process import FlinkProcess
from millpond.bench.flink.queries import FlinkQuery, Table
from millpond.bench.flink.settings import settings_of
from millpond.errors import ConfigurationError, MillpondError

ARROW_ROWS: Final = 5_000
"""Rows that are read at once. Tasks that read take turns at these, so each sees its rows in the order of the file."""

_TYPES: Final = {
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "VARCHAR",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
}
"""DuckDB's types of the columns of an answer, by Flink's."""

RowsOf = Callable[[str, int, Sequence[str]], pa.Table]
"""Returns the rows of a kind, given its name, how many micro-batches, and the columns, in the order of a stream."""


@dataclass(frozen=True)
class Streamed:
    """The times of a job that starts once and then saves its state by the clock.

    Attributes:
        seconds: of the rows of a micro-batch, as the mean of all that count.
        processor: seconds that Flink's processes spent on all rows that count, on all cores together.
        start_up: seconds that it took beside its rows.
        checkpoints: how often it saved its state.
        versions: of what ran it, by name.
    """

    seconds: float
    processor: float
    start_up: float
    checkpoints: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class _Job:
    """The seconds of a job, those in which its tasks took its rows (None if unseen), and of the processor in these."""

    seconds: float
    running: float | None
    processor: float
    checkpoints: int


class FlinkJobs:
    """Jobs on one input.

    Args:
        process: where they run.
        place: a directory for their files.
        rows_of: gives the input.
        rows: how many rows a micro-batch has.
        cores: parallel tasks.
        more: the option by which a micro-batch gets more rows.
    """

    def __init__(
        self, process: FlinkProcess, place: Path, rows_of: RowsOf, *, rows: int, cores: int, more: str
    ) -> None:
        self._process = process
        self._place = place
        self._rows_of = rows_of
        self._rows = rows
        self._cores = cores
        self._more = more

    def measure(self, query: FlinkQuery, state_backend: str, skipped: int, counted: int) -> Streamed | None:
        """Return the time of a micro-batch's rows after the first ``skipped``, as the mean of ``counted``.

        Without any that count, the first are run, and there is no time.

        Raises:
            MillpondError: a job failed, or had too few rows for a difference.
        """
        first = self._run(query, state_backend, skipped)
        if not counted:
            return None
        both = self._run(query, state_backend, skipped + counted)
        if first.running is None or both.running is None or first.running >= both.running:
            raise ConfigurationError(
                f"{skipped} and {skipped + counted} micro-batches of {self._rows:,} rows are over too soon to be told "
                f"apart in Flink; give more {self._more}"
            )
        seconds = (both.running - first.running) / counted
        start_up = self._process.start_seconds + both.seconds - seconds * (skipped + counted)
        processor = max(0.0, both.processor - first.processor)
        return Streamed(seconds, processor, start_up, both.checkpoints, self._process.versions)

    def _run(self, query: FlinkQuery, state_backend: str, batches: int) -> _Job:
        answer, spent = self._process.watched(self._job(query, state_backend, batches))
        began, ended = answer["running"] or (0.0, 0.0)
        running = ended - began if ended else None
        return _Job(answer["seconds"], running, spent.between(began, ended), answer["checkpoints"])

    def answer(self, query: FlinkQuery, state_backend: str, batches: int) -> pa.Table:
        """Return the rows that there are in the end, when all changes are done; times are milliseconds.

        Raises:
            MillpondError: the job failed, or took back a row that it had not given.
        """
        changes = Path(tempfile.mkdtemp(prefix="flink-changes-", dir=self._place))
        told = self._process.ask({**self._job(query, state_backend, batches), "changes": changes.as_uri()})
        return final_rows(changes, told["columns"])

    def _job(self, query: FlinkQuery, state_backend: str, batches: int) -> dict[str, Any]:
        own = Path(tempfile.mkdtemp(prefix="flink-", dir=self._place))
        return {
            "settings": settings_of(state_backend, self._cores, own),
            "tables": [self._with_rows(table, batches) for table in query.tables],
            "query": query.sql,
        }

    def _with_rows(self, table: Table, batches: int) -> dict[str, Any]:
        file = self._place / f"{table.name}-{batches}.arrow"
        if not file.exists():
            write_rows(file, self._rows_of(table.name, batches, [name for name, _ in table.columns]))
        return {
            "source": table.source,
            "file": str(file),
            "columns": table.columns,
            "definition": table.definition,
        }


def write_rows(file: Path, rows: pa.Table) -> None:
    """Write rows as a stream of Arrow batches; Flink reads timestamps that have no time zone."""
    types = [pa.timestamp("ms") if pa.types.is_timestamp(field.type) else field.type for field in rows.schema]
    plain = rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True)))).combine_chunks()
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, plain.schema) as stream:
        stream.write_table(plain, max_chunksize=ARROW_ROWS)


def final_rows(changes: Path, columns: Sequence[tuple[str, str]]) -> pa.Table:
    """Return the rows that are left of a stream of changes, with times as integers of milliseconds.

    Args:
        changes: the directory of the changes, in Debezium's JSON: what comes is ``after``, and what goes ``before``.
        columns: names and Flink's types of the columns.

    Raises:
        MillpondError: a row goes that has not come.
    """
    row = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in columns)
    names = ", ".join(f'"{name}"' for name, _ in columns)
    shown = ", ".join(
        f'epoch_ms("{name}") AS "{name}"' if kind.startswith("TIMESTAMP") else f'"{name}"' for name, kind in columns
    )
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE changes (before STRUCT({row}), after STRUCT({row}), op VARCHAR)")
    files = [str(file) for file in sorted(changes.glob("part-*"))]
    if files:
        told = f"format='newline_delimited', columns={{before: 'STRUCT({row})', after: 'STRUCT({row})', op: 'VARCHAR'}}"
        connection.execute(f"INSERT INTO changes FROM read_json(?, {told})", [files])
    connection.execute(
        f"""CREATE TABLE counted AS SELECT {names}, sum(sign)::BIGINT AS "row count"
            FROM (SELECT unnest(coalesce(after, before)), CASE op WHEN 'c' THEN 1 ELSE -1 END AS sign FROM changes)
            GROUP BY {names}"""
    )
    if connection.execute('FROM counted WHERE "row count" < 0').fetchall():
        raise MillpondError("Flink takes back rows that it has not given")
    found: pa.Table = connection.sql(
        f'SELECT {shown} FROM (SELECT *, unnest(range("row count")) FROM counted)'
    ).to_arrow_table()
    return found

"""An overview as Prometheus reads it, in its text format 0.0.4.

Rule of this module: all figures are gauges, those of the last micro-batch, in seconds and bytes. What nobody has told
is left out; a state that a query may be in is always there, as 0 or 1.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from millpond.adapters.monitor.diagnosis.finding import State
from millpond.adapters.monitor.overview import Overview

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

HELP: Final[Mapping[str, str]] = {
    "millpond_batch": "The number of the last micro-batch that was committed.",
    "millpond_commit_age_seconds": "How long ago that was.",
    "millpond_open_batch_age_seconds": "How long ago the micro-batch was begun that is not committed.",
    "millpond_query_restarts": "How often the query was started again.",
    "millpond_query_failed": "Whether the last run ended by an error, whose code is a label.",
    "millpond_finding": "Whether the query is in a bad state that docs/doctor.md explains.",
    "millpond_batch_duration_seconds": "How long the last micro-batch took.",
    "millpond_batch_rows": "How many rows it read.",
    "millpond_batch_input_rows_per_second": "How many rows there were a second since the one before was begun.",
    "millpond_batch_processed_rows_per_second": "How many rows it processed a second.",
    "millpond_source_behind_records": "How many records a source is behind.",
    "millpond_operator_tasks": "How many tasks of an operator were run.",
    "millpond_operator_records_in": "What came in.",
    "millpond_operator_records_out": "What went out.",
    "millpond_operator_records_dropped": "Records that were dropped.",
    "millpond_operator_records_late": "Records that were late.",
    "millpond_operator_records_waiting": "Records that wait.",
    "millpond_operator_lag_seconds": "How far the task that is furthest behind is behind the wall clock.",
    "millpond_operator_stream_time_seconds": "The earliest stream time of a task, since 1970.",
    "millpond_operator_files_retained": "The most durable files that a task had after its last snapshot.",
    "millpond_task_records_in": "What came into a task.",
    "millpond_task_records_out": "What went out of it.",
    "millpond_task_records_dropped": "Records that it dropped.",
    "millpond_task_records_late": "Records that were late for it.",
    "millpond_task_rows": "The rows that it has changed.",
    "millpond_task_file_bytes": "The bytes of its durable file.",
    "millpond_task_state_bytes": "The bytes of its local copies.",
    "millpond_task_open_seconds": "How long it took to open its stores.",
    "millpond_task_process_seconds": "How long it processed records.",
    "millpond_task_commit_seconds": "How long its commit took.",
    "millpond_task_duration_seconds": "How long it took in all.",
    "millpond_store_bytes": "The bytes that a store has in durable files.",
    "millpond_limit_used_bytes": "How much is used of what ends, where it is nearest to its end.",
    "millpond_limit_bytes": "How much there is of it.",
}
"""The explanation of each figure, in the order in which they come."""

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """One figure: its name, its labels, and its value; None if it is not known."""

    name: str
    labels: Mapping[str, str]
    value: float | None

    def line(self, query: Mapping[str, str]) -> str:
        """Return the sample as a line, with the labels of its query."""
        labels = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in {**query, **self.labels}.items())
        return f"{self.name}{{{labels}}} {self.value:.15g}"


def exposed(overview: Overview) -> str:
    """Return the figures of a query."""
    query = {"query": overview.query, "name": overview.name or ""}
    lines: dict[str, list[str]] = {name: [] for name in HELP}
    for sample in _samples(overview):
        if sample.value is not None:
            lines[sample.name].append(sample.line(query))
    parts = (
        f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n" + "".join(f"{line}\n" for line in found)
        for name, found in lines.items()
        if found
    )
    return "".join(parts)


def _samples(overview: Overview) -> Iterator[Sample]:
    yield from _of_query(overview)
    for source in overview.sources:
        yield Sample("millpond_source_behind_records", {"source": source.name}, source.behind)
    yield from _of_operators(overview)
    yield from _of_tasks(overview)
    for store in overview.stores:
        of_store = {"application": store.application, "sink": store.sink, "store": store.store}
        yield Sample("millpond_store_bytes", of_store, store.size)
    for limit in overview.limits:
        of = {"what": limit.what, "task": limit.of}
        yield Sample("millpond_limit_used_bytes", of, limit.used)
        yield Sample("millpond_limit_bytes", of, limit.limit)


def _of_query(overview: Overview) -> Iterator[Sample]:
    yield Sample("millpond_batch", {}, overview.batch)
    yield Sample("millpond_commit_age_seconds", {}, _seconds(overview.commit_age))
    if overview.open_since is not None:
        yield Sample("millpond_open_batch_age_seconds", {}, _seconds(overview.at - overview.open_since))
    yield Sample("millpond_query_restarts", {}, overview.restarts)
    if overview.run is not None:
        failed = overview.run.error is not None
        yield Sample("millpond_query_failed", {"code": overview.run.code or overview.run.error or ""}, failed)
    there = {found.state for found in overview.findings}
    for state in State:
        yield Sample("millpond_finding", {"state": state}, state in there)
    last = next((one for one in reversed(overview.batches) if one.committed is not None), None)
    if last is not None:
        yield Sample("millpond_batch_duration_seconds", {}, _seconds(last.took))
        yield Sample("millpond_batch_rows", {}, last.rows)
        yield Sample("millpond_batch_input_rows_per_second", {}, last.per_second)
        yield Sample("millpond_batch_processed_rows_per_second", {}, last.processed_per_second)


def _of_operators(overview: Overview) -> Iterator[Sample]:
    for one in overview.operators:
        of = {"application": one.application, "operator": one.operator}
        figures = {
            "tasks": one.tasks,
            "records_in": one.records_in,
            "records_out": one.records_out,
            "records_dropped": one.dropped,
            "records_late": one.late,
            "records_waiting": one.waiting,
            "lag_seconds": _seconds(one.lag),
            "stream_time_seconds": _seconds(one.stream_time),
            "files_retained": one.files,
        }
        for name, value in figures.items():
            yield Sample(f"millpond_operator_{name}", of, value)


def _of_tasks(overview: Overview) -> Iterator[Sample]:
    for one in overview.work:
        of = {"application": one.application, "operator": one.operator, "task": one.task}
        figures = {
            "records_in": one.records_in,
            "records_out": one.records_out,
            "records_dropped": one.dropped,
            "records_late": one.late,
            "rows": one.rows,
            "file_bytes": one.size,
            "state_bytes": one.state,
            "open_seconds": _seconds(one.open),
            "process_seconds": _seconds(one.process),
            "commit_seconds": _seconds(one.commit),
            "duration_seconds": _seconds(one.took),
        }
        for name, value in figures.items():
            yield Sample(f"millpond_task_{name}", of, value)


def _seconds(millis: float | None) -> float | None:
    return None if millis is None else millis / 1000

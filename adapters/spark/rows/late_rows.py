"""Late rows: rows that a job left out for their time, with how late they were, and the grace that would take them.

Rule of this module: it knows what such a row looks like; ``left_out`` knows the files. Times and lengths are in
microseconds in the files, and rows are JSON texts that Spark's ``from_json`` reads as the columns that they were, the
default options given.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from time import time_ns
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.inspect.text import shown_text
from millpond.adapters.spark.rows.dead_letters import ErrorHandling, micros_or_none
from millpond.adapters.spark.rows.left_out import Kind, LeftOut, read_left_out
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.errors import MillpondError
from millpond.processors.runtime.late import LateRecords
from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.encoding.python_values import python_rows
from millpond.processors.verbs.verb import Input
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import TimeUnit

LATE_ROWS: Final = Kind(
    "late-rows",
    "late rows",
    "seen_at timestamp, application string, name string, input string, operator string, task string, query string, "
    "batch_id bigint, reason string, key string, row string, time timestamp, clock timestamp, late_by bigint, "
    "short_by bigint, needed bigint, key_bytes binary, value_bytes binary",
)
"""Late rows in files; in a DataFrame, ``late_by``, ``short_by`` and ``needed`` are intervals."""

_LENGTHS: Final = ("late_by", "short_by", "needed")
_MICROSECOND: Final = "interval '0 00:00:00.000001' day to second"
_LONGEST: Final = 2**63 - 1


class LateBox:
    """The late rows of one task in one micro-batch.

    Args:
        handling: whose they are.
        part: the task's sub-topology.
        task_id: the task's.
        inputs: of a verb, by topic: reads packed keys and rows.
        attempt: to run the task.
    """

    def __init__(
        self,
        handling: ErrorHandling,
        part: Subtopology,
        task_id: str,
        inputs: Mapping[str, Input],
        attempt: Attempt,
    ) -> None:
        self._attempt = attempt
        self._handling = handling
        self._part = part
        self._task_id = task_id
        self._inputs = inputs
        self._told: list[LateRecords] = []

    def keep(self, late: LateRecords) -> None:
        """Take late records; an operator tells of them when it has left them out."""
        self._told.append(late)

    def write(self) -> None:
        """Write the rows, if there are any; called when all records have been processed.

        Raises:
            DurabilityError: the storage failed.
        """
        if not self._told:
            return
        handling = self._handling
        where = f"task-{self._task_id}"
        whose = handling.storage, handling.application_id, handling.name, handling.run
        file = LeftOut(LATE_ROWS, *whose, where, self._attempt)
        for late in self._told:
            for row in self._rows(late):
                file.add({**row, "query": file.query, "batch_id": file.batch_id})
        file.write()

    def _rows(self, late: LateRecords) -> list[dict[str, Any]]:
        handling, unit = self._handling, self._handling.unit
        batch, topic = late.records.to_batch(), self._topic_of(late.place.node)
        keys, rows = self._shown(topic, batch.keys, batch.values)
        made = []
        behind = late.reached - np.asarray(batch.timestamps, np.int64)
        numbers = zip(batch.timestamps, late.reached.tolist(), behind.tolist(), late.short.tolist(), strict=True)
        for place, (timestamp, reached, late_by, short_by) in enumerate(numbers):
            key, value = batch.keys[place], batch.values[place]
            made.append(
                {
                    "seen_at": time_ns() // 1_000,
                    "application": handling.application_id,
                    "name": handling.name,
                    "input": topic,
                    "operator": late.place.operator,
                    "task": late.place.task_id,
                    "reason": late.reason.value,
                    "key": keys[place],
                    "row": rows[place],
                    "time": micros_or_none(timestamp, unit),
                    "clock": micros_or_none(reached, unit),
                    "late_by": _length(late_by, unit),
                    "short_by": _length(short_by, unit),
                    "needed": _length(late.allowed + short_by, unit),
                    "key_bytes": key if isinstance(key, bytes) else None,
                    "value_bytes": value if isinstance(value, bytes) else None,
                }
            )
        return made

    def _topic_of(self, node: str) -> str:
        """Return the source topics, mostly one, whose records a node gets."""
        waiting, topics = [node], []
        while waiting:
            found = self._part.nodes[waiting.pop()]
            if isinstance(found, SourceNode):
                topics.append(found.topic)
            waiting.extend(found.parents)
        return ", ".join(topics)

    def _shown(self, topic: str, keys: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return keys and rows as texts: JSON where a verb knows their columns."""
        known = self._inputs.get(topic)
        if known is None:
            return list(map(shown_text, keys)), list(map(shown_text, values))
        return as_json(known.key_columns, keys), as_json(known.columns_of, values)


def as_json(read: Callable[[list[Any]], pa.Table], packed: Sequence[Any]) -> list[str | None]:
    """Return each as JSON by ``read``; None for None, and for what cannot be shown except as packed bytes."""
    present = [one for one in packed if one is not None]
    try:
        shown: list[str | None] = list(_json_rows(read(present), len(present)))
    except (MillpondError, TypeError):
        shown = [None] if len(present) == 1 else [text for one in present for text in as_json(read, [one])]
    texts = iter(shown)
    return [None if one is None else next(texts) for one in packed]


def _length(length: int, unit: TimeUnit) -> int:
    """Return a length in microseconds, as long as 64 bits can be."""
    return min(length * int(unit), _LONGEST)


def read_late_rows(session: SparkSession, storage: Storage, application_id: str, name: str | None) -> DataFrame:
    """Return the late rows of a job, or of one of its sinks or verbs.

    Raises:
        DurabilityError: the storage failed.
    """
    rows = read_left_out(session, LATE_ROWS, storage, application_id, name)
    return rows.selectExpr(
        *(f"{column} * {_MICROSECOND} as {column}" if column in _LENGTHS else column for column in rows.columns)
    )


def _json_rows(table: pa.Table, count: int) -> list[str]:
    """Return the rows of a table, of which there are ``count``, also where it has no columns.

    >>> _json_rows(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "data": [b"abc"], "much": [math.inf]}), 1)
    ['{"at": "1970-01-01T00:00:00+00:00", "data": "YWJj", "much": "Infinity"}']

    Raises:
        RecordError, TypeError: Python cannot hold a value, such as a time after the year 9999, or a map of lists.
    """
    rows = python_rows(table) if table.num_columns else [{}] * count
    return [json.dumps(_plain(row), ensure_ascii=False) for row in rows]


def _plain(value: Any) -> Any:
    """Return a value of JSON."""
    if isinstance(value, dict):
        return {_name(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        # Arrow does not know which fields an interval of days and seconds has.
        return _interval(value)
    return str(value) if isinstance(value, Decimal) else value


def _name(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _interval(length: timedelta) -> str:
    sign, length = ("-", -length) if length < timedelta() else ("", length)
    minutes, seconds = divmod(length.seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{length.microseconds:06}"
    return f"INTERVAL '{sign}{length.days} {clock}' DAY TO SECOND"

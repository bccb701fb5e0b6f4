"""Rows as JSON texts that Spark's ``from_json`` reads as the columns that they were.

Rule of this module: what a value becomes is what ``from_json`` takes for its type, the default options given. Arrow
does not know which fields an interval of days and seconds has; it is written as ``DAY TO SECOND``.
"""

import json
import math
from base64 import b64encode
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.processors.verbs.encoding.python_values import python_rows


def json_rows(table: pa.Table, count: int) -> list[str]:
    """Return the rows of a table, of which there are ``count``, also where it has no columns.

    >>> json_rows(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "data": [b"abc"], "much": [math.inf]}), 1)
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

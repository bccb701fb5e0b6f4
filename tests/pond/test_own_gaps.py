"""Sessions with a gap of each row, in one process, are what SQL makes of them."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond import Pond
from millpond.errors import RecordError
from millpond.processors import SessionWindows
from millpond.processors.verbs import aggregates as agg

pc: Any = _compute

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
COLUMNS: list[tuple[str, pa.DataType]] = [
    ("k", pa.string()),
    ("t", pa.timestamp("us", "UTC")),
    ("v", pa.int64()),
    ("phone", pa.bool_()),
    ("gap", pa.int64()),
]
SCHEMA = pa.schema(COLUMNS)
CALLS = {"n": agg.count(), "s": agg.sum("v"), "p": agg.sum("v", where="phone"), "l": agg.last("v")}
GIVEN: dict[str, Any] = {"by": "k", "time": "t"}
SECOND = timedelta(seconds=1)

ISLANDS = """
WITH lasting AS (SELECT *, t + to_milliseconds(gap) AS until FROM rows WHERE gap > 0),
     known AS (SELECT *, max(until) OVER (PARTITION BY k ORDER BY t, v ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
               AS reached FROM lasting),
     parted AS (SELECT *, sum((reached IS NULL OR t > reached)::INT) OVER (PARTITION BY k ORDER BY t, v) AS session
                FROM known)
SELECT k, {'start': min(t), 'end': max(until)}, count(*), sum(v), sum(v) FILTER (WHERE phone), arg_max(v, t)
FROM parted GROUP BY k, session
"""


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return rows in order, no two of one time."""
    random = Random(seed)
    times = sorted(random.sample(range(400), 80))
    return [
        {
            "k": random.choice(["x", "y", None]),
            "t": START + time * SECOND / 2,
            "v": number,
            "phone": random.choice([True, False, None]),
            "gap": random.choice([None, 0, -5_000, 1, 500, 1_000, 4_000, 15_000, 20_000]),
        }
        for number, time in enumerate(times)
    ]


def windows(gap: Any = None, **given: Any) -> SessionWindows:
    return SessionWindows(pc.field("gap") if gap is None else gap, at_most="20 seconds", **given)


def shown(table: pa.Table) -> Counter[Any]:
    names = ["k", "window", *CALLS]
    rows = ([row[name] for name in names] for row in table.to_pylist())
    return Counter((key, window["start"], window["end"], *results) for key, window, *results in rows)


def in_sql(rows: list[dict[str, Any]]) -> Counter[Any]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", pa.Table.from_pylist(rows, SCHEMA))
        found = connection.execute(ISLANDS).fetchall()
    return Counter((key, window["start"], window["end"], *results) for key, window, *results in found)


@pytest.mark.parametrize("seed", range(6))
def test_sessions_are_those_of_gaps_and_islands_at_once_and_in_any_micro_batches(seed: int) -> None:
    rows, random = drawn(seed), Random(seed)
    expected = in_sql(rows)
    at_once = Pond().aggregate(pa.Table.from_pylist(rows, SCHEMA), CALLS, **GIVEN, window=windows(), emit="final")
    assert shown(at_once) == expected
    late = sorted(rows, key=lambda row: row["t"] + random.randint(0, 30) * SECOND)
    lengths = windows(pc.multiply(pc.field("gap"), 1_000).cast(pa.duration("us")), grace="30 seconds")
    for backend in ("memory", "lmdb", "rocksdb"):
        pond = Pond(backend=backend).in_batches
        with pond.aggregate(SCHEMA, CALLS, **GIVEN, window=lengths, emit="final") as running:
            found = Counter[Any]()
            while late:
                size = random.randint(1, 20)
                found += shown(running.feed(pa.Table.from_pylist(late[:size], SCHEMA)))
                late = late[size:]
            found += shown(running.complete())
        assert found == expected
        late = sorted(rows, key=lambda row: row["t"] + random.randint(0, 30) * SECOND)


def test_a_row_with_a_gap_beyond_at_most_is_refused_and_one_without_is_left_out() -> None:
    rows = [{"k": "x", "t": START, "v": 1, "phone": True, "gap": gap} for gap in (None, 0, -1, 20_000)]
    made = Pond().aggregate(pa.Table.from_pylist(rows, SCHEMA), CALLS, **GIVEN, window=windows(), emit="final")
    assert made["n"].to_pylist() == [1]
    rows.append({**rows[0], "gap": 20_001})
    with pytest.raises(RecordError, match="column 'gap': more than at_most='20 seconds'"):
        Pond().aggregate(pa.Table.from_pylist(rows, SCHEMA), CALLS, **GIVEN, window=windows())

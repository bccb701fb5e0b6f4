"""By grouping sets, ``Pond`` gives what DuckDB gives, of all aggregate functions, at once and in micro-batches."""

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond import Pond
from millpond.processors import TimeWindows, cube, grouping_sets, rollup
from millpond.processors.options.grouping import By
from millpond.processors.verbs import aggregates as agg
from tests.processors.verbs.duck import answered
from tests.processors.verbs.test_aggregates_against_duckdb import CALLS, assert_equal, random_rows

pc: Any = _compute

BY: list[tuple[By, str, list[str]]] = [
    (cube("k", "s", "b"), "cube (k, s, b)", ["k", "s", "b"]),
    (rollup("s", "k"), "rollup (s, k)", ["s", "k"]),
    (grouping_sets([["k", "b"], "s", []]), "grouping sets ((k, b), (s), ())", ["k", "b", "s"]),
    (["b", rollup("k"), grouping_sets(["s", []])], "b, rollup (k), grouping sets ((s), ())", ["b", "k", "s"]),
]
TOLD = {"all_k": agg.grouping("k")}
TIMES = pa.timestamp("us", "UTC")


def timed(rows: pa.Table) -> pa.Table:
    """Return the rows, with their times in seconds as moments."""
    return rows.set_column(1, "t", pc.multiply(rows["t"], 1_000_000).cast(TIMES))


def asked(rows: pa.Table, sets: str, columns: list[str], more: str = "") -> dict[Any, dict[str, Any]]:
    """Return what DuckDB says, by the key, the id of the set and whatever ``more`` adds to them."""
    calls = {"all_k": "grouping(k)", **{name: sql for name, (_, sql) in CALLS.items()}}
    key = f"{', '.join(columns)}, grouping({', '.join(columns)})"
    wanted = ", ".join(f"{sql} as {name}" for name, sql in calls.items())
    together = f"{more}, {sets}" if more else sets
    found = answered(f"select {key}{f', {more}' if more else ''}, {wanted} from rows group by {together}", rows=rows)
    size = len(columns) + 1 + bool(more)
    return {row[:size]: dict(zip(calls, row[size:], strict=True)) for row in found}


def told(found: pa.Table, columns: list[str]) -> dict[Any, dict[str, Any]]:
    """Return the results by their keys; a window is told by its start in seconds."""
    rows = found.to_pylist()
    keys: list[tuple[Any, ...]] = [tuple(row[name] for name in (*columns, "grouping_id")) for row in rows]
    if "window" in found.column_names:
        keys = [(*key, int(row["window"]["start"].timestamp())) for key, row in zip(keys, rows, strict=True)]
    assert len(set(keys)) == len(keys)
    return {key: {name: row[name] for name in (*TOLD, *CALLS)} for key, row in zip(keys, rows, strict=True)}


@pytest.mark.parametrize(("by", "sets", "columns"), BY)
def test_all_functions_are_those_of_duckdb(by: By, sets: str, columns: list[str]) -> None:
    rows = random_rows(len(sets))
    calls = {**TOLD, **{name: call for name, (call, _) in CALLS.items()}}
    found = Pond().aggregate(timed(rows), calls, by=by, time="t")
    assert_equal(told(found, columns), asked(rows, sets, columns))


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_windows_in_micro_batches_are_those_of_duckdb(backend: str) -> None:
    rows, (by, sets, columns), chance = random_rows(5), BY[1], random.Random(5)
    calls = {**TOLD, **{name: call for name, (call, _) in CALLS.items()}}
    given, found = timed(rows), []
    window = TimeWindows("5 minutes", grace="1 day")
    with Pond(backend=backend).in_batches.aggregate(
        given.schema, calls, by=by, time="t", window=window, emit="final"
    ) as running:
        while given.num_rows:
            size = chance.randint(1, 90)
            found.append(running.feed(given.slice(0, size)))
            given = given.slice(size)
        found.append(running.complete())
    assert_equal(told(pa.concat_tables(found), columns), asked(rows, sets, columns, "t // 300 * 300"))


def test_a_null_of_the_data_stays_apart_from_that_of_all_values() -> None:
    rows = [{"k": key, "t": pa.scalar(1, TIMES).as_py(), "v": 1} for key in ("x", None, None)]
    found = Pond().aggregate(rows, {"n": agg.count(), "all": agg.grouping("k")}, by=cube("k"), time="t")
    shown = sorted(
        tuple(row[name] for name in ("k", "grouping_id", "all", "n")) for row in found.to_pylist() if row["k"] is None
    )
    assert shown == [(None, 0, 0, 2), (None, 1, 1, 3)]


def test_a_row_that_cannot_be_used_is_left_out_once() -> None:
    pond = Pond(on_error="dead-letter")
    rows = pa.table({"k": ["x", "y"], "t": pa.array([1, None], TIMES)})
    found = pond.aggregate(rows, {"n": agg.count()}, by=cube("k"), time="t")
    assert [row["n"] for row in found.to_pylist()] == [1, 1]
    assert len(pond.dead_letters) == 1


def test_many_rows_are_spread_in_parts() -> None:
    count, keys, groups = 600_000, [1, 2, 3], ["a", "b", "c", "d"]
    rows = pa.table(
        {
            "k": pa.array([keys[at % 3] for at in range(count)]),
            "g": pa.array([groups[at % 4] for at in range(count)]),
            "t": pa.array(range(count), TIMES),
        }
    )
    found = Pond().aggregate(rows, {"n": agg.count()}, by=cube("k", "g"), time="t")
    counts = {(row["k"], row["g"]): row["n"] for row in found.to_pylist()}
    assert len(counts) == found.num_rows == 20
    assert counts[None, None] == count
    assert counts[1, None] == count // 3
    assert counts[1, "a"] == count // 12

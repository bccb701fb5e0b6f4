"""``deduplicate`` gives what DuckDB gives of all rows in time, in whatever micro-batches and order they come."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.processors.verbs.deduplicate import deduplicate
from millpond.processors.verbs.functions.distances import far_apart
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from tests.processors.verbs.duck import answered
from tests.processors.verbs.running import Rows, VerbDriver, an_input, cut, run, running

KEY = {"k": pa.string()}
VALUE = {"t": pa.int64(), "id": pa.int64()}
ROWS = pa.schema([pa.field(name, type_) for name, type_ in {**KEY, **VALUE}.items()])
ORDER = KeyCodec(pa.schema([("order", pa.int64())]))
FIRSTS = """
    with recursive o as (select *, row_number() over (partition by k order by t, id) as n from r),
    f as (
        select k, n, t, id, t as kept, true as first from o where n = 1
        union all
        select o.k, o.n, o.t, o.id, if(o.t - f.kept > {within}, o.t, f.kept), o.t - f.kept > {within}
        from f join o on o.k is not distinct from f.k and o.n = f.n + 1
    ) select k, t, id from f where first
"""


def made(within: int, late: int, *, waits: bool = True, ordered: bool = True) -> Verb:
    rows: PackedRows = replace(an_input("input", KEY, VALUE), order=ORDER if ordered else None)
    return deduplicate("out", rows, within=within, late=late, waits=waits, columns=list(VALUE))


def some_rows(chance: random.Random, late: int, most: int = 60) -> list[dict[str, Any]]:
    """Return rows that come at most so late."""
    rows: list[dict[str, Any]] = [
        {"k": chance.choice(["a", "b", "a\x00", None]), "t": chance.randint(-30, 60), "id": number, "order": number}
        for number in range(chance.randint(0, most))
    ]
    return sorted(rows, key=lambda row: row["t"] + chance.randint(0, late))


def asked(rows: Rows, within: int) -> list[tuple[Any, ...]]:
    table = pa.Table.from_pylist([{name: row[name] for name in ROWS.names} for row in rows], ROWS)
    return sorted(answered(FIRSTS.format(within=within), r=table), key=repr)


def in_places(rows: Rows, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names or ROWS.names) for row in rows), key=repr)


@pytest.mark.parametrize("seed", range(40))
def test_the_rows_are_those_that_duckdb_keeps_of_all(seed: int) -> None:
    chance = random.Random(seed)
    late, within = chance.choice([0, 1, 10]), chance.choice([0, 1, 5, 20, 1_000])
    rows = some_rows(chance, late)
    answers = [run(made(within, late), list(cut(rows, chance)), backend=one) for one in ("memory", "lmdb", "rocksdb")]
    assert in_places(answers[0]) == asked(rows, within)
    assert answers[0] == answers[1] == answers[2]
    assert [row["t"] for row in answers[0]] == sorted(row["t"] for row in answers[0])


@pytest.mark.parametrize("seed", range(20))
def test_without_an_order_rows_of_one_time_are_told_apart_the_same_way_in_any_cut(seed: int) -> None:
    chance = random.Random(seed)
    late, within = chance.choice([0, 10]), chance.choice([0, 5])
    rows = some_rows(chance, late)
    other = sorted(rows, key=lambda row: (row["t"] + chance.randint(0, late), chance.random()))
    verb = made(within, late, ordered=False)
    answers = [run(verb, list(cut(some, chance))) for some in (rows, rows, other)]
    assert answers[0] == answers[1] == answers[2]
    assert in_places(answers[0], "k", "t") == [row[:2] for row in asked(rows, within)]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_restart_between_micro_batches_changes_nothing(backend: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    rows = some_rows(chance, 10, 200)
    found: list[dict[str, Any]] = []
    batches = list(cut(rows, chance))
    for number, batch in enumerate(batches):
        with running(made(5, 10), backend, local_dir=tmp_path) as driver:
            driver.pipe({"input": batch}, {"input": "t"})
            if number == len(batches) - 1:
                driver.complete()
            found += driver.read()
    assert found == run(made(5, 10), batches)


def expected(batches: Sequence[Rows], within: int, late: int, *, waits: bool) -> tuple[list[Any], int]:
    """Return the ids of rows that are kept, and how many are late, row by row."""
    reached, watermark, dropped = MIN_TIME, MIN_TIME, 0
    kept: dict[Any, int] = {}
    waiting: list[Any] = []
    found = []

    def take(rows: Sequence[Any]) -> None:
        for row in sorted(rows, key=lambda row: (row["t"], row["id"])):
            if row["k"] not in kept or row["t"] > kept[row["k"]] + within:
                kept[row["k"]] = row["t"]
                found.append(row["id"])

    for batch in batches:
        for row in sorted(batch, key=lambda row: (row["t"], row["id"])):
            reached = max(reached, row["t"])
            watermark = max(watermark, reached - late)
            if row["t"] < watermark:
                dropped += 1
                continue
            waiting.append(row)
            due = [row for row in waiting if not waits or row["t"] < watermark]
            waiting = [row for row in waiting if row not in due]
            take(due)
    take(waiting)
    return found, dropped


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_rows_that_are_late_are_dropped_and_counted_and_those_at_once_go_by_what_came(seed: int, waits: bool) -> None:
    chance = random.Random(seed)
    within = chance.choice([0, 1, 5, 20])
    late = chance.choice([0, 3, 10]) if waits else within
    batches = [sorted(one, key=lambda row: (row["t"], row["id"])) for one in cut(some_rows(chance, 40), chance)]
    with running(made(within, late, waits=waits)) as driver:
        for batch in batches:
            driver.pipe({"input": batch}, {"input": "t"})
        driver.complete()
        found = [row["id"] for row in driver.read()]
        counted = driver.driver.counters.get("out:dropped-late", 0)
    ids, dropped = expected(batches, within, late, waits=waits)
    assert sorted(found) == sorted(ids)
    assert counted == dropped


def test_the_state_has_only_keys_of_which_duplicates_may_come() -> None:
    def stored(driver: VerbDriver) -> list[bytes]:
        return [key for key, _ in driver.driver.store("deduplicate").scan()]

    with running(made(10, 5)) as driver:
        for time in range(0, 1_000, 10):
            rows = [{"k": f"{time}", "t": time, "id": time, "order": time}]
            driver.pipe({"input": rows}, {"input": "t"})
            assert len(stored(driver)) <= 3
            assert driver.driver.counters["out:waiting"] <= 2


@pytest.mark.parametrize("seed", range(30))
def test_far_apart_is_what_one_row_after_the_other_gives(seed: int) -> None:
    chance = random.Random(seed)
    size, within = chance.randint(0, 200), chance.choice([0, 1, 7, 100, MAX_TIME])
    rows = sorted((chance.randint(0, 4), chance.randint(-100, 100)) for _ in range(size))
    numbers, times = (np.array([row[place] for row in rows], np.int64) for place in range(2))
    last: dict[int, int] = {}
    taken = []
    for number, time in rows:
        taken.append(number not in last or time > last[number] + within)
        if taken[-1]:
            last[number] = time
    assert far_apart(numbers, times, within).tolist() == taken

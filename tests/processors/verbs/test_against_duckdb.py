"""Every verb gives what DuckDB gives for the whole input, in whatever order and batches the rows arrive."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise, product
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import ASOF_JOINS, TABLE_JOINS, AsofDirection, JoinType, Unfit
from millpond.processors.options.windows import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import Windows, aggregate
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.asof_join import Correcting, asof_join
from millpond.processors.verbs.joins.stream_join import BOUNDS, OwnBounds, stream_join
from millpond.processors.verbs.joins.table_join import table_join
from millpond.processors.verbs.latest import latest
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import MICROS, Verb
from millpond.stores.encoding.serdes import Serde
from tests.drawing import tries
from tests.processors.verbs.duck import answered
from tests.processors.verbs.running import Rows, an_aggregated_input, an_input, running

HISTORIES = range(tries(60))
LONG = 1_000_000

STRING: pa.DataType = pa.string()
LONG_INT: pa.DataType = pa.int64()
KEYS = ("a", "b", "c", None)


def driven(
    verb: Verb,
    sides: dict[str, Rows],
    seed: int,
    *,
    backend: str = "memory",
    serde: Serde[Any] | None = None,
    first: str | None = None,
) -> list[dict[str, Any]]:
    """Return what comes out for the rows of both sides, each side in its order, in micro-batches of any size.

    All of the ``first`` side come before the other one.
    """
    chance = random.Random(seed)
    waiting = {role: list(rows) for role, rows in sides.items()}
    with running(verb, backend, serde) as driver:
        if first is not None:
            driver.pipe({first: waiting.pop(first)}, dict.fromkeys(sides, "t"))
        while any(waiting.values()):
            batch = {}
            for role, rows in waiting.items():
                size = chance.randint(0, 5)
                batch[role], waiting[role] = rows[:size], rows[size:]
            driver.pipe(batch, dict.fromkeys(sides, "t"))
        driver.complete()
        return driver.read()


def in_any_order(rows: Sequence[Any]) -> list[str]:
    return sorted(map(repr, rows))


def asked(query: str, **tables: Rows) -> list[tuple[Any, ...]]:
    return answered(query, **{name: pa.Table.from_pylist(list(rows), SCHEMAS[name]) for name, rows in tables.items()})


CHANGES = pa.schema([("k", STRING), ("t", LONG_INT), ("v", LONG_INT), ("f", STRING), ("op", STRING)])
SCHEMAS = {
    "l": pa.schema([("id", LONG_INT), ("k", STRING), ("t", LONG_INT), *((name, LONG_INT) for name in BOUNDS.values())]),
    **dict.fromkeys(("r", "ours", "theirs"), CHANGES),
}


def left_rows(chance: random.Random) -> Rows:
    return [{"id": i, "k": chance.choice(KEYS), "t": chance.randint(0, 60)} for i in range(chance.randint(0, 25))]


def right_rows(chance: random.Random, keys: Sequence[str | None] = KEYS) -> Rows:
    """Return at most one row for a key and time, so that no answer depends on the order of arrival."""
    places = [(k, t) for k in keys for t in range(61)]
    rows = chance.sample(places, chance.randint(0, 20))
    return [
        {"k": k, "t": t, "v": i, "op": chance.choice(["upsert", "upsert", "delete"])} for i, (k, t) in enumerate(rows)
    ]


def joined_values(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["id"], row["k"], row.get("v")) for row in rows]


COMES_OUT: dict[JoinType, Callable[[Any], bool]] = {
    JoinType.INNER: lambda match: match is not None,
    JoinType.LEFT: lambda match: True,
    JoinType.SEMI: lambda match: match is not None,
    JoinType.ANTI: lambda match: match is None,
}
"""Which left rows have a result, by the value of their match."""


def equal(null_safe: bool) -> str:
    """Return the operator that compares keys in SQL."""
    return "IS NOT DISTINCT FROM" if null_safe else "="


@pytest.mark.parametrize("how", ASOF_JOINS)
@pytest.mark.parametrize(("exact", "null_safe"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_an_asof_join_gives_each_row_the_version_that_was_valid_at_its_time_or_before(
    how: JoinType, exact: bool, null_safe: bool, backend: str
) -> None:
    apart, dropped = (NullKeys.EQUAL,) * 2 if null_safe else (NullKeys.APART, NullKeys.DROPPED)
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        lefts, rights = left_rows(chance), right_rows(chance)
        kept = [row for row in rights if null_safe or row["k"] is not None]
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, apart)
        right = an_input("right", {"k": STRING}, {"v": LONG_INT}, dropped)
        verb = asof_join(
            "priced", left, right, how, history=LONG, grace=LONG, exact=exact, columns=["v"], null_safe=null_safe
        )
        rows = driven(verb, {"left": lefts, "right": kept}, seed, backend=backend)
        if how is JoinType.INNER and not null_safe:
            rows = [row for row in rows if row["k"] is not None]
        query = f"""
            SELECT l.id, l.k, CASE WHEN r.op = 'upsert' THEN r.v END FROM l ASOF LEFT JOIN r
            ON l.k {equal(null_safe)} r.k AND l.t {">=" if exact else ">"} r.t
        """
        expected = [row for row in asked(query, l=lefts, r=rights) if COMES_OUT[how](row[2])]
        found = joined_values(rows)
        if not how.shows_right:
            assert all("v" not in row for row in rows)
            expected = [(*row[:2], None) for row in expected]
        assert in_any_order(found) == in_any_order(expected), seed


@pytest.mark.parametrize("how", ASOF_JOINS)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_what_an_asof_join_has_corrected_is_that_of_all_rows(how: JoinType, exact: bool, backend: str) -> None:
    """Rows come in any order, far later than those of micro-batches before, and none waits."""
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        lefts, rights = left_rows(chance), right_rows(chance)
        kept = [row for row in rights if row["k"] is not None]
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, NullKeys.APART)
        right = an_input("right", {"k": STRING}, {"v": LONG_INT}, NullKeys.DROPPED)
        correcting = Correcting(LONG, ["id"])
        verb = asof_join(
            "priced", left, right, how, history=LONG, grace=None, exact=exact, columns=["v"], correcting=correcting
        )
        last: dict[int, dict[str, Any]] = {}
        for row in driven(verb, {"left": lefts, "right": kept}, seed, backend=backend):
            assert row["sequence"] > last.get(row["id"], {"sequence": -1})["sequence"]
            last[row["id"]] = row
        found = joined_values([row for row in last.values() if row["op"] == "upsert"])
        query = f"""
            SELECT l.id, l.k, CASE WHEN r.op = 'upsert' THEN r.v END FROM l ASOF LEFT JOIN r
            ON l.k = r.k AND l.t {">=" if exact else ">"} r.t
        """
        expected = [row for row in asked(query, l=lefts, r=rights) if COMES_OUT[how](row[2])]
        if not how.shows_right:
            expected = [(*row[:2], None) for row in expected]
        if how is JoinType.INNER:
            found, expected = ([row for row in rows if row[1] is not None] for rows in (found, expected))
        assert in_any_order(found) == in_any_order(expected), seed


@pytest.mark.parametrize("direction", [AsofDirection.FORWARD, AsofDirection.NEAREST])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_an_asof_join_ahead_gives_each_row_what_pandas_gives_it(
    direction: AsofDirection, exact: bool, backend: str
) -> None:
    """Of rows that set something; that a delete is passed over forward is what DuckDB says of the others."""
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        lefts, rights, reach = left_rows(chance), right_rows(chance, KEYS[:3]), chance.choice([0, 3, 12, LONG])
        if direction is AsofDirection.NEAREST:
            rights = [{**row, "op": "upsert"} for row in rights]
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, NullKeys.APART)
        right = an_input("right", {"k": STRING}, {"v": LONG_INT}, NullKeys.DROPPED)
        verb = asof_join(
            "priced", left, right, JoinType.LEFT, history=2 * LONG, grace=LONG, tolerance=reach, exact=exact,
            direction=direction, columns=["v"],
        )  # fmt: skip
        found = joined_values(driven(verb, {"left": lefts, "right": rights}, seed, backend=backend))
        frames = [
            pd.DataFrame(rows, columns=SCHEMAS[name].names).astype({"k": object, "t": "int64"}).sort_values("t")
            for name, rows in (("l", [row for row in lefts if row["k"] is not None]), ("r", rights))
        ]
        merged = pd.merge_asof(
            frames[0], frames[1][frames[1]["op"] == "upsert"], on="t", by="k", tolerance=reach,
            allow_exact_matches=exact, direction=direction.value,
        )  # fmt: skip
        met: list[dict[str, Any]] = merged.to_dict("records")  # type: ignore[assignment]
        values = ((row["id"], row["k"], None if pd.isna(row["v"]) else int(row["v"])) for row in met)
        alone = ((row["id"], None, None) for row in lefts if row["k"] is None)
        assert in_any_order(found) == in_any_order([*values, *alone]), seed
        if direction is AsofDirection.FORWARD and reach == LONG:
            query = f"""
                SELECT l.id, l.k, r.v FROM l ASOF LEFT JOIN (SELECT * FROM r WHERE op = 'upsert') r
                ON l.k = r.k AND l.t {"<=" if exact else "<"} r.t
            """
            assert in_any_order(found) == in_any_order(asked(query, l=lefts, r=rights)), seed


FITTING = "r.v * 7 % 10 <= l.id % 10"
"""A condition of both sides, as SQL has it."""


def fitting(both: pa.Table) -> Any:
    """Return the same, as a verb calls it."""
    left, right = (both[name].to_numpy() for name in ("id", "v"))
    return pa.array(right * 7 % 10 <= left % 10)


@pytest.mark.parametrize("how", ASOF_JOINS)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("grace", [LONG, None])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_version_that_fails_the_condition_hides_the_older_ones_or_is_passed_over(
    how: JoinType, exact: bool, grace: int | None, backend: str
) -> None:
    """Without a grace, all versions are there before the first left row."""
    for seed, unfit in product(HISTORIES if backend == "memory" else range(5), Unfit):
        chance = random.Random(seed)
        lefts, rights, reach = left_rows(chance), right_rows(chance, KEYS[:3]), chance.choice([0, 5, 20, LONG])
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, NullKeys.APART)
        right = an_input("right", {"k": STRING}, {"v": LONG_INT}, NullKeys.DROPPED)
        verb = asof_join(
            "priced", left, right, how, history=3 * LONG, grace=grace, tolerance=reach, exact=exact, where=fitting,
            unfit=unfit, columns=["v"],
        )  # fmt: skip
        first = None if grace is not None else "right"
        rows = driven(verb, {"left": lefts, "right": rights}, seed, backend=backend, first=first)
        if how is JoinType.INNER:
            rows = [row for row in rows if row["k"] is not None]
        met, older = f"r.t {'<=' if exact else '<'} l.t", f"AND {FITTING}" if unfit is Unfit.NEXT else ""
        query = f"""
            SELECT l.id, l.k, (
                SELECT CASE WHEN arg_max(r.op, r.t) = 'upsert' AND arg_max({FITTING}, r.t) AND
                    max(r.t) >= l.t - {reach} THEN arg_max(r.v, r.t) END
                FROM r WHERE r.k = l.k AND {met} AND (r.op = 'delete' OR (r.op = 'upsert' {older}))
            ) FROM l
        """
        expected = [row for row in asked(query, l=lefts, r=rights) if COMES_OUT[how](row[2])]
        if not how.shows_right:
            expected = [(*row[:2], None) for row in expected]
        assert in_any_order(joined_values(rows)) == in_any_order(expected), (seed, unfit)


@pytest.mark.parametrize("unfit", Unfit)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("direction", [AsofDirection.FORWARD, AsofDirection.NEAREST])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_version_ahead_that_fails_the_condition_is_no_match_or_is_passed_over(
    direction: AsofDirection, exact: bool, unfit: Unfit, backend: str
) -> None:
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        lefts, rights, reach = left_rows(chance), right_rows(chance, KEYS[:3]), chance.choice([0, 3, 12, LONG])
        if direction is AsofDirection.NEAREST:
            rights = [{**row, "op": "upsert"} for row in rights]
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, NullKeys.APART)
        right = an_input("right", {"k": STRING}, {"v": LONG_INT}, NullKeys.DROPPED)
        verb = asof_join(
            "priced", left, right, JoinType.LEFT, history=3 * LONG, grace=LONG, tolerance=reach, exact=exact,
            direction=direction, where=fitting, unfit=unfit, columns=["v"],
        )  # fmt: skip
        found = joined_values(driven(verb, {"left": lefts, "right": rights}, seed, backend=backend))
        ahead = f"r.t {'>=' if exact else '>'} l.t" if direction is AsofDirection.FORWARD else "true"
        apart = "true" if exact else "r.t <> l.t"
        passed = FITTING if unfit is Unfit.NEXT else "true"
        distance = "abs(r.t - l.t) * 2 + CAST(r.t > l.t AS INT)"
        query = f"""
            SELECT l.id, l.k, (
                SELECT CASE WHEN arg_min({FITTING}, {distance}) THEN arg_min(r.v, {distance}) END FROM r
                WHERE r.k = l.k AND r.op = 'upsert' AND {ahead} AND {apart} AND {passed} AND abs(r.t - l.t) <= {reach}
            ) FROM l
        """
        assert in_any_order(found) == in_any_order(asked(query, l=lefts, r=rights)), seed


@pytest.mark.parametrize("how", list(JoinType))
@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_stream_join_gives_the_pairs_that_are_close_in_time_and_once_who_has_none(
    how: JoinType, null_safe: bool, backend: str
) -> None:
    null_keys = NullKeys.EQUAL if null_safe else NullKeys.APART
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        lefts = left_rows(chance)
        rights = [{"k": chance.choice(KEYS), "t": chance.randint(0, 60), "v": i} for i in range(chance.randint(0, 20))]
        before, after = chance.randint(0, 10), chance.randint(0, 10)
        windows = JoinWindows(before, after, LONG)
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING}, null_keys)
        right = an_input("right", {"k": STRING}, {"k": STRING, "v": LONG_INT}, null_keys)
        verb = stream_join("pairs", left, right, how, windows, columns=["v"], shared={"k": "k"}, null_safe=null_safe)
        found = joined_values(driven(verb, {"left": lefts, "right": rights}, seed, backend=backend))
        shown = "coalesce(l.k, r.k), r.v" if how.shows_right else "l.k, NULL"
        join = "FULL OUTER" if how is JoinType.OUTER else how.name
        expected = asked(
            f"""SELECT l.id, {shown} FROM l {join} JOIN r
            ON l.k {equal(null_safe)} r.k AND r.t BETWEEN l.t - {before} AND l.t + {after}""",
            l=lefts,
            r=rights,
        )
        assert in_any_order(found) == in_any_order(expected), (seed, how)


@pytest.mark.parametrize("how", list(JoinType))
@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_stream_join_with_bounds_of_each_left_row_gives_what_they_say(
    how: JoinType, null_safe: bool, backend: str
) -> None:
    null_keys = NullKeys.EQUAL if null_safe else NullKeys.APART
    """Many left rows have the key, the time and one bound of another."""
    own = dict.fromkeys(BOUNDS.values(), LONG_INT)
    for seed in HISTORIES if backend == "memory" else range(5):
        chance = random.Random(seed)
        bounds = [None, -2, 0, 1, 10]
        lefts = [
            {**row, "t": row["t"] // 12, **{name: chance.choice(bounds) for name in own}} for row in left_rows(chance)
        ]
        rights = [{"k": chance.choice(KEYS), "t": chance.randint(0, 6), "v": i} for i in range(chance.randint(0, 9))]
        left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING, **own}, null_keys)
        right = an_input("right", {"k": STRING}, {"k": STRING, "v": LONG_INT}, null_keys)
        verb = stream_join(
            "pairs", left, right, how, JoinWindows(10, 10, chance.choice([60, LONG])), columns=["v"],
            shared={"k": "k"}, bounds=OwnBounds(10, ["before", "after"]), null_safe=null_safe,
        )  # fmt: skip
        found = joined_values(driven(verb, {"left": lefts, "right": rights}, seed, backend=backend))
        shown = "coalesce(l.k, r.k), r.v" if how.shows_right else "l.k, NULL"
        join = "FULL OUTER" if how is JoinType.OUTER else how.name
        query = f"""SELECT l.id, {shown} FROM l {join} JOIN r ON l.k {equal(null_safe)} r.k
            AND r.t BETWEEN l.t - l.millpond_before AND l.t + l.millpond_after"""
        assert in_any_order(found) == in_any_order(asked(query, l=lefts, r=rights)), (seed, how)


@pytest.mark.parametrize("grace", [0, 60])
def test_of_left_rows_that_wait_as_one_those_come_out_alone_whose_own_bounds_hold_no_match(grace: int) -> None:
    own = dict.fromkeys(BOUNDS.values(), LONG_INT)
    left = an_input("left", {"k": STRING}, {"id": LONG_INT, "k": STRING, **own}, NullKeys.APART)
    right = an_input("right", {"k": STRING}, {"k": STRING, "v": LONG_INT}, NullKeys.APART)
    verb = stream_join(
        "pairs", left, right, JoinType.LEFT, JoinWindows(10, 10, grace), columns=["v"], shared={},
        bounds=OwnBounds(10, ["before", "after"]),
    )  # fmt: skip
    rows = [{"id": i, "k": "a", "t": 5, "millpond_before": back, "millpond_after": 1} for i, back in enumerate((0, 3))]
    with running(verb) as driver:
        driver.pipe({"left": rows}, {"left": "t"})
        driver.pipe({"right": [{"k": "a", "v": 1, "t": 3}]}, {"right": "t"})
        driver.pipe({"right": [{"k": "b", "v": 2, "t": 80}]}, {"right": "t"})
        assert joined_values(driver.read()) == [(1, "a", 1), (0, "a", None)]


def the_table_of(changes: Sequence[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """Return what a MERGE of a change feed leaves in a table."""
    table: dict[Any, dict[str, Any]] = {}
    for change in sorted(changes, key=lambda change: change["sequence"]):
        row = {name: value for name, value in change.items() if name not in ("op", "sequence", "change_time")}
        if change["op"] == "delete":
            table.pop(change[key], None)
        else:
            table[change[key]] = row
    return table


LATEST = """(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY t DESC) AS n FROM {0})
WHERE n = 1 AND op <> 'delete')"""


@pytest.mark.parametrize("how", TABLE_JOINS)
@pytest.mark.parametrize("null_safe", [False, True])
def test_a_table_join_is_kept_current_whichever_side_changes(how: JoinType, null_safe: bool) -> None:
    names = {JoinType.INNER: "INNER", JoinType.LEFT: "LEFT", JoinType.OUTER: "FULL OUTER"}
    keys = KEYS if null_safe else KEYS[:3]
    for seed in HISTORIES:
        chance = random.Random(seed)
        ours, theirs = ([{**row, name: row["v"]} for row in right_rows(chance, keys)] for name in ("x", "y"))
        left = an_input("left", {"k": STRING}, {"x": LONG_INT})
        right = an_input("right", {"k": STRING}, {"y": LONG_INT})
        verb = table_join(
            "both", left, right, how, history=LONG, left_columns=["x"], right_columns=["y"], null_safe=null_safe
        )
        merged = the_table_of(driven(verb, {"left": ours, "right": theirs}, seed), "k")
        expected = asked(
            f"""SELECT coalesce(a.k, b.k), a.v, b.v FROM {LATEST.format("ours")} a
            {names[how]} JOIN {LATEST.format("theirs")} b ON a.k {equal(null_safe)} b.k""",
            ours=ours,
            theirs=theirs,
        )
        assert in_any_order([(row["k"], row["x"], row["y"]) for row in merged.values()]) == in_any_order(expected), seed


@pytest.mark.parametrize("how", [JoinType.INNER, JoinType.LEFT])
@pytest.mark.parametrize("null_safe", [False, True])
def test_a_table_join_by_foreign_key_follows_changes_of_the_foreign_key_and_of_what_it_names(
    how: JoinType, null_safe: bool
) -> None:
    for seed in HISTORIES:
        chance = random.Random(seed)
        ours = [
            {**row, "x": row["v"], "f": chance.choice(("p", "q", None))} for row in right_rows(chance, ("a", "b", "c"))
        ]
        theirs = [{**row, "y": row["v"]} for row in right_rows(chance, ("p", "q", None) if null_safe else ("p", "q"))]
        left = an_input("left", {"k": STRING}, {"x": LONG_INT, "f": STRING}, foreign={"f": STRING})
        left = replace(left, null_safe=null_safe)
        right = an_input("right", {"k": STRING}, {"y": LONG_INT})
        verb = table_join(
            "both", left, right, how, history=LONG, left_columns=["x", "f"], right_columns=["y"], null_safe=null_safe
        )
        merged = the_table_of(driven(verb, {"left": ours, "right": theirs}, seed), "k")
        expected = asked(
            f"""SELECT a.k, a.v, a.f, b.v FROM {LATEST.format("ours")} a
            {how.name} JOIN {LATEST.format("theirs")} b ON a.f {equal(null_safe)} b.k""",
            ours=ours,
            theirs=theirs,
        )
        found = [(row["k"], row["x"], row["f"], row["y"]) for row in merged.values()]
        assert in_any_order(found) == in_any_order(expected), seed


def test_the_latest_rows_are_those_of_the_greatest_time_and_nothing_is_said_twice() -> None:
    for seed in HISTORIES:
        chance = random.Random(seed)
        rows = [{**row, "v": row["v"] % 3} for row in right_rows(chance, ("a", "b", "c"))]
        source = an_input("input", {"k": STRING}, {"v": LONG_INT})
        changes = driven(latest("newest", source, history=LONG, columns=["v"]), {"input": rows}, seed)
        expected = asked(f"SELECT k, v FROM {LATEST.format('r')}", r=rows)
        assert in_any_order([(row["k"], row["v"]) for row in the_table_of(changes, "k").values()]) == in_any_order(
            expected
        )
        for key in ("a", "b", "c"):
            said = [(row["op"], row["v"]) for row in changes if row["k"] == key]
            assert all(before != after for before, after in pairwise(said)), seed


FOLDED = "count(*), sum(v), min(v), max(v), arg_max(v, t), list(v ORDER BY t)"
CALLS = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "least": aggregates.min("v"),
    "most": aggregates.max("v"),
    "newest": aggregates.last("v"),
    "all": aggregates.collect("v"),
}


def folded(rows: Rows, seed: int, windows: Windows | None, *, final: bool) -> list[dict[str, Any]]:
    """Return what ``aggregate`` gives for rows whose times are milliseconds; windows are in milliseconds."""
    values = {name: LONG_INT for name, call in CALLS.items() if call.column is not None}
    calls = RowAggregate(CALLS, values)
    source = an_aggregated_input("input", {"k": STRING}, values)
    verb = aggregate("sums", source, calls, windows, final=final)
    wide = [{"k": row["k"], "value": dict.fromkeys(values, row["v"]), "t": row["t"] * MICROS} for row in rows]
    return driven(verb, {"input": wide}, seed, serde=calls.input_serde)


def results(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in CALLS)


def start_and_end(window: dict[str, datetime]) -> tuple[int, int]:
    start, end = (round(window[bound].timestamp() * 1000) for bound in ("start", "end"))
    return start, end


@pytest.mark.parametrize(
    ("windows", "query"),
    [
        (
            TimeWindows(10, grace=LONG),
            f"SELECT k, t // 10 * 10 AS s, s + 10, {FOLDED} FROM r GROUP BY k, s",
        ),
        (
            TimeWindows(12, advance=4, grace=LONG),
            f"""SELECT k, s, s + 12, {FOLDED} FROM r, (SELECT unnest(range(-8, 64, 4)) AS s)
            WHERE t >= s AND t < s + 12 GROUP BY k, s""",
        ),
        (
            SessionWindows(5, grace=LONG),
            f"""SELECT k, min(t), max(t) + 5, {FOLDED} FROM (SELECT *, sum(new) OVER w AS g FROM (
            SELECT *, (t - lag(t, 1, -100) OVER w > 5)::INT AS new FROM r WINDOW w AS (PARTITION BY k ORDER BY t))
            WINDOW w AS (PARTITION BY k ORDER BY t)) GROUP BY k, g""",
        ),
    ],
    ids=["tumbling", "hopping", "session"],
)
def test_final_results_of_windows_are_those_of_the_whole_input(windows: Windows, query: str) -> None:
    for seed in HISTORIES:
        rows = right_rows(random.Random(seed))
        found = [
            (row["k"], *start_and_end(row["window"]), *results(row)) for row in folded(rows, seed, windows, final=True)
        ]
        assert in_any_order(found) == in_any_order(asked(query, r=rows)), seed


def test_updates_lead_to_the_results_of_the_whole_input() -> None:
    for seed in HISTORIES:
        rows = right_rows(random.Random(seed))
        merged = the_table_of(folded(rows, seed, None, final=False), "k")
        found = [(key, *results(row)) for key, row in merged.items()]
        assert in_any_order(found) == in_any_order(asked(f"SELECT k, {FOLDED} FROM r GROUP BY k", r=rows)), seed

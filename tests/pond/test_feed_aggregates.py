"""``aggregate`` over a change feed is that of the table which the feed describes, after each micro-batch."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows, cube
from millpond.processors.options.grouping import By
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.verbs import aggregates as agg
from tests.pond.test_grouping_sets import TIMES, asked, timed
from tests.processors.verbs.duck import answered
from tests.processors.verbs.test_aggregates_against_duckdb import CALLS, assert_equal, random_rows

pc: Any = _compute

ALL = {name: call for name, (call, _) in CALLS.items()}
START = datetime(2026, 6, 1)
LONG = "1000 days"


def changes(seed: int, count: int = 400, ids: int = 60) -> pa.Table:
    """Return random changes of a few ids: inserts, revisions that may move a row to another group, and deletes."""
    chance = random.Random(seed)
    rows = random_rows(seed, count)
    numbers = [chance.choice([None, *range(ids)]) for _ in range(count)]
    keys = [None if chance.random() < 0.1 else key for key in rows["k"].to_pylist()]
    words = chance.choices(["insert", "update", "upsert", "delete", "update_preimage"], [4, 4, 4, 3, 1], k=count)
    rows = rows.set_column(0, "k", pa.array(keys, pa.string()))
    return timed(rows.append_column("id", pa.array(numbers, pa.int64())).append_column("change", pa.array(words)))


def described(given: pa.Table) -> pa.Table:
    """Return the table that changes describe: of each id the row of the greatest time."""
    last: dict[Any, dict[str, Any]] = {}
    for row in given.filter(pc.not_equal(given["change"], "update_preimage")).to_pylist():
        if row["id"] not in last or row["t"] > last[row["id"]]["t"]:
            last[row["id"]] = row
    return pa.Table.from_pylist([row for row in last.values() if row["change"] != "delete"], given.schema)


def cut(given: pa.Table, chance: random.Random) -> Iterator[pa.Table]:
    while given.num_rows:
        size = chance.choice([1, 5, 40, 150])
        yield given.slice(0, size)
        given = given.slice(size)


class Kept:
    """A table that takes the changes of a feed."""

    def __init__(self, key: Sequence[str]) -> None:
        self.key = key
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(self, feed: pa.Table) -> None:
        for row in feed.sort_by("sequence").to_pylist():
            key = tuple(repr(row[name]) if isinstance(row[name], dict) else row[name] for name in self.key)
            if row["op"] == "upsert":
                self.rows[key] = row
            else:
                del self.rows[key]

    def told(self, *names: str) -> dict[Any, dict[str, Any]]:
        return {key: {name: row[name] for name in names} for key, row in self.rows.items()}


def duck(rows: pa.Table, by: Sequence[str], calls: Mapping[str, str]) -> dict[Any, dict[str, Any]]:
    wanted = "".join(f", {sql} as {name}" for name, sql in calls.items())
    columns = ", ".join(by) or "'all'"
    found = answered(f"select {columns}{wanted} from rows group by {columns}", rows=rows)
    size = max(1, len(by))
    return {row[:size] if by else (): dict(zip(calls, row[size:], strict=True)) for row in found}


SQL = {name: sql for name, (_, sql) in CALLS.items() if name not in ("covar", "covar_some", "corr", "weighted")}
"""Those of which DuckDB has as many digits as the sums of these rows take."""


def check(kept: Kept, rows: pa.Table, by: Sequence[str]) -> None:
    """Check the table by DuckDB's answer, and to the last digit by ``aggregate`` over rows that stay."""
    assert_equal(kept.told(*SQL), duck(rows, by, SQL))
    plain = Kept(by)
    plain.take(Pond().aggregate(rows, ALL, by=list(by), time="t"))
    assert repr(sorted(kept.told(*ALL).items(), key=repr)) == repr(sorted(plain.told(*ALL).items(), key=repr))


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize(("by", "names"), [("k", ["k"]), (["b", "s"], ["b", "s"]), ([], [])])
def test_all_functions_are_those_of_duckdb_over_the_latest_rows(by: By, names: list[str], backend: str) -> None:
    given, chance, pond = changes(len(names)), random.Random(backend), Pond(backend=backend).in_batches
    kept, seen = Kept(names), given.slice(0, 0)
    with pond.latest(given.schema, key="id", time="t", history=LONG, op="change") as latest:
        feed = latest.feed(given.slice(0, 0))
        with pond.aggregate(feed.schema, ALL, by=by, time="t") as running:
            assert running.key == names
            for part in cut(given, chance):
                seen = pa.concat_tables([seen, part])
                kept.take(running.feed(latest.feed(part)))
                check(kept, described(seen), names)


def test_by_grouping_sets_each_row_leaves_all_of_its_groups() -> None:
    given, chance, pond = changes(7), random.Random(7), Pond().in_batches
    columns = ["k", "s", "b"]
    kept, seen, calls = Kept([*columns, "grouping_id"]), given.slice(0, 0), {"all_k": agg.grouping("k"), **ALL}
    with pond.latest(given.schema, key="id", time="t", history=LONG, op="change") as latest:
        feed = latest.feed(given.slice(0, 0))
        with pond.aggregate(feed.schema, calls, by=cube(*columns), time="t") as running:
            for part in cut(given, chance):
                seen = pa.concat_tables([seen, part])
                kept.take(running.feed(latest.feed(part)))
    whole = asked(described(seen), "cube (k, s, b)", columns)
    told = ("all_k", *SQL)
    assert_equal(kept.told(*told), {key: {name: row[name] for name in told} for key, row in whole.items()})


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("seed", range(3))
def test_changes_that_a_user_names_count_by_their_order_alone_in_whatever_micro_batches_they_come(
    seed: int, backend: str
) -> None:
    """It holds whatever their times, and though some come twice."""
    given, chance = changes(seed), random.Random(f"{seed} {backend}")
    given = given.append_column("number", pa.array(range(given.num_rows)))
    places = [*range(given.num_rows), *chance.choices(range(given.num_rows), k=50)]
    chance.shuffle(places)
    seen, kept = given.slice(0, 0), Kept(["k"])
    with Pond(backend=backend).in_batches.aggregate(
        given.schema, ALL, by="k", time="t", key="id", op="change", order="number"
    ) as running:
        for part in cut(given.take(places), chance):
            seen = pa.concat_tables([seen, part])
            kept.take(running.feed(part))
            last = seen.set_column(1, "t", pc.multiply(seen["number"], 1_000_000).cast(TIMES))
            there = described(last)["number"].combine_chunks()
            check(kept, given.filter(pc.is_in(given["number"], there)), ["k"])


def test_changes_of_one_order_are_told_apart_alike_in_whatever_micro_batches_they_come() -> None:
    given, found = changes(5), set()
    given = given.append_column("number", pa.array([place // 7 for place in range(given.num_rows)]))
    for seed in range(6):
        chance, kept = random.Random(seed), Kept(["k"])
        places = list(range(given.num_rows))
        chance.shuffle(places)
        with Pond().in_batches.aggregate(
            given.schema, ALL, by="k", time="t", key="id", op="change", order="number"
        ) as running:
            for part in cut(given.take(places), chance):
                kept.take(running.feed(part))
        found.add(repr(sorted(kept.told(*ALL).items(), key=repr)))
    assert len(found) == 1


def test_an_older_change_in_a_later_micro_batch_neither_replaces_a_row_nor_brings_back_a_deleted_one() -> None:
    changed = orders().schema.append(pa.field("op", pa.string())).append(pa.field("lsn", pa.int64()))

    def change(id: int, who: str, op: str, lsn: int) -> pa.Table:
        return pa.Table.from_pylist([{"id": id, "who": who, "sum": 1, "at": START, "op": op, "lsn": lsn}], changed)

    with Pond().in_batches.aggregate(
        changed, {"n": agg.count()}, by="who", time="at", key="id", op="op", order="lsn"
    ) as running:
        assert run(running, change(1, "a", "u", 5)) == [("a", 1, "upsert")]
        assert run(running, change(1, "b", "u", 4), change(1, "b", "d", 3)) == []
        assert run(running, change(1, "a", "d", 7)) == [("a", None, "delete")]
        assert run(running, change(1, "b", "u", 6)) == []
        assert run(running, change(1, "b", "u", 8)) == [("b", 1, "upsert")]


@pytest.mark.parametrize("seed", range(2))
def test_without_an_order_changes_of_a_micro_batch_count_by_time_and_those_of_a_later_one_after_them(seed: int) -> None:
    given, chance, kept = changes(seed), random.Random(seed), Kept(["k"])
    there: dict[Any, dict[str, Any]] = {}
    with Pond().in_batches.aggregate(given.schema, ALL, by="k", time="t", key=["id"], op="change") as running:
        for part in cut(given, chance):
            kept.take(running.feed(part))
            for row in part.sort_by("t").to_pylist():
                if row["change"] == "delete":
                    there.pop(row["id"], None)
                elif row["change"] != "update_preimage":
                    there[row["id"]] = row
            check(kept, pa.Table.from_pylist(list(there.values()), given.schema), ["k"])


def orders(*rows: tuple[Any, ...]) -> pa.Table:
    columns: list[Any] = [("id", pa.int64()), ("who", pa.string()), ("sum", pa.int64()), ("at", pa.timestamp("us"))]
    schema = pa.schema(columns)
    return pa.Table.from_pylist(
        [dict(zip(schema.names, (*row[:3], START + timedelta(minutes=row[3])), strict=True)) for row in rows], schema
    )


def test_an_aggregate_of_an_aggregate_counts_the_groups_that_there_are() -> None:
    pond = Pond()
    first = pond.aggregate(
        orders((1, "a", 5, 1), (2, "a", 6, 2), (3, "b", 9, 3)), {"n": agg.count()}, by="who", time="at"
    )
    second = pond.aggregate(first, {"who": agg.count()}, by="n", time="change_time")
    assert sorted((row["n"], row["who"]) for row in second.to_pylist()) == [(1, 1), (2, 1)]
    many = Pond().in_batches
    with many.aggregate(orders().schema, {"n": agg.count()}, by="who", time="at") as one:
        feed = one.feed(orders((1, "a", 5, 1)))
        with many.aggregate(feed.schema, {"who": agg.count()}, by="n", time="change_time") as two:
            kept = Kept(["n"])
            kept.take(two.feed(feed))
            assert kept.told("who") == {(1,): {"who": 1}}
            kept.take(two.feed(one.feed(orders((2, "a", 5, 2), (3, "b", 1, 3)))))
            assert kept.told("who") == {(2,): {"who": 1}, (1,): {"who": 1}}
            moved = two.feed(one.feed(orders((4, "b", 5, 4))))
            assert [(row["n"], row["who"], row["op"]) for row in moved.sort_by("n").to_pylist()] == [
                (1, None, "delete"), (2, 2, "upsert"),
            ]  # fmt: skip


def run(verb: MicroBatches, *parts: pa.Table) -> list[tuple[Any, ...]]:
    """Return what each change says: the first column, the second one, and the operation."""
    found = [row for part in parts for row in verb.feed(part).to_pylist()]
    return [(*list(row.values())[:2], row["op"]) for row in found]


def test_windows_and_ranks_of_a_feed_tell_its_rows_apart() -> None:
    pond = Pond().in_batches
    rows = orders((1, "a", 5, 1), (2, "a", 7, 61), (3, "a", 9, 62))
    with pond.aggregate(
        rows.schema, {"most": agg.max("sum")}, by="who", time="at", window=TimeWindows("1 hour", grace="1 day")
    ) as hours:
        feed = hours.feed(rows)
        with pond.aggregate(
            feed.schema, {"total": agg.sum("most"), "n": agg.count()}, by="who", time="change_time"
        ) as day:
            assert run(day, feed) == [("a", 14, "upsert")]
            assert run(day, hours.feed(orders((4, "a", 8, 2), (5, "a", 1, 63)))) == [("a", 17, "upsert")]
    with pond.top_n(rows.schema, 2, by="who", order="sum", descending=True, time="at") as top:
        feed = top.feed(rows)
        with pond.aggregate(feed.schema, {"total": agg.sum("sum")}, by="who", time="change_time") as total:
            assert run(total, feed) == [("a", 16, "upsert")]
            assert run(total, top.feed(orders((4, "a", 8, 2)))) == [("a", 17, "upsert")]


def test_a_revision_that_changes_no_result_tells_nothing_and_a_group_that_comes_and_goes_neither() -> None:
    pond = Pond().in_batches
    with pond.latest(orders().schema, key="id", time="at", history=LONG) as latest:
        feed = latest.feed(orders((1, "a", 5, 1)))
        with pond.aggregate(feed.schema, {"n": agg.count()}, by="who", time="at") as running:
            assert run(running, feed) == [("a", 1, "upsert")]
            assert run(running, latest.feed(orders((1, "a", 6, 2)))) == []
            assert run(running, latest.feed(orders((1, "b", 6, 3)))) == [("a", None, "delete"), ("b", 1, "upsert")]
            both = pa.concat_tables([latest.feed(orders((1, "c", 6, 4))), latest.feed(orders((1, "b", 6, 5)))])
            assert run(running, both) == []


def test_changes_are_rows_where_the_operation_is_taken_away() -> None:
    pond = Pond().in_batches
    with pond.latest(orders().schema, key="id", time="at", history=LONG) as latest:
        parts = [latest.feed(orders((1, "a", 5, number))) for number in range(1, 4)]
        parts.append(latest.feed(orders((1, "b", 5, 9))))
    rows = pa.concat_tables(parts).drop_columns(["op"])
    counted = Pond().aggregate(rows, {"n": agg.count()}, by="id", time="change_time")
    assert counted["n"].to_pylist() == [len(rows)]


def naive(values: Sequence[float]) -> set[str]:
    """Return what adding the values one by one gives, in any order, as Spark may."""
    return {repr(sum(order)) for order in permutations(values)}


@pytest.mark.parametrize("values", [
    [1.7e308, 1.7e308, -math.inf], [-1.7e308, math.inf, -1.7e308], [1.7e308, 1.7e308, math.inf],
    [1.7e308, -math.inf, math.inf], [1.7e308, 1.7e308, math.nan], [1.7e308, 1.7e308, -1.7e308],
])  # fmt: skip
def test_a_sum_beyond_the_greatest_float_is_that_of_some_order_of_the_rows_that_remain(values: Sequence[float]) -> None:
    pond = Pond()
    calls = {"s": agg.sum("v"), "a": agg.avg("v")}
    rows = [{"id": number, "k": "x", "t": START, "v": value, "o": "c"} for number, value in enumerate(values)]
    schema = pa.Table.from_pylist(rows).schema
    for gone in permutations(range(len(values))):
        with pond.in_batches.aggregate(schema, calls, by="k", time="t", key="id", op="o") as run:
            there = dict(enumerate(values))
            found = run.feed(rows).to_pylist()[0]
            for number in (*gone[:-1], None):
                assert repr(found["s"]) in naive(list(there.values()))
                assert math.isnan(found["s"]) or found["a"] == found["s"] / len(there)
                if number is not None:
                    del there[number]
                    found = run.feed([{**rows[number], "o": "d"}]).to_pylist()[0]
    feed = pond.latest(rows, key="id", time="t", op="o")
    infinite = {value for value in values if not math.isfinite(value)}
    if len(infinite) == 1:
        assert repr(pond.aggregate(feed, calls, by="k", time="t")["s"].to_pylist()) == repr([*infinite])


def test_nothing_is_no_aggregate_of_a_feed_either() -> None:
    with pytest.raises(ConfigurationError, match="give at least one call"):
        Pond().aggregate(changes(1), {}, by="k", time="t", key="id", op="change")

"""``asof_join(emit="updates")``: what comes out is corrected by late versions, as long as the history goes back."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond import Pond
from millpond.processors.options.joins import JoinType
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.verbs.joins.asof_join import CORRECTED, Correcting, asof_join
from tests.processors.verbs.duck import answered
from tests.processors.verbs.running import an_input, running

START = datetime(2026, 6, 1)
TEXT: pa.DataType = pa.string()
TIME: pa.DataType = pa.timestamp("us")
NUMBER: pa.DataType = pa.int64()
LEFT = pa.schema([("k", TEXT), ("t", TIME), ("id", NUMBER), ("most", NUMBER)])
RIGHT = pa.schema([("k", TEXT), ("since", TIME), ("price", NUMBER), ("op", TEXT)])
KEY = ("k", "t", "id")


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def lefts(*rows: tuple[Any, ...]) -> pa.Table:
    """Return left rows, of key, minute and number, and the most that each pays."""
    made = [dict(zip(LEFT.names, (key, at(minute), *rest), strict=False)) for key, minute, *rest in rows]
    return pa.Table.from_pylist(made, LEFT)


def rights(*rows: tuple[Any, ...]) -> pa.Table:
    """Return right rows, of key, minute and price; None for a delete."""
    made = [(key, at(minute), price, "delete" if price is None else "upsert") for key, minute, price in rows]
    return pa.Table.from_pylist([dict(zip(RIGHT.names, row, strict=True)) for row in made], RIGHT)


def joined(**options: Any) -> MicroBatches:
    given: dict[str, Any] = {"history": "1 hour", "how": "left", "left_key": "id", **options}
    return Pond(backend=given.pop("backend", "memory")).in_batches.asof_join(
        LEFT, RIGHT, on="k", left_time="t", right_time="since", right_op="op", emit="updates", **given
    )


def told(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return what each change does: the number of the left row, the price, and the operation."""
    return [(row["id"], row.get("price"), row["op"]) for row in table.to_pylist()]


def test_a_row_comes_out_at_once_and_again_for_a_late_version() -> None:
    with joined() as join:
        assert told(join.feed(left=lefts(("a", 5, 1), ("a", 9, 2)))) == [(1, None, "upsert"), (2, None, "upsert")]
        assert told(join.feed(right=rights(("a", 3, 10)))) == [(1, 10, "upsert"), (2, 10, "upsert")]
        assert told(join.feed(right=rights(("a", 7, 20)))) == [(2, 20, "upsert")]
        assert told(join.feed(right=rights(("a", 12, 30)))) == []


def test_many_late_versions_of_a_micro_batch_are_one_change_and_one_of_the_same_value_is_none() -> None:
    with joined() as join:
        join.feed(left=lefts(("a", 30, 1)), right=rights(("a", 1, 10)))
        assert told(join.feed(right=rights(*(("a", minute, minute) for minute in range(2, 20))))) == [(1, 19, "upsert")]
    sides = LEFT, RIGHT.set(1, pa.field("t", pa.timestamp("us"))).remove(3)
    with Pond().in_batches.asof_join(*sides, on="k", time="t", history="1 hour", emit="updates", left_key="id") as join:
        rows = [
            rights(*one).drop_columns(["op"]).rename_columns(sides[1].names)
            for one in ((("a", 1, 5), ("a", 2, 7)), (("a", 3, 7),))
        ]
        assert join.feed(left=lefts(("a", 30, 1)), right=rows[0]).num_rows == 1
        assert join.feed(right=rows[1]).num_rows == 0


@pytest.mark.parametrize(
    ("how", "first", "deleted", "again"),
    [
        ("left", [(1, 10, "upsert")], [(1, None, "upsert")], [(1, 20, "upsert")]),
        ("inner", [(1, 10, "upsert")], [(1, None, "delete")], [(1, 20, "upsert")]),
        ("semi", [(1, None, "upsert")], [(1, None, "delete")], [(1, None, "upsert")]),
        ("anti", [], [(1, None, "upsert")], [(1, None, "delete")]),
    ],
)
def test_deletes_of_versions_correct_too(how: str, first: Any, deleted: Any, again: Any) -> None:
    with joined(how=how) as join:
        assert told(join.feed(left=lefts(("a", 9, 1)), right=rights(("a", 1, 10)))) == first
        gone = join.feed(right=rights(("a", 3, None)))
        assert told(gone) == deleted
        assert [row["t"] for row in gone.to_pylist()] == [at(9)]
        assert told(join.feed(right=rights(("a", 5, 20)))) == again


def test_rows_of_one_key_and_time_are_told_apart_and_one_that_comes_twice_is_one() -> None:
    with joined() as join:
        assert len(join.feed(left=lefts(("a", 5, 1), ("a", 5, 2), ("a", 5, 2)))) == 2
        assert told(join.feed(left=lefts(("a", 5, 2), ("a", 5, 3)))) == [(3, None, "upsert")]
        assert sorted(told(join.feed(right=rights(("a", 5, 7))))) == [(number, 7, "upsert") for number in (1, 2, 3)]


@pytest.mark.parametrize("first", [(1, 4), (4, 1)])
def test_of_two_rows_with_one_key_time_and_number_the_greater_counts_in_any_order(first: Sequence[int]) -> None:
    with joined() as join:
        found = [join.feed(left=lefts(("a", 5, 1, most))) for most in first]
        assert [row["most"] for table in found for row in table.to_pylist()][-1] == 4


def test_a_condition_a_tolerance_and_a_default_hold_for_corrections() -> None:
    cheap = pc.field("price") <= pc.field("most")
    with joined(where=cheap, tolerance="5 minutes", default={"price": -1}) as join:
        assert told(join.feed(left=lefts(("a", 9, 1, 10), ("a", 20, 2, 10)))) == [(1, -1, "upsert"), (2, -1, "upsert")]
        assert told(join.feed(right=rights(("a", 5, 8)))) == [(1, 8, "upsert")]
        assert told(join.feed(right=rights(("a", 7, 11)))) == [(1, -1, "upsert")]
        assert told(join.feed(right=rights(("a", 8, 3)))) == [(1, 3, "upsert")]
    with joined(where=cheap, otherwise="next", tolerance="5 minutes") as join:
        join.feed(left=lefts(("a", 9, 1, 10)), right=rights(("a", 8, 11)))
        assert told(join.feed(right=rights(("a", 5, 8)))) == [(1, 8, "upsert")]


def test_a_nearer_row_corrects_without_a_grace() -> None:
    with joined(direction="nearest", tolerance="10 minutes") as join:
        assert told(join.feed(left=lefts(("a", 20, 1)), right=rights(("a", 12, 1)))) == [(1, 1, "upsert")]
        assert told(join.feed(right=rights(("a", 27, 2)))) == [(1, 2, "upsert")]
        assert told(join.feed(right=rights(("a", 18, 3)))) == [(1, 3, "upsert")]
        assert told(join.feed(right=rights(("a", 23, 4)))) == []
    with joined(direction="forward", tolerance="10 minutes") as join:
        assert told(join.feed(left=lefts(("a", 20, 1)), right=rights(("a", 29, 1)))) == [(1, 1, "upsert")]
        assert told(join.feed(right=rights(("a", 22, 2)))) == [(1, 2, "upsert")]
        assert told(join.feed(right=rights(("a", 22, None)))) == [(1, 1, "upsert")]


def test_a_row_without_a_time_or_a_key_comes_out_once() -> None:
    with joined() as join:
        rows = pa.Table.from_pylist([{"k": "a", "id": 1}, {"t": at(3), "id": 2}, {"k": "a", "t": at(3), "id": 3}], LEFT)
        assert sorted(told(join.feed(left=rows))) == [(number, None, "upsert") for number in (1, 2, 3)]
        assert told(join.feed(right=rights(("a", 1, 10)))) == [(3, 10, "upsert")]
    with joined(null_safe=True) as join:
        join.feed(left=pa.Table.from_pylist([{"t": at(3), "id": 2}], LEFT))
        assert told(join.feed(right=rights((None, 1, 10)))) == [(2, 10, "upsert")]


def test_what_is_older_than_the_history_stays_as_it_came_out() -> None:
    with joined(history="10 minutes") as join:
        join.feed(left=lefts(("a", 5, 1)), right=rights(("a", 1, 10)))
        join.feed(left=lefts(("a", 14, 2)))
        assert told(join.feed(right=rights(("a", 4.5, 15)))) == [(1, 15, "upsert"), (2, 15, "upsert")]
        join.feed(left=lefts(("a", 16, 3)))
        assert told(join.feed(right=rights(("a", 4.75, 20)))) == [(2, 20, "upsert"), (3, 20, "upsert")]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_rows_that_no_version_can_correct_any_more_are_gone(backend: str) -> None:
    left, right = an_input("left", {"k": pa.string()}, {"id": pa.int64()}), an_input("right", {"k": pa.string()}, {})
    made = asof_join(
        "j", left, right, JoinType.LEFT, history=100_000, grace=None, columns=[], correcting=Correcting(100_000, ["id"])
    )
    with running(made, backend) as driver:
        most = 0
        for time in range(0, 5_000_000, 10_000):
            driver.pipe({"left": [{"k": str(time % 7), "id": time, "t": time}]}, {"left": "t"})
            most = max(most, len(list(driver.driver.store(CORRECTED).segments.entries(0, time))))
        assert most < 30


def random_rows(size: int, late: float, seed: int, keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return rows of both sides over many hours in the order in which they come, each so many minutes late at most."""
    random = Random(seed)
    rows: list[tuple[float, str, dict[str, Any]]] = []
    taken = set()
    for number in range(size):
        minute, key = round(random.uniform(0, size / 4), 3), random.choice(keys)
        row = {"k": key, "t": at(minute), "id": number, "most": random.randrange(9)}
        rows.append((minute + random.uniform(0, late), "left", row))
    for _ in range(size):
        minute, key = round(random.uniform(0, size / 4), 3), random.choice(keys)
        op = random.choice(["upsert", "upsert", "delete"])
        if (key, minute) not in taken:
            taken.add((key, minute))
            row = {"k": key, "since": at(minute), "price": random.randrange(9), "op": op}
            rows.append((minute + random.uniform(0, late), "right", row))
    return [(side, row) for _, side, row in sorted(rows, key=lambda one: one[0])]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("keys", ["a", "abcdefgh"])
@pytest.mark.parametrize("most", [3, 50, 3000])
def test_a_backlog_and_a_hot_key_are_corrected_as_single_rows_are(backend: str, keys: str, most: int) -> None:
    """A micro-batch of many times the history, behind one with rows that are to be corrected."""
    size = 250 if most == 3 else 800
    rows, random = random_rows(size, 10, most, keys), Random(most)
    feed: dict[tuple[Any, ...], dict[str, Any]] = {}
    with joined(history="10 minutes", how="inner", backend=backend) as join:
        while rows:
            count = random.randint(1, most)
            batch, rows = rows[:count], rows[count:]
            tables = {
                side: pa.Table.from_pylist([row for one, row in batch if one == side], schema)
                for side, schema in (("left", LEFT), ("right", RIGHT))
            }
            for row in join.feed(left=tables["left"], right=tables["right"]).to_pylist():
                feed[tuple(row[name] for name in KEY)] = row
    found = sorted((row["id"], row["price"]) for row in feed.values() if row["op"] == "upsert")
    given = random_rows(size, 10, most, keys)
    query = """
        SELECT l.id, r.price FROM l ASOF JOIN r ON l.k = r.k AND l.t >= r.since WHERE r.op = 'upsert' ORDER BY l.id
    """
    sides = {
        name: pa.Table.from_pylist([row for one, row in given if one == side], schema)
        for name, side, schema in (("l", "left", LEFT), ("r", "right", RIGHT))
    }
    assert found == answered(query, **sides)


def test_a_late_version_looks_up_the_rows_again_that_it_is_for_and_no_others() -> None:
    asked = []

    def counted(both: pa.Table) -> Any:
        asked.append(both.num_rows)
        return pa.array([True] * both.num_rows)

    left = an_input("left", {"k": pa.string()}, {"id": pa.int64()})
    right = an_input("right", {"k": pa.string()}, {"v": pa.int64()})
    made = asof_join(
        "j", left, right, JoinType.LEFT, history=10**9, grace=None, columns=["v"], where=counted,
        correcting=Correcting(10**9, ["id"]),
    )  # fmt: skip
    with running(made) as driver:
        times = {"left": "t", "right": "t"}
        driver.pipe({"right": [{"k": "a", "v": time, "t": time} for time in range(0, 5_000, 10)]}, times)
        driver.pipe({"left": [{"k": "a", "id": time, "t": time} for time in range(5_000)]}, times)
        driver.read()
        asked.clear()
        driver.pipe({"right": [{"k": "a", "v": -1, "t": time} for time in (1_005, 3_007)]}, times)
        assert [row["id"] for row in driver.read()] == [*range(1_005, 1_010), *range(3_007, 3_010)]
        assert sum(asked) == 8


def test_the_next_verb_honors_what_was_taken_back() -> None:
    pond = Pond().in_batches
    rows = [lefts(("a", 5, 1), ("a", 6, 2)), rights(("a", 1, 10)), rights(("a", 3, None)), rights(("a", 5.5, 7))]
    with joined(how="inner") as join:
        found = [join.feed(left=rows[0], right=rows[1]), join.feed(right=rows[2]), join.feed(right=rows[3])]
    with pond.latest(found[0].schema, key=["k", "t", "id"], time="change_time", history="0 seconds") as latest:
        assert [told(latest.feed(changes)) for changes in found] == [
            [(1, 10, "upsert"), (2, 10, "upsert")],
            [(1, None, "delete"), (2, None, "delete")],
            [(2, 7, "upsert")],
        ]


def test_a_match_is_explained_as_it_is_now() -> None:
    with joined() as join:
        (row,) = join.feed(left=lefts(("a", 9, 1)), right=rights(("a", 1, 10))).to_pylist()
        assert "the match is that of 2026-06-01 00:01:00" in str(join.explain_match(row))
        (again,) = join.feed(right=rights(("a", 7, 20))).to_pylist()
        told_now = str(join.explain_match(again))
        assert "the match is that of 2026-06-01 00:07:00" in told_now
        assert "came out with" not in told_now
        assert "the row came out with" in str(join.explain_match(row))
        (deleted,) = join.feed(right=rights(("a", 8, None))).to_pylist()
        assert "the key was deleted at 2026-06-01 00:08:00" in str(join.explain_match(deleted))

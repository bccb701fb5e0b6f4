"""Verbs that take a change feed as a table keep the table that it describes, whatever the times of its rows."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from millpond import Pond
from millpond.processors.pond.micro_batches import MicroBatches
from tests.pond import test_feed_aggregates

START = datetime(2026, 6, 1)
LONG = "1000 days"
TIMES = pa.timestamp("us", "UTC")
_ORDERS: Any = [
    ("id", pa.int64()), ("who", pa.string()), ("sum", pa.int64()), ("due", TIMES), ("at", TIMES), ("does", pa.string())
]  # fmt: skip
ORDERS = pa.schema(_ORDERS)
_NAMES: Any = [("who", pa.string()), ("name", pa.string()), ("since", TIMES), ("op", pa.string())]
NAMES = pa.schema(_NAMES)
BACKENDS = ["memory", "lmdb", "rocksdb"]


class Kept(test_feed_aggregates.Kept):
    """A table that takes the changes of a feed; joins by foreign key also delete what is not there any more."""

    def take(self, feed: pa.Table) -> None:
        for row in feed.sort_by("sequence").to_pylist():
            self.rows[row["id"],] = row
            if row["op"] == "delete":
                del self.rows[row["id"],]


def moment(minutes: int) -> datetime:
    return START.astimezone() + timedelta(minutes=minutes)


def orders(seed: int, count: int = 150) -> pa.Table:
    """Return changes of a few orders, which come late as often as not; one is due before or after it is told of."""
    chance = random.Random(seed)
    rows = [
        (chance.randrange(12), chance.choice("abc"), number, moment(chance.randrange(400)), moment(at),
         chance.choice(["upsert", "upsert", "delete"]))
        for number in range(count)
        for at in [number + chance.randrange(60)]
    ]  # fmt: skip
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], ORDERS)


def names(seed: int, count: int = 60) -> pa.Table:
    chance = random.Random(seed)
    rows = [
        (chance.choice("abc"), f"n{number}", moment(3 * number + chance.randrange(60)),
         chance.choice(["upsert", "delete"]))
        for number in range(count)
    ]  # fmt: skip
    return pa.Table.from_pylist([dict(zip(NAMES.names, row, strict=True)) for row in rows], NAMES)


def latest(seed: int) -> pa.Table:
    """Return the feed of a table of the latest rows, micro-batch by micro-batch."""
    with Pond().in_batches.latest(ORDERS, key="id", time="at", op="does", history=LONG) as running:
        return pa.concat_tables([running.feed(part) for part in cut(orders(seed), random.Random(seed))])


def joined(seed: int) -> pa.Table:
    """Return the feed of a join of tables without a history: changes come late, and rows come and go with a name."""
    chance, given, named = random.Random(seed), orders(seed), names(seed)
    with Pond().in_batches.table_join(
        ORDERS, NAMES, on="who", left_key="id", left_time="at", right_time="since", left_op="does", right_op="op"
    ) as running:
        parts = [(given, "left"), (named, "right")]
        come = [(side, part) for rows, side in parts for part in cut(rows, chance)]
        chance.shuffle(come)
        return pa.concat_tables([fed(running, side, part) for side, part in come])


FEEDS: dict[str, Callable[[int], pa.Table]] = {"latest": latest, "joined": joined}


def cut(rows: pa.Table, chance: random.Random) -> Iterator[pa.Table]:
    """Yield the rows in micro-batches, within each of which they come in any order."""
    while rows.num_rows:
        part = rows.slice(0, chance.choice([1, 2, 7, 40]))
        rows = rows.slice(part.num_rows)
        places = list(range(part.num_rows))
        chance.shuffle(places)
        yield part.take(places)


def shown(rows: dict[Any, dict[str, Any]]) -> list[Any]:
    return sorted(rows.items(), key=repr)


NOTES = pa.Table.from_pylist([{"id": number, "note": f"{number}", "noted": START.astimezone()} for number in range(12)])


def by_latest(pond: Any, feed: pa.Schema) -> tuple[MicroBatches, str]:
    return pond.latest(feed, key="id", time="due", history="10 minutes"), "rows"


def by_left(history: str | None, **options: Any) -> Any:
    def made(pond: Any, feed: pa.Schema) -> tuple[MicroBatches, str]:
        given = {"on": "id", "left_time": "due", "right_time": "noted", "history": history, "how": "left", **options}
        return pond.table_join(feed, NOTES.schema, **given), "left"

    return made


def by_foreign_key(pond: Any, feed: pa.Schema) -> tuple[MicroBatches, str]:
    columns: Any = [("who", pa.string()), ("seen", TIMES)]
    whose = pa.schema(columns)
    given: dict[str, Any] = {"on": "who", "left_key": "id", "left_time": "due", "right_time": "seen"}
    return pond.table_join(feed, whose, how="left", **given), "left"


def by_right(history: str | None) -> Any:
    def made(pond: Any, feed: pa.Schema) -> tuple[MicroBatches, str]:
        given: dict[str, Any] = {"on": "id", "left_time": "noted", "right_time": "due", "history": history}
        return pond.table_join(NOTES.schema, feed, **given), "right"

    return made


def by_many(history: str | None) -> Any:
    def made(pond: Any, feed: pa.Schema) -> tuple[MicroBatches, str]:
        times = {"orders": "due", "notes": "noted"}
        given: dict[str, Any] = {"on": "id", "time": times, "history": history, "how": "left"}
        return pond.multi_join({"orders": feed, "notes": NOTES.schema}, **given), "orders"

    return made


TABLES = {
    "latest": by_latest,
    "left": by_left(None),
    "left with a history": by_left("10 minutes"),
    "left that lives long": by_left(None, ttl=LONG),
    "left by foreign key": by_foreign_key,
    "right": by_right(None),
    "right with a history": by_right("10 minutes"),
    "many": by_many(None),
    "many with a history": by_many("10 minutes"),
}


def fed(verb: MicroBatches, role: str, part: pa.Table) -> pa.Table:
    if role in ("left", "right"):
        side: dict[str, Any] = {role: part}
        return verb.feed(**side)
    return verb.feed(part) if role == "rows" else verb.feed(tables={role: part})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("feed", sorted(FEEDS))
@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("seed", range(3))
def test_a_table_of_a_feed_is_what_the_feed_describes(table: str, feed: str, backend: str, seed: int) -> None:
    changes, chance = FEEDS[feed](seed), random.Random(seed + 100)
    verb, role = TABLES[table](Pond(backend=backend).in_batches, changes.schema)
    own, kept = Kept(["id"]), Kept(["id"])
    columns = ["who", "sum", "due"]
    with verb:
        if role != "rows" and "foreign" not in table:
            other = {"left": "right", "right": "left", "orders": "notes"}[role]
            kept.take(fed(verb, other, NOTES))
        for part in cut(changes, chance):
            own.take(part)
            kept.take(fed(verb, role, part))
            assert shown(kept.told(*columns)) == shown(own.told(*columns))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("feed", sorted(FEEDS))
@pytest.mark.parametrize("seed", range(3))
def test_left_rows_of_now_meet_the_rows_that_a_feed_describes(feed: str, backend: str, seed: int) -> None:
    changes, chance = FEEDS[feed](seed), random.Random(seed)
    own, now = Kept(["id"]), moment(1000)
    asked = pa.Table.from_pylist([{"id": number, "now": now} for number in range(12)])
    pond = Pond(backend=backend).in_batches
    with pond.asof_join(
        asked.schema, changes.schema, on="id", left_time="now", right_time="due", history="10 minutes", how="left"
    ) as running:
        for part in cut(changes, chance):
            own.take(part)
            running.feed(right=part)
            found = running.feed(left=asked).to_pylist()
            told = own.told("who", "sum", "due")
            nothing = dict.fromkeys(("who", "sum", "due"))
            expected = [{"id": number, "now": now, **told.get((number,), nothing)} for number in range(12)]
            names = list(expected[0])
            assert [{name: row[name] for name in names} for row in sorted(found, key=lambda row: row["id"])] == expected


def one(*rows: tuple[Any, ...]) -> Sequence[dict[str, Any]]:
    """Return changes of an order as a feed has them: what it does, when, and when the order is due."""
    return [
        {"id": 1, "due": due if due is None else moment(due), "op": op, "sequence": number, "change_time": moment(time)}
        for number, (op, time, due) in enumerate(rows)
    ]


def told(*rows: tuple[Any, ...]) -> pa.Table:
    """Return the same with the marks of a feed."""
    columns: Any = [("id", pa.int64()), ("due", TIMES), ("at", TIMES)]
    marked = Pond().latest(pa.schema(columns).empty_table(), key="id", time="at").drop_columns(["at"]).schema
    return pa.Table.from_pylist(one(*rows), marked)


LIVES = [
    ([("upsert", 1, 5), ("delete", 8, None)], {4: None, 5: 5, 7: 5, 8: None}),
    ([("upsert", 1, 5), ("delete", 3, None)], {4: None, 5: None, 9: None}),
    ([("upsert", 1, 5), ("delete", 8, None), ("upsert", 9, 5)], {4: None, 7: 5, 8: 5, 20: 5}),
    ([("upsert", 1, 5), ("upsert", 2, 9), ("delete", 3, None)], {4: None, 5: 5, 8: 5, 9: None}),
    ([("upsert", 1, 9), ("upsert", 2, 5)], {4: None, 8: None, 9: 5}),
]
"""Changes, and by time the row that is valid."""


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("changes", "expected"), LIVES)
def test_a_change_is_valid_from_its_time_on_but_not_before_the_one_that_it_replaces(
    changes: list[Any], expected: dict[int, int | None], at_once: bool
) -> None:
    rows, asked = told(*changes), pa.table({"id": [1] * len(expected), "now": [moment(time) for time in expected]})
    pond = Pond().in_batches
    with pond.asof_join(
        asked.schema, rows.schema, on="id", left_time="now", right_time="due", history=LONG, how="left"
    ) as running:
        for part in [rows] if at_once else [rows.slice(place, 1) for place in range(rows.num_rows)]:
            running.feed(right=part)
        found = {row["now"]: row["due"] for row in running.feed(left=asked).to_pylist()}
    assert found == {moment(time): None if due is None else moment(due) for time, due in expected.items()}
    if at_once:
        static = Pond().asof_join(asked, rows, on="id", left_time="now", right_time="due", how="left").to_pylist()
        assert {row["now"]: row["due"] for row in static} == found


@pytest.mark.parametrize("history", [None, "1 minute"])
def test_a_delete_that_is_older_than_a_row_s_time_to_live_takes_it_out_if_the_row_is_not(history: str | None) -> None:
    rows = told(("upsert", 1, 100), ("delete", 20, None))
    other = pa.Table.from_pylist([{**one(("upsert", 1, 105))[0], "id": 2}], rows.schema)
    kept = Kept(["id"])
    with Pond().in_batches.table_join(
        rows.schema, NOTES.schema, on="id", left_time="due", right_time="noted", how="left", ttl="10 minutes",
        history=history,
    ) as running:  # fmt: skip
        for part in (rows.slice(0, 1), other):
            kept.take(running.feed(left=part))
        assert sorted(kept.rows) == [(1,), (2,)]
        kept.take(running.feed(left=rows.slice(1)))
    assert sorted(kept.rows) == [(2,)]


def test_a_delete_that_a_stream_meets_has_the_time_of_the_change() -> None:
    rows = told(("upsert", 1, 5), ("delete", 8, None))
    seen = pa.Table.from_pylist([{"id": 1, "seen": moment(time)} for time in (5, 8)])
    given: dict[str, Any] = {"on": "id", "within": "1 minute"}
    met = Pond().stream_join(rows, seen, left_time="due", right_time="seen", **given).to_pylist()
    assert [(row["op"], row["seen"]) for row in met] == [("upsert", moment(5)), ("delete", moment(8))]
    met = Pond().stream_join(seen, rows, left_time="seen", right_time="due", **given).to_pylist()
    assert [(row["op"], row["seen"]) for row in met] == [("upsert", moment(5)), ("delete", moment(8))]

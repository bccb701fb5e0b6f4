"""Rows without a time: a join that keeps unmatched rows keeps them, and nothing else changes by them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import AsofDirection, JoinType, Side
from millpond.processors.options.on_error import OnError
from millpond.processors.pond import verb_tasks
from tests.metamorphic import engine
from tests.metamorphic.checking import bag, schema
from tests.metamorphic.histories import SECOND, Chain, Event, Way, run
from tests.processors.verbs.duck import answered

A, B = (Rows.of(source, schema(source)) for source in "ab")
WAYS = [
    pytest.param(Way(1, 0, 1, (1,)), id="one task"),
    pytest.param(Way(2, 0, 3, (8,), complete=False), id="eight tasks"),
    pytest.param(Way(3, 0, 2, (2,), backend=None), id="durable"),
]


def row(source: str, second: int | None, key: str | None = "a", value: int = 1) -> Event:
    at = None if second is None else (1_000 + second) * SECOND
    return Event(source, at or 0, {"k": key, f"{source}t": at, f"{source}v": value})


def untimed(join: Made, batches: Sequence[Sequence[Event]], way: Way) -> list[dict[str, Any]]:
    return run(Chain([join], {source: schema(source) for source in "ab"}, {"a": "at", "b": "bt"}), batches, way).rows


def asof(how: JoinType = JoinType.LEFT, grace: int | None = None) -> Made:
    return make_asof_join("out", A, B, on="k", times=("at", "bt"), history=60 * SECOND, grace=grace, how=how)


def near(how: JoinType) -> Made:
    return make_stream_join(
        "out", A, B, on="k", times=("at", "bt"), before=5 * SECOND, after=5 * SECOND, grace=0, how=how
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grace", [None, 5 * SECOND])
def test_a_left_row_without_a_time_comes_out_of_an_asof_join_without_a_match(way: Way, grace: int | None) -> None:
    first = [row("a", None), row("a", None, None, 2)]
    rest = [row("b", 10), row("a", 20), row("a", None, "b", 3), row("a", None, value=4)]
    rows = untimed(asof(grace=grace), [first, rest, [row("b", 30, value=9), row("a", 25)]], way)
    alone = [{"k": key, "av": value} for key, value in (("a", 1), (None, 2), ("b", 3), ("a", 4))]
    met = {"k": "a", "av": 1, "bv": 1, "bt": 1_010 * SECOND}
    assert bag(rows) == bag([*alone, {**met, "at": 1_020 * SECOND}, {**met, "at": 1_025 * SECOND}])


@pytest.mark.parametrize("way", WAYS)
def test_nor_does_such_a_row_meet_what_comes_later(way: Way) -> None:
    join = make_asof_join(
        "out", A, B, on="k", times=("at", "bt"), history=60 * SECOND, how=JoinType.LEFT, grace=0, tolerance=5 * SECOND,
        exact=False, direction=AsofDirection.FORWARD,
    )  # fmt: skip
    rows = untimed(join, [[row("b", 3), row("a", None)], [row("a", 8), row("a", None, "b")], [row("b", 10)]], way)
    alone = [{"k": "a", "av": 1}, {"k": "b", "av": 1}]
    assert bag(rows) == bag([*alone, {"k": "a", "av": 1, "at": 1_008 * SECOND, "bv": 1, "bt": 1_010 * SECOND}])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", [one for one in JoinType if any(map(one.keeps, Side))])
def test_a_row_without_a_time_comes_out_of_a_join_of_streams_without_a_partner(way: Way, how: JoinType) -> None:
    batches = [
        [row("a", None), row("a", None, None, 2)],
        [row("a", 100), row("b", 103), row("a", 150)],
        [row("a", None, value=3), row("b", 151)],
        [row("a", None, value=4), row("b", None, "b", 5)],
    ]
    kept = [how.keeps(side) for side in Side]
    usable = [[one for one in some if one.row[f"{one.source}t"] or kept["ab".index(one.source)]] for some in batches]
    rows = untimed(near(how), usable, way)
    alone: list[dict[str, Any]] = [{"k": key, "av": value} for key, value in (("a", 1), (None, 2), ("a", 3), ("a", 4))]
    alone = [*(alone if kept[0] else []), *([{"k": "b", "bv": 5}] if kept[1] else [])]
    pairs = [{"k": "a", "at": (1_000 + a) * SECOND, "av": 1, "bt": (1_000 + b) * SECOND, "bv": 1}
             for a, b in ((100, 103), (150, 151))]  # fmt: skip
    assert bag(rows) == bag([*alone, *(pairs if how.shows_right else [])])


@pytest.mark.parametrize("way", WAYS)
def test_a_row_without_a_time_comes_out_in_its_own_micro_batch(way: Way) -> None:
    joins = [(asof(), [1, 7, 8]), (asof(grace=30 * SECOND), [7, 1, 8]), (near(JoinType.LEFT), [1, 7, 8])]
    for join, order in joins:
        batches = [[row("b", 1), row("a", 2)], [row("a", None, value=7)], [row("a", 3, value=8)]]
        assert [one["av"] for one in untimed(join, batches, replace(way, complete=True))] == order


def test_left_rows_without_a_time_get_what_duckdb_gives_them() -> None:
    left = [
        row("a", at, key, value) for value, (at, key) in enumerate([(None, "a"), (5, "a"), (20, "a"), (None, None)])
    ]
    right = [row("b", 10, value=1), row("b", 15, value=2)]
    tables = {
        source: pa.Table.from_pylist([event.row for event in events], schema(source))
        for source, events in (("a", left), ("b", right))
    }
    columns = 'a.k, epoch_us("at"), av, epoch_us(bt), bv'
    expected = answered(f'select {columns} from a asof left join b on a.k = b.k and "at" >= bt', **tables)
    names = ["k", "at", "av", "bt", "bv"]
    for batches in ([[*right, *left]], [right, *([one] for one in left)]):
        rows = untimed(asof(), batches, Way(1, 0, 1, (2,)))
        assert bag(rows) == bag(dict(zip(names, one, strict=True)) for one in expected)


def test_a_left_join_that_skips_loses_no_left_row(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, early = 2 * verb_tasks.EVENT_TIMES.now() // SECOND, -verb_tasks.EVENT_TIMES.now() // SECOND * 100
    monkeypatch.setattr(verb_tasks, "EVENT_TIMES", replace(verb_tasks.EVENT_TIMES, max_ahead=0))
    monkeypatch.setattr(engine, "ON_ERROR", OnError.SKIP)
    way = Way(1, 0, 1, (2,))
    for join in (asof(), near(JoinType.LEFT)):
        batches = [[row("b", 10), row("a", ahead), row("a", early, value=2)], [row("a", 11, value=3)]]
        rows = untimed(join, batches, way)
        assert sorted((one["av"], one["bv"]) for one in rows) == [(1, None), (2, None), (3, 1)]

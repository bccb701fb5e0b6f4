"""Verbs at other times than those around the present: from the year 1 on, across 1970, and those that mean never."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import RecordError
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import FOREIGN_KEY_JOINS, TABLE_JOINS, JoinType
from millpond.processors.options.on_error import OnError
from millpond.processors.pond import verb_tasks
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.row_source import RowSource
from millpond.stores.encoding.times import TimeUnit, to_instant_micros
from tests.metamorphic import test_verbs as verbs
from tests.metamorphic.checking import KEYS, LENGTHS, TWO, event, histories, rows_of, schema
from tests.metamorphic.histories import SECOND, Chain, Event, Way, run

DAY = 86_400 * SECOND
FIRST, LAST = (to_instant_micros(datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 9999))
ORIGINS = {"year 1": FIRST, "1900": to_instant_micros(datetime(1900, 1, 1, tzinfo=UTC)), "1970": -20 * SECOND}
SCHEMAS = {source: schema(source) for source in "ab"}
A, B = (Rows.of(source, one) for source, one in SCHEMAS.items())
AGGREGATE: tuple[Any, ...] = (verbs.SOME, TWO, verbs.BY, verbs.WHICH, LENGTHS, st.booleans())
TESTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "aggregate": (verbs.test_aggregates_by_key, (verbs.SOME, TWO, verbs.BY, verbs.WHICH)),
    "tumbling": (verbs.test_aggregates_by_tumbling_window, AGGREGATE),
    "hopping": (verbs.test_aggregates_by_hopping_window, AGGREGATE),
    "sliding": (verbs.test_aggregates_by_sliding_window, AGGREGATE),
    "sessions": (verbs.test_aggregates_by_session, AGGREGATE),
    "latest": (verbs.test_latest, (rows_of("a", KEYS, 14, op=True), TWO, LENGTHS, st.booleans())),
    "asof_join": (verbs.test_asof_join, (verbs.PAIRS, TWO, LENGTHS, verbs.MATCHES, st.booleans())),
    "asof_join with grace": (
        verbs.test_asof_join_with_grace,
        (verbs.PAIRS, TWO, st.sampled_from([1, 3, 8]), LENGTHS, verbs.MATCHES, st.booleans()),
    ),
    "asof_join ahead": (
        verbs.test_asof_join_ahead,
        (verbs.PAIRS, TWO, st.sampled_from([1, 3, 8]), LENGTHS, verbs.AHEAD, st.booleans()),
    ),
    "stream_join": (
        verbs.test_stream_join,
        (verbs.STREAMS, TWO, verbs.REACHES, LENGTHS, st.sampled_from(JoinType)),
    ),
    "table_join": (
        verbs.test_table_join,
        (verbs.TABLES, TWO, st.none() | LENGTHS, st.sampled_from(TABLE_JOINS)),
    ),
    "by foreign key": (
        verbs.test_table_join_by_foreign_key,
        (verbs.NAMING.map(verbs.with_ids), TWO, st.none() | LENGTHS, st.sampled_from(FOREIGN_KEY_JOINS)),
    ),
    "apply": (verbs.test_apply, (rows_of("a", KEYS, 14), TWO, LENGTHS)),
}


def row(source: str, second: int, value: int, key: str = "k") -> Event:
    return event(source, key, second, value, "", with_op=False)


def moved(events: Sequence[Event], origin: int) -> list[Event]:
    """Return the rows with the origin in place of that of ``event``."""
    by = origin - event("a", None, 0, None, "", with_op=False).at
    return [
        Event(one.source, one.at + by, {**one.row, f"{one.source}t": one.row[f"{one.source}t"] + by}) for one in events
    ]


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS.keys())
@pytest.mark.parametrize("name", TESTS)
@histories(5)
@given(data=st.data())
def test_verbs_answer_the_same_at_all_times(name: str, origin: int, data: st.DataObject) -> None:
    test, strategies = TESTS[name]
    events, *rest = data.draw(st.tuples(*strategies))
    test.hypothesis.inner_test(moved(events, origin), *rest)


VALID_FROM: dict[str, tuple[str, Callable[..., int]]] = {
    "latest": ("a", lambda ways, history, deletes: history),
    "asof_join": ("b", lambda *rest: 0),
    "asof_join with grace": ("b", lambda ways, grace, *rest: grace - 1),
    "table_join": ("ab", lambda ways, history, how: history or 0),
    "by foreign key": ("ab", lambda ways, history, how: history or 0),
}
"""The tables of verbs, and by how many seconds their rows may be late, given the rest of what a test draws."""


def key_of(one: Event) -> Any:
    return one.row["id" if "id" in one.row else "k"]


def first_versions(events: Sequence[Event], sources: str, origin: int, late: int) -> list[Event]:
    """Return a version of each key of these sources that comes just before all others and is older by far."""
    first: dict[tuple[str, Any], Event] = {}
    for one in sorted(events, key=lambda one: one.at):
        for source in sources:
            if one.source == source or sources == "b":
                first.setdefault((source, key_of(one)), one)
    versions = []
    for (source, key), one in first.items():
        own = one.row if one.source == source else event(source, key, 0, 0, "upsert", with_op=True).row
        row = {**own, f"{source}t": origin, f"{source}v": 77, f"{source}o": "upsert"}
        versions.append(Event(source, one.at - (late + 1) * SECOND, {name: row[name] for name in own}))
    return versions


@pytest.mark.parametrize("origin", ["year 1", "1900"])
@pytest.mark.parametrize("name", VALID_FROM)
@histories(18)
@given(data=st.data())
def test_a_key_may_begin_with_a_version_of_any_age_in_any_micro_batch(
    name: str, origin: str, data: st.DataObject
) -> None:
    test, strategies = TESTS[name]
    sources, late = VALID_FROM[name]
    events, *rest = data.draw(st.tuples(*strategies))
    versions = first_versions(events, sources, ORIGINS[origin], late(*rest))
    test.hypothesis.inner_test([*versions, *without_some(data, events, sources)], *rest)


def without_some(data: st.DataObject, events: Sequence[Event], sources: str) -> list[Event]:
    """Return the rows, without those of these sources under some keys, which have nothing but their first version."""
    alone = data.draw(st.sets(st.sampled_from([key_of(one) for one in events] or [""]), max_size=2))
    return [one for one in events if one.source not in sources or key_of(one) not in alone]


@pytest.mark.parametrize("name", ["latest", "table_join", "by foreign key"])
@histories()
@given(data=st.data())
def test_a_version_of_any_age_is_what_a_key_has_until_its_next_one(name: str, data: st.DataObject) -> None:
    test, strategies = TESTS[name]
    sources, _ = VALID_FROM[name]
    events, *rest = data.draw(st.tuples(*strategies))
    kept = [replace(one, row={**one.row, f"{one.source}o": "upsert"}) for one in events]
    versions = [
        replace(one, at=(1_000 + data.draw(st.integers(0, 40))) * SECOND)
        for one in first_versions(kept, sources, ORIGINS["1900"], 0)
    ]
    if rest[1] is None:
        rest[1] = 3
    test.hypothesis.inner_test([*versions, *without_some(data, kept, sources)], *rest)


def test_a_version_that_was_replaced_before_the_history_is_late() -> None:
    made = make_latest("out", B, key="k", time="bt", history=5 * SECOND)
    old = {"k": "k", "bt": ORIGINS["1900"], "bv": 0}
    batches = [[row("b", 10, 1)], [row("b", 20, 2, "other")], [Event("b", 0, old)]]
    answer = run(Chain([made], {"b": SCHEMAS["b"]}, {"b": "bt"}), batches, Way(1, 0, 1, (2,)))
    assert [one["bv"] for one in answer.rows] == [1, 2]
    assert [len(some) for some in answer.late["out"]] == [0, 0, 1]


def test_an_order_tells_apart_old_versions_of_one_micro_batch_and_the_first_ones_stay() -> None:
    source = schema("b", id_=True)
    made = make_latest("out", Rows.of("b", source), key="k", time="bt", history=5 * SECOND, order="id")

    def version(key: str, number: int) -> Event:
        return Event("b", 0, {"id": number, "k": key, "bt": ORIGINS["1900"], "bv": number})

    batches = [
        [replace(row("b", 20, 9, "other"), row={"id": 0, **row("b", 20, 9, "other").row})],
        [version("k", number) for number in (3, 5, 4)],
        [version("k", 7), version("l", 2), version("l", 1)],
    ]
    answer = run(Chain([made], {"b": source}, {"b": "bt"}), batches, Way(1, 0, 1, (2,)))
    assert sorted((one["k"], one["bv"]) for one in answer.rows) == [("k", 5), ("l", 2), ("other", 9)]
    assert [len(some) for some in answer.late["out"]] == [0, 0, 1]


def test_a_row_before_the_last_moment_of_1969_is_not_the_latest_of_its_key() -> None:
    made = make_latest("out", B, key="k", time="bt", history=DAY)
    rows = [Event("b", at, {"k": "k", "bt": at, "bv": at}) for at in (-1, -2)]
    found = run(Chain([made], {"b": SCHEMAS["b"]}, {"b": "bt"}), [[one] for one in rows], Way(1, 0, 1, (1,))).rows
    assert [one["bv"] for one in found] == [-1]


def never(source: str) -> list[Event]:
    return [Event(source, at, {"k": "k", f"{source}t": at, f"{source}v": 99}) for at in (LAST, LAST + 364 * DAY)]


@pytest.mark.parametrize("max_ahead", [None, DAY])
def test_versions_of_the_year_9999_are_not_valid_and_move_no_time(
    monkeypatch: pytest.MonkeyPatch, max_ahead: int | None
) -> None:
    monkeypatch.setattr(verb_tasks, "EVENT_TIMES", EventTimes(TimeUnit.MICROSECOND, max_ahead))
    way, history = Way(1, 0, 1, (2,)), 30 * SECOND

    def answered(made: Made, *batches: Sequence[Event]) -> list[dict[str, Any]]:
        sources = {"a": "at", "b": "bt"} if len(made.selections) > 1 else {"b": "bt"}
        return run(Chain([made], {source: SCHEMAS[source] for source in sources}, sources), batches, way).rows

    joined = make_asof_join("out", A, B, on="k", times=("at", "bt"), history=history)
    batches = [row("b", 10, 1), *never("b"), row("a", 11, 0)], [row("b", 12, 2), row("a", 13, 0), row("a", 11, 0)]
    assert [one["bv"] for one in answered(joined, *batches)] == [1, 1, 2]
    feed = make_latest("out", B, key="k", time="bt", history=history)
    assert [one["bv"] for one in answered(feed, [row("b", 10, 1), *never("b")], [row("b", 12, 2)])] == [1, 2]
    tables = make_table_join("out", A, B, on="k", times=("at", "bt"), history=history)
    changes = [row("a", 10, 1), row("b", 10, 1), *never("a"), *never("b")], [row("b", 12, 2)]
    assert [(one["av"], one["bv"]) for one in answered(tables, *changes)][-1] == (1, 2)


@pytest.mark.parametrize(
    ("at", "fault"),
    [
        (None, "column 'since': null in row 0"),
        (FIRST - 1, "column 'since': a time before the year 1 in row 0"),
        (
            LAST - 1,
            r"column 'since': a time ahead of the clock in row 0 .* 9998-12-31T23:59:59.999999\+00:00 is more than",
        ),
    ],
)
def test_what_is_wrong_with_a_time_is_told_and_what_is_never_valid_counted(at: int | None, fault: str) -> None:
    made = make_latest("out", B, key="k", time="bt", history=0)
    selection = made.selections["input"]
    table = pa.Table.from_pylist([{"k": "k", "bt": one, "bv": 0} for one in (at, FIRST, -1, LAST)], B.schema)
    source = RowSource(
        "out", made.verb.inputs["input"], "k", "since", "op", EventTimes(TimeUnit.MICROSECOND, DAY), None, OnError.FAIL
    )
    with pytest.raises(RecordError, match=fault):
        source.reader(0).usable(selection.of(table))
    skipping = replace(source, on_error=OnError.SKIP).reader(0)
    assert skipping.usable(selection.of(table))["timestamp"].to_pylist() == [FIRST, -1]
    assert skipping.skipped.total() == 2
    assert skipping.skipped["dropped-never-valid"] == 1

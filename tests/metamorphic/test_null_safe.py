"""Null-safe joins answer as if null were a value like any other, whatever the tasks, files, cuts and restarts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import ASOF_JOINS, TABLE_JOINS, JoinType
from tests.metamorphic.checking import NULLABLE, TWO, answers, bag, histories, rows_of, schema
from tests.metamorphic.histories import SECOND, Chain, Event, Way, current

SCHEMAS = {"b": schema("b", op=True), "a": schema("a", op=True, id_=True)}
A, B = (Rows.of(source, SCHEMAS[source]) for source in "ab")
GIVEN: dict[str, Any] = {"on": "k", "times": ("at", "bt")}
NOBODY: Final = "nobody"
"""A key that no row has."""

Join = Callable[[JoinType, bool], Made]


def asof(how: JoinType, null_safe: bool) -> Made:
    return make_asof_join("out", A, B, **GIVEN, history=60 * SECOND, grace=SECOND, how=how, null_safe=null_safe)


def near(how: JoinType, null_safe: bool) -> Made:
    before, after = 4 * SECOND, 3 * SECOND
    return make_stream_join(
        "out", A, B, **GIVEN, before=before, after=after, grace=SECOND, how=how, null_safe=null_safe
    )


def tables(how: JoinType, null_safe: bool) -> Made:
    return make_table_join("out", A, B, **GIVEN, ops=("ao", "bo"), how=how, null_safe=null_safe)


def by_foreign_key(how: JoinType, null_safe: bool) -> Made:
    return make_table_join("out", A, B, **GIVEN, ops=("ao", "bo"), left_key="id", how=how, null_safe=null_safe)


JOINS: list[tuple[Join, Sequence[JoinType], Sequence[str] | None]] = [
    (asof, ASOF_JOINS, None),
    (near, list(JoinType), None),
    (tables, TABLE_JOINS, ["k"]),
    (by_foreign_key, [JoinType.INNER, JoinType.LEFT], ["id"]),
    (by_foreign_key, [JoinType.RIGHT, JoinType.OUTER], ["id", "k"]),
]
"""Each with its types, and the key of the change feed that comes out."""


def with_ids(rows: tuple[list[Event], list[Event]]) -> list[Event]:
    """Return rows of both sides; those of the left one have a key and a foreign key that go by different ways."""
    left = [
        replace(one, row={"id": NULLABLE.index(one.row["k"]), **one.row, "k": NULLABLE[number % len(NULLABLE)]})
        for number, one in enumerate(rows[0])
    ]
    return [*left, *rows[1]]


def renamed(row: Mapping[str, Any], old: str | None, new: str | None) -> dict[str, Any]:
    return {**row, "k": new if row["k"] == old else row["k"]}


def told(rows: Sequence[Mapping[str, Any]], key: Sequence[str] | None) -> Any:
    """Return what rows say; those of a change feed, by its key."""
    return bag(rows if key is None else current(rows, list(key)).values())


EVENTS = st.tuples(rows_of("a", NULLABLE, op=True), rows_of("b", NULLABLE, op=True))


@pytest.mark.parametrize(("join", "types", "key"), JOINS, ids=[join[0].__name__ for join in JOINS])
def test_null_is_a_value_like_any_other(join: Join, types: Sequence[JoinType], key: Sequence[str] | None) -> None:
    @histories()
    @given(EVENTS, TWO, st.sampled_from(types))
    def check(drawn: tuple[list[Event], list[Event]], ways: list[Way], how: JoinType) -> None:
        events = with_ids(drawn)
        if key == ["k"]:
            # Of one key and time no order is given.
            events = list({(one.source, one.row["k"], one.at): one for one in events}.values())
        others = [replace(one, row=renamed(one.row, None, NOBODY)) for one in events]
        found, expected = (
            answers(Chain([join(how, null_safe)], SCHEMAS, {"b": "bt", "a": "at"}), some, {"b": 0, "a": 0}, ways)
            for some, null_safe in ((events, True), (others, False))
        )
        for answer, other in zip(found, expected, strict=True):
            assert told(answer.rows, key) == told([renamed(row, NOBODY, None) for row in other.rows], key)

    check()

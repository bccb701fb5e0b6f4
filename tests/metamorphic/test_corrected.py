"""The change feed of an as-of join leaves the as-of join of all rows, however these come."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import Unfit
from tests.metamorphic import oracle
from tests.metamorphic.checking import (
    EXAMPLES,
    KEYS,
    LENGTHS,
    NULLABLE,
    TWO,
    answers,
    bag,
    histories,
    own,
    rows_of,
    schema,
)
from tests.metamorphic.histories import SECOND, SHARING, Chain, Event, Way, current
from tests.metamorphic.oracle import Row
from tests.metamorphic.test_verbs import AHEAD, MATCHES, Matches, is_less, is_less_of

SCHEMAS = {"b": schema("b", op=True), "a": schema("a", id_=True)}
KEY = ["k", "at", "id"]


def numbered(events: Sequence[Event]) -> list[Event]:
    return [replace(one, row={"id": number, **one.row}) for number, one in enumerate(events)]


def with_rights(keys: list[Any]) -> st.SearchStrategy[list[Event]]:
    """Return left rows, of which some have the key and time of others, and right rows."""
    lefts = st.tuples(rows_of("a", keys), rows_of("a", keys)).map(lambda both: numbered([*both[0], *both[1]]))
    return st.tuples(lefts, rows_of("b", keys, most=14, op=True)).map(lambda both: [*both[0], *both[1]])


def corrected(late: int, matches: Matches, deletes: bool) -> Made:
    default = {"bv": -1} if matches.filled and matches.how.value == "left" else {}
    reach = 0 if matches.direction.looks_back and not matches.direction.looks_ahead else matches.tolerance or 0
    return make_asof_join(
        "out",
        Rows.of("a", SCHEMAS["a"]),
        Rows.of("b", SCHEMAS["b"]),
        on="k",
        times=("at", "bt"),
        history=late * SECOND + reach,
        how=matches.how,
        tolerance=matches.tolerance,
        exact=matches.exact,
        direction=matches.direction,
        where=None if matches.chosen is None else lambda columns: is_less,
        unfit=matches.chosen or Unfit.MISS,
        default={name: pa.scalar(value, SCHEMAS["b"].field(name).type) for name, value in default.items()},
        right_op="bo" if deletes else None,
        left_key=["id"],
    )


def expected_of(events: Sequence[Event], matches: Matches, deletes: bool) -> list[Row]:
    default = {"bv": -1} if matches.filled and matches.how.value == "left" else {}
    found = oracle.asof(
        own(events, "a"), own(events, "b"), matches.how.value, ("at", "bt"), "bo" if deletes else None,
        matches.tolerance, matches.exact, default, matches.direction.value,
        None if matches.chosen is None else is_less_of, matches.chosen is Unfit.NEXT,
    )  # fmt: skip
    return [{name: row[name] for name in row if name != "bo" or not deletes} for row in found]


def check(events: list[Event], ways: list[Way], late: int, matches: Matches, deletes: bool) -> None:
    chain = Chain([corrected(late, matches, deletes)], SCHEMAS, {"b": "bt", "a": "at"})
    expected = bag(expected_of(events, matches, deletes))
    for answer in answers(chain, events, dict.fromkeys("ab", late), ways):
        left = current(answer.rows, KEY).values()
        assert all(row["change_time"] == row["at"] for row in left)
        assert bag({name: row[name] for name in row if name != "change_time"} for row in left) == expected


@histories(2 * EXAMPLES)
@given(with_rights(NULLABLE), TWO, LENGTHS, MATCHES, st.booleans())
def test_what_is_left_of_the_feed_is_the_join_of_all_rows(
    events: list[Event], ways: list[Way], late: int, matches: Matches, deletes: bool
) -> None:
    check(events, ways, late, matches, deletes)


@histories(2 * EXAMPLES)
@given(with_rights(NULLABLE), TWO, LENGTHS, AHEAD, st.booleans())
def test_matches_ahead_need_no_grace(
    events: list[Event], ways: list[Way], late: int, matches: Matches, deletes: bool
) -> None:
    check(events, ways, late, matches, deletes)


@histories()
@given(with_rights(KEYS), st.lists(SHARING, min_size=2, max_size=2), LENGTHS, MATCHES, st.booleans())
def test_the_next_verb_goes_by_what_was_corrected(
    events: list[Event], ways: list[Way], late: int, matches: Matches, deletes: bool
) -> None:
    made = corrected(late, matches, deletes)
    kept = make_latest("kept", made.rows, key=KEY, time="change_time", history=0, op="op")
    chain = Chain([made, kept], SCHEMAS, {"b": "bt", "a": "at"})
    expected = bag(expected_of(events, matches, deletes))
    for answer in answers(chain, events, dict.fromkeys("ab", late), ways):
        left = current(answer.rows, KEY).values()
        assert bag({name: row[name] for name in row if name != "change_time"} for row in left) == expected

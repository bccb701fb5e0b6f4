"""An aggregate over a change feed is that of the table that it leaves, whichever verb makes it and however it comes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import TimeWindows, rollup
from millpond.processors.calls.aggregate import call_aggregate, make_aggregate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.readings import begun_anew
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.top_n import make_top_n
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic.checking import EXAMPLES, NULLABLE, answers, histories, rows_of, schema, table
from tests.metamorphic.histories import SECOND, WAYS, Chain, Event, Way, answer_of, current
from tests.metamorphic.oracle import Row

LONG = 10_000_000 * SECOND
PLAIN = {source: schema(source) for source in "ab"}
FEEDS = {source: schema(source, op=True) for source in "ab"}
A, B = (Rows.of(source, columns) for source, columns in PLAIN.items())
CHANGES = {source: Rows.of(source, columns) for source, columns in FEEDS.items()}
WHOLE = st.builds(replace, WAYS, complete=st.just(True))
TWO = st.lists(WHOLE, min_size=2, max_size=2)
CALLS = {
    "n": aggregates.count(),
    "s": aggregates.sum("v"),
    "least": aggregates.min("v"),
    "different": aggregates.count_distinct("v"),
    "mean": aggregates.avg("v"),
}


def latest() -> Made:
    return make_latest("one", CHANGES["a"], key="k", time="at", history=LONG, op="ao")


def totals() -> Made:
    return make_aggregate("one", A, {"av": aggregates.max("av"), "n": aggregates.count()}, by="k", time="at")


def windows() -> Made:
    window = TimeWindows(9_000, grace=100_000)
    return make_aggregate("one", A, {"av": aggregates.sum("av")}, by="k", time="at", window=window)


def first() -> Made:
    return make_top_n("one", A, 2, by="k", order=["av", "at"], descending=(True, False), time="at")


def corrected() -> Made:
    return make_asof_join(
        "one", A, B, on="k", times=("at", "bt"), history=LONG, how=JoinType.LEFT, left_key=["at"]
    )  # fmt: skip


def joined(how: JoinType) -> Made:
    """Return a join by foreign key: rows name others by the number in ``av``."""
    left = CHANGES["a"].select("k", "at", "ao", name="av")
    right = CHANGES["b"].select("bt", "bv", "bo", name="bv", who="k")
    return make_table_join(
        "one", left, right.select("bt", "bo", "who", name="name"), on="name", times=("at", "bt"), ops=("ao", "bo"),
        left_key="k", how=how, history=LONG,
    )  # fmt: skip


MAKERS: dict[str, Any] = {
    "latest": (latest, "av", FEEDS),
    "totals": (totals, "av", PLAIN),
    "windows": (windows, "av", PLAIN),
    "first": (first, "av", PLAIN),
    "corrected": (corrected, "bv", PLAIN),
    "foreign outer": (lambda: joined(JoinType.OUTER), "name", FEEDS),
    "foreign left": (lambda: joined(JoinType.LEFT), "name", FEEDS),
}
"""What makes each feed, which of its columns is aggregated, and what it reads."""


def behind(one: Made, by: Any, value: str) -> Made:
    calls = {name: replace(call, column=call.column and value) for name, call in CALLS.items()}
    return call_aggregate(
        one.rows, begun_anew, calls, by=by, time="change_time", order=None, key=None, op=None, window=None, until=None,
        emit="updates", ttl=None, expired="silent", name="two",
    )  # fmt: skip


def aggregated(rows: Iterable[Row], by: Sequence[str], value: str) -> dict[Any, Row]:
    groups = defaultdict[Any, list[Row]](list)
    for row in rows:
        groups[tuple(row[name] for name in by)].append(row)
    found: dict[Any, Row] = {}
    for key, some in groups.items():
        values = [row[value] for row in some if row[value] is not None]
        found[key] = {
            **dict(zip(by, key, strict=True)), "n": len(some), "s": sum(values) if values else None,
            "least": min(values, default=None), "different": len(set(values)),
            "mean": sum(values) / len(values) if values else None,
        }  # fmt: skip
    return found


def chain_of(*verbs: Made, schemas: dict[str, pa.Schema]) -> Chain:
    read = {source for made in verbs for source in made.sources.values() if source in schemas}
    return Chain(
        verbs, {source: schemas[source] for source in schemas if source in read}, {"a": "at", "b": "bt"}, "none"
    )


def left_by(one: Made, schemas: dict[str, pa.Schema], events: Sequence[Event]) -> list[Row]:
    """Return the rows of the table that the first verb leaves, in one micro-batch."""
    chain = chain_of(one, schemas=schemas)
    answer = answer_of(chain, events, dict.fromkeys(chain.schemas, 0), Way(0, 1, 1, (1,)))
    return list(current(answer.rows, one.row).values())


EVENTS = st.tuples(rows_of("a", NULLABLE, 9, op=True), rows_of("b", NULLABLE, 9, op=True)).map(
    lambda both: [*both[0], *both[1]]
)


def own(events: Sequence[Event], chain: Chain, *, keyed: bool = False) -> list[Event]:
    """Return the events of the sources of a chain, with their columns; where all are keyed, no key has a null."""
    return [
        replace(event, row={name: event.row[name] for name in chain.schemas[event.source].names})
        for event in events
        if event.source in chain.schemas and not (keyed and event.row["k"] is None)
    ]


@pytest.mark.parametrize("maker", sorted(MAKERS))
@histories(EXAMPLES // 2)
@given(EVENTS, TWO, st.sampled_from([0, 5, 30]))
def test_aggregates_of_the_feeds_of_all_verbs(maker: str, events: list[Event], ways: list[Way], delay: int) -> None:
    make, value, schemas = MAKERS[maker]
    one = make()
    by = [value] if maker == "latest" else [next(name for name in one.row if name != "rank")]
    chain = chain_of(one, behind(one, by, value), schemas=schemas)
    events = own(events, chain, keyed="foreign" in maker)
    expected = aggregated(left_by(one, schemas, events), by, value)
    for answer in answers(chain, events, dict.fromkeys(chain.schemas, delay), ways):
        assert table(current(answer.rows, by), "change_time") == table(expected)


@histories(EXAMPLES // 2)
@given(EVENTS, TWO)
def test_by_grouping_sets(events: list[Event], ways: list[Way]) -> None:
    one = latest()
    chain = chain_of(one, behind(one, rollup("k", "av"), "av"), schemas=FEEDS)
    events = own(events, chain)
    rows = left_by(one, FEEDS, events)
    expected = {}
    for number, names in enumerate([["k", "av"], ["k"], []]):
        blank = [{**row, **{name: None for name in ("k", "av") if name not in names}, "v": row["av"]} for row in rows]
        for key, row in aggregated(blank, ["k", "av"], "v").items():
            expected[*key, (1 << number) - 1] = {**row, "grouping_id": (1 << number) - 1}
    for answer in answers(chain, events, dict.fromkeys(chain.schemas, 0), ways):
        assert table(current(answer.rows, ["k", "av", "grouping_id"]), "change_time") == table(expected)


@histories(EXAMPLES // 3)
@given(EVENTS, TWO)
def test_an_aggregate_of_an_aggregate_of_latest_rows(events: list[Event], ways: list[Way]) -> None:
    one = latest()
    two = behind(one, "av", "av")
    calls = {"groups": aggregates.count(), "most": aggregates.max("av")}
    three = call_aggregate(
        two.rows, begun_anew, calls, by="n", time="change_time", order=None, key=None, op=None, window=None, until=None,
        emit="updates", ttl=None, expired="silent", name="three",
    )  # fmt: skip
    chain = chain_of(one, two, three, schemas=FEEDS)
    events = own(events, chain)
    groups = aggregated(left_by(one, FEEDS, events), ["av"], "av").values()
    expected = {
        key: {"n": row["n"], "groups": row["n_"], "most": row["most"]}
        for key, row in ((key, {**row, "n_": row["n"], "n": key[0]}) for key, row in counted(groups).items())
    }
    for answer in answers(chain, events, dict.fromkeys(chain.schemas, 0), ways):
        assert table(current(answer.rows, ["n"]), "change_time") == table(expected)


def counted(groups: Iterable[Row]) -> dict[Any, Row]:
    found: dict[Any, Row] = {}
    for row in groups:
        one = found.setdefault((row["n"],), {"n": 0, "most": None})
        values = [value for value in (one["most"], row["av"]) if value is not None]
        found[row["n"],] = {"n": one["n"] + 1, "most": max(values, default=None)}
    return found

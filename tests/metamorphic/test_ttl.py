"""What has expired is as if it had been deleted at that time, however rows are cut into micro-batches and files."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.verbs import aggregates
from millpond.stores.typed.expiry import Expired
from tests.metamorphic.checking import NULLABLE, TWO, answers, histories, own, rows_of, schema, table
from tests.metamorphic.histories import SECOND, Chain, Event, Way, current
from tests.metamorphic.oracle import Row
from tests.metamorphic.tables import Rows
from tests.metamorphic.verbs import make_aggregate

CALLS = {
    "by columns": {"n": aggregates.count(), "s": aggregates.sum("av")},
    "by time": {"n": aggregates.count(), "c": aggregates.collect("av")},
}
TTLS = st.sampled_from([1, 2, 5, 20])
"""Seconds."""


def lives(rows: Iterable[Row], ttl: int) -> Mapping[Any, list[list[Row]]]:
    """The rows of each key, cut where one comes when those before it are gone."""
    found = defaultdict[Any, list[list[Row]]](list)
    for row in sorted(rows, key=lambda row: int(row["at"])):
        own_lives = found[row["k"]]
        if own_lives and own_lives[-1][-1]["at"] + ttl > row["at"]:
            own_lives[-1].append(row)
        else:
            own_lives.append([row])
    return found


def aggregated(rows: Sequence[Row], calls: str) -> dict[str, Any]:
    values = [row["av"] for row in rows]
    present = [value for value in values if value is not None]
    results = {"n": len(rows), "s": sum(present) if present else None, "c": tuple(present)}
    return {name: results[name] for name in CALLS[calls]} | {"k": rows[0]["k"], "change_time": rows[-1]["at"]}


@histories(20)
@given(rows_of("a", NULLABLE, 14), TWO, st.sampled_from(sorted(CALLS)), TTLS)
def test_an_aggregate_begins_anew_when_it_has_expired(
    events: list[Event], ways: list[Way], calls: str, ttl: int
) -> None:
    source = schema("a")
    made = make_aggregate("out", Rows.of("a", source), CALLS[calls], by="k", time="at", ttl=ttl * SECOND)
    known = lives(own(events, "a"), ttl * SECOND)
    expected = {(key,): aggregated(some[-1], calls) for key, some in known.items()}
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": 0}, ways):
        assert table(current(answer.rows, ["k"])) == table(expected)


@histories(20)
@given(rows_of("a", NULLABLE, 14), TWO, st.sampled_from(sorted(CALLS)), TTLS)
def test_an_aggregate_that_has_expired_comes_out_as_deleted(
    events: list[Event], ways: list[Way], calls: str, ttl: int
) -> None:
    source = schema("a")
    made = make_aggregate(
        "out", Rows.of("a", source), CALLS[calls], by="k", time="at", ttl=ttl * SECOND, expired=Expired.DELETE
    )
    known = lives(own(events, "a"), ttl * SECOND)
    for way, answer in zip(ways, _answers(made, source, events, ways), strict=True):
        end = max((row["at"] for row in own(events, "a")), default=0) if way.complete else 1 << 60
        expected = {
            (key,): aggregated(some[-1], calls)
            for key, some in known.items()
            if some[-1][-1]["at"] + ttl * SECOND > end
        }
        assert table(current(answer.rows, ["k"])) == table(expected)
        deletes = [row for row in answer.rows if row["op"] == "delete"]
        ends = {(key, one[-1]["at"] + ttl * SECOND) for key, some in known.items() for one in some}
        assert {(row["k"], row["change_time"]) for row in deletes} <= ends
        last = {(key, some[-1][-1]["at"] + ttl * SECOND) for key, some in known.items()}
        told = [(row["k"], row["change_time"]) for row in deletes]
        assert sorted(map(str, last.intersection(told))) == sorted(str(one) for one in last if one[1] <= end)
        assert len(set(told)) == len(told)


def _answers(made: Any, source: Any, events: Sequence[Event], ways: Sequence[Way]) -> Iterator[Any]:
    return answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": 0}, ways)

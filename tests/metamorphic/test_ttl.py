"""An expired row is as if it had been deleted at that time, however rows are cut into micro-batches and files."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.top_n import make_top_n
from millpond.processors.options.joins import TABLE_JOINS, JoinType, Side
from millpond.processors.verbs import aggregates
from millpond.stores.typed.expiry import Expired
from tests.metamorphic.applied import results_of
from tests.metamorphic.checking import (
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
    table,
)
from tests.metamorphic.histories import SECOND, WAYS, Chain, Event, Way, current
from tests.metamorphic.oracle import Row
from tests.metamorphic.rules import RESULTS, Fading

CALLS = {
    "by columns": {"n": aggregates.count(), "s": aggregates.sum("av")},
    "by time": {"n": aggregates.count(), "c": aggregates.collect("av")},
}
TTLS = st.sampled_from([1, 2, 5, 20])
"""Seconds."""
RESTARTED = st.builds(
    replace,
    WAYS,
    backend=st.sampled_from(["memory", "lmdb", "rocksdb", None]),
    restarts=st.sampled_from([0.0, 0.4]),
)
"""On each backend, and by other processes in between."""


def lives(rows: Iterable[Row], ttl: int) -> Mapping[Any, list[list[Row]]]:
    """Return the rows of each key, cut where one comes when those before it are gone."""
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


@histories(20)
@given(rows_of("a", NULLABLE, 14), TWO, TTLS, st.sampled_from([1, 2, 5]), st.sampled_from(Expired))
def test_the_first_rows_of_a_key_are_gone_when_they_have_expired(
    events: list[Event], ways: list[Way], ttl: int, n: int, expired: Expired
) -> None:
    source = schema("a")
    made = make_top_n(
        "out",
        Rows.of("a", source),
        n,
        by="k",
        order="at",
        time="at",
        descending=(True,),
        ttl=ttl * SECOND,
        expired=expired,
    )
    known = lives(own(events, "a"), ttl * SECOND)
    for way, answer in zip(ways, _answers(made, source, events, ways), strict=True):
        end = max((row["at"] for row in own(events, "a")), default=0) if way.complete else 1 << 60
        expected = {
            (key, rank): row["at"]
            for key, some in known.items()
            if expired is Expired.SILENT or some[-1][-1]["at"] + ttl * SECOND > end
            for rank, row in enumerate(some[-1][: -n - 1 : -1], start=1)
        }
        found = {place: row["at"] for place, row in current(answer.rows, ["k", "rank"]).items()}
        if expired is Expired.SILENT:
            # Nothing tells that the rows of ranks behind those of the last life are gone.
            found = {place: at for place, at in found.items() if place in expected}
        assert found == expected


@histories(20)
@given(rows_of("a", NULLABLE, 14, op=True), TWO, TTLS, st.sampled_from([0, 3, 60]), st.sampled_from(Expired))
def test_the_latest_row_is_gone_when_it_has_expired(
    events: list[Event], ways: list[Way], ttl: int, history: int, expired: Expired
) -> None:
    source = schema("a", op=True)
    rows = Rows.of("a", source)
    made = make_latest(
        "out", rows, key="k", time="at", history=history * SECOND, op="ao", ttl=ttl * SECOND, expired=expired
    )
    chain = Chain([made], {"a": source}, {"a": "at"})
    for way, answer in zip(ways, answers(chain, events, {"a": 0}, ways), strict=True):
        end = max((row["at"] for row in own(events, "a")), default=0) if way.complete else 1 << 60
        assert changes(answer.rows) == expected_changes(own(events, "a"), ttl * SECOND, end, expired)


def changes(rows: Iterable[Row]) -> dict[Any, list[tuple[str, Any, int]]]:
    """Return what came out for each key, in its order."""
    found = defaultdict[Any, list[tuple[str, Any, int]]](list)
    for row in sorted(rows, key=lambda row: int(row["sequence"])):
        found[row["k"]].append((row["op"], row["av"], row["change_time"]))
    return found


def expected_changes(
    rows: Iterable[Row], ttl: int, end: int, expired: Expired
) -> dict[Any, list[tuple[str, Any, int]]]:
    """Return the same of a table that changes with each row, which shows its time, and when a row has expired."""
    found = defaultdict[Any, list[tuple[str, Any, int]]](list)
    living: dict[Any, Row] = {}
    marks = [(int(row["at"]), 1, row) for row in rows] + [(int(row["at"]) + ttl, 0, row) for row in rows]
    for time, kind, row in sorted(marks, key=lambda mark: mark[:2]):
        key = row["k"]
        if kind == 0:
            if living.get(key) is row and time <= end:
                del living[key]
                if expired is Expired.DELETE:
                    found[key].append(("delete", None, time))
        elif row["ao"] == "delete":
            if living.pop(key, None) is not None:
                found[key].append(("delete", None, time))
        else:
            living[key] = row
            found[key].append(("upsert", row["av"], time))
    return found


@histories(60)
@given(rows_of("a", NULLABLE, 14), st.lists(RESTARTED, min_size=2, max_size=2), LENGTHS, TTLS)
def test_a_rule_finds_no_state_that_nobody_has_set_for_the_ttl(
    events: list[Event], ways: list[Way], lateness: int, ttl: int
) -> None:
    source = schema("a")
    made = make_apply(
        "out", Rows.of("a", source), Fading("av"), key="k", time="at",
        results=results_of(RESULTS), lateness=lateness * SECOND, ttl=ttl * SECOND,
    )  # fmt: skip
    by_key = defaultdict[Any, list[Row]](list)
    for row in own(events, "a"):
        by_key[row["k"]].append(row)
    expected = bag({"k": key, **told} for key, rows in by_key.items() for told in fading(rows, ttl * SECOND))
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": lateness}, ways):
        assert bag(answer.rows) == expected


def fading(rows: Iterable[Row], ttl: int) -> Iterator[dict[str, Any]]:
    """Yield what the rule ``Fading`` tells of the rows of one key."""
    total, at = 0, 0
    timer: int | None = None
    moments = [*((row["at"], row["av"] or 0) for row in sorted(rows, key=lambda row: int(row["at"]))), (1 << 60, None)]
    for time, value in moments:
        while timer is not None and timer < time:
            total = total if at + ttl > timer else 0
            yield {"what": "later", "total": total, "seen": timer}
            if total % 2:
                total, at = total + 1, timer
            timer = None
        if value is None:
            return
        total = total if at + ttl > time else 0
        yield {"what": "row", "total": total, "seen": time}
        if value % 3:
            total, at = total + value, time
        if value % 2:
            timer = time + value * SECOND


def apart(events: Sequence[Event]) -> list[Event]:
    """Return rows of two sides of which no two have the same time."""
    found = []
    for one in events:
        time = 2 * one.at + (SECOND if one.source == "b" else 0)
        found.append(Event(one.source, time, {**one.row, f"{one.source}t": time}))
    return found


BOTH = st.tuples(rows_of("a", KEYS, 14, op=True, until=20), rows_of("b", KEYS, 14, op=True, until=20)).map(
    lambda both: apart([*both[0], *both[1]])
)


@histories(20)
@given(
    BOTH,
    st.lists(RESTARTED, min_size=2, max_size=2),
    st.sampled_from(TABLE_JOINS),
    st.sampled_from([2, 5, 20]),
    st.none() | st.sampled_from([0, 3, 60]),
    st.sampled_from(Expired),
    st.sampled_from([0, 4]),
)
def test_a_join_of_tables_is_as_if_what_expired_had_been_deleted(
    events: list[Event],
    ways: list[Way],
    how: JoinType,
    ttl: int,
    history: int | None,
    expired: Expired,
    late: int,
) -> None:
    schemas = {"a": schema("a", op=True), "b": schema("b", op=True)}
    made = make_table_join(
        "out", Rows.of("a", schemas["a"]), Rows.of("b", schemas["b"]), on="k", times=("at", "bt"), ops=("ao", "bo"),
        how=how, history=None if history is None else history * SECOND, ttl=ttl * SECOND, expired=expired,
    )  # fmt: skip
    delays = dict.fromkeys("ab", late if history is None else min(late, history))
    chain = Chain([made], schemas, {"b": "bt", "a": "at"})
    for way, answer in zip(ways, answers(chain, events, delays, ways), strict=True):
        model = LivingPairs(how, ttl * SECOND, expired, versioned=history is not None)
        for batch in answer.batches:
            model.take(batch)
        if not way.complete:
            model.reach(1 << 60)
        assert told(answer.rows) == model.told()


Change = tuple[tuple[Any, ...] | None, int]
"""What a key has from now on, and the time of that."""


def told(rows: Iterable[Row]) -> dict[Any, list[Change]]:
    """Return the changes of each key, without those that change nothing."""
    found = defaultdict[Any, list[Change]](list)
    for row in sorted(rows, key=lambda row: int(row["sequence"])):
        values = None if row["op"] == "delete" else tuple(row[name] for name in ("av", "at", "bv", "bt"))
        found[row["k"]].append((values, row["change_time"]))
    return changing(found)


def changing(found: Mapping[Any, list[Change]]) -> dict[Any, list[Change]]:
    kept = {
        key: [one for last, one in zip([(None, 0), *some], some, strict=False) if last[0] != one[0]]
        for key, some in found.items()
    }
    return {key: some for key, some in kept.items() if some}


class LivingPairs:
    """A join of tables by key, row by row, in which what expires is deleted at its time.

    Args:
        how: which sides may be missing.
        ttl: how long a row lives.
        expired: what is told of that.
        versioned: whether a row that is older than the last one of its key is left out.
    """

    def __init__(self, how: JoinType, ttl: int, expired: Expired, *, versioned: bool) -> None:
        self._how, self._ttl, self._expired, self._versioned = how, ttl, expired, versioned
        self._living: dict[str, dict[Any, Row]] = {"a": {}, "b": {}}
        self._last: dict[tuple[str, Any], int] = {}
        self._clock = 0
        self._told = defaultdict[Any, list[Change]](list)

    def take(self, batch: Iterable[Event]) -> None:
        """Take a micro-batch."""
        for event in sorted(batch, key=lambda one: one.at):
            self.reach(event.at)
            if event.at + self._ttl > self._clock:
                self._set(event)

    def told(self) -> dict[Any, list[Change]]:
        return changing(self._told)

    def reach(self, time: int) -> None:
        """Let expire what does so by a time."""
        self._clock = max(self._clock, time)
        ends = sorted(
            (row[f"{side}t"] + self._ttl, side, key)
            for side, rows in self._living.items()
            for key, row in rows.items()
            if row[f"{side}t"] + self._ttl <= self._clock
        )
        for end, side, key in ends:
            del self._living[side][key]
            if self._expired is Expired.DELETE:
                self._tell(side, key, end, was=True)

    def _set(self, event: Event) -> None:
        side, key, rows = event.source, event.row["k"], self._living[event.source]
        if self._versioned and self._last.get((side, key), event.at) > event.at:
            return
        self._last[side, key] = event.at
        was = rows.pop(key, None) is not None
        if event.row[f"{side}o"] != "delete":
            rows[key] = dict(event.row)
        self._tell(side, key, event.at, was=was)

    def _tell(self, side: str, key: Any, time: int, *, was: bool) -> None:
        other = self._living["b" if side == "a" else "a"].get(key)
        keeps = self._how.keeps(Side.LEFT if side == "a" else Side.RIGHT)
        if other is None and not (keeps and (was or key in self._living[side])):
            return
        left, right = (self._living[one].get(key) for one in "ab")
        later = time if other is None else max(time, *(row for name, row in other.items() if name in ("at", "bt")))
        if not self._how.joins(left, right):
            self._told[key].append((None, later))
            return
        a, b = left or {}, right or {}
        self._told[key].append(((a.get("av"), a.get("at"), b.get("bv"), b.get("bt")), later))

"""Why a row has its match: the winner is that of DuckDB, pandas and a search by hand, and no candidate is left out."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors.pond import MicroBatches
from millpond.processors.verbs.matching.explanation import MatchExplanation
from tests.drawing import tries
from tests.processors.verbs.duck import answered

pc: Any = _compute

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIME: pa.DataType = pa.timestamp("us", "UTC")
LEFT: Any = pa.schema([("k", pa.string()), ("t", TIME), ("a", pa.int64())])
RIGHT: Any = pa.schema([("k", pa.string()), ("u", TIME), ("b", pa.int64()), ("op", pa.string())])
SIDES: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u"}
SECOND = 1_000_000
HOUR = "1 hour"
BACKENDS = ["memory", "lmdb", "rocksdb"]
Rows = Sequence[Mapping[str, Any]]


def seconds(number: int) -> datetime:
    return START + timedelta(seconds=number)


def second_of(time: datetime) -> int:
    return round((time - START).total_seconds())


def micros(time: datetime) -> int:
    return (time - START) // timedelta(microseconds=1) + round(START.timestamp()) * SECOND


def matches(told: MatchExplanation) -> list[Mapping[str, Any]]:
    return [one.row for one in told.winners if one.row is not None]


LEFT_ROWS = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from(["x", "y"]), "t": st.integers(0, 30).map(seconds), "a": st.integers(0, 9)}
    ),
    min_size=1,
    max_size=5,
)
RIGHT_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["x", "y"]),
            "u": st.integers(0, 30).map(seconds),
            "b": st.integers(0, 9),
            "op": st.sampled_from(["upsert", "upsert", "delete"]),
        }
    ),
    max_size=12,
    unique_by=lambda row: (row["k"], row["u"]),
)


class Rule(NamedTuple):
    """The rule by which an as-of join is to decide."""

    direction: Any
    exact: bool
    tolerance: int | None
    where: bool
    otherwise: Any


def fed(running: MicroBatches, left: Rows, right: Rows, data: st.DataObject) -> list[dict[str, Any]]:
    """Return all results of the rows in some cut."""
    arriving = data.draw(st.permutations([("left", row) for row in left] + [("right", row) for row in right]))
    found: list[dict[str, Any]] = []
    while arriving:
        size = data.draw(st.integers(1, len(arriving)))
        some, arriving = arriving[:size], arriving[size:]
        sides = {side: [row for mine, row in some if mine == side] for side in ("left", "right")}
        found += running.feed(left=sides["left"], right=sides["right"]).to_pylist()
    return found + running.complete().to_pylist()


def by_hand(row: Mapping[str, Any], right: Rows, rule: Rule) -> Mapping[str, Any] | None:
    """Return the match of a left row, from what the right side says at each second."""
    said = {second_of(one["u"]): one for one in right if one["k"] == row["k"]}
    now, far = second_of(row["t"]), 100 if rule.tolerance is None else rule.tolerance
    older, newer = range(now if rule.exact else now - 1, -1, -1), range(now if rule.exact else now + 1, now + far + 1)

    def fits(one: Mapping[str, Any]) -> bool:
        return not rule.where or one["b"] <= row["a"]

    def back() -> tuple[int, Mapping[str, Any]] | None:
        for second in older:
            if second in said:
                one = said[second]
                if one["op"] == "delete" or now - second > far:
                    return None
                if rule.otherwise == "miss" or fits(one):
                    return now - second, one
        return None

    def ahead() -> tuple[int, Mapping[str, Any]] | None:
        for second in newer:
            one = said.get(second)
            if one is not None and one["op"] != "delete" and (rule.otherwise == "miss" or fits(one)):
                return second - now, one
        return None

    found = [side() for side, looks in ((back, rule.direction != "forward"), (ahead, rule.direction != "backward"))
             if looks]  # fmt: skip
    best = min((one for one in found if one is not None), key=lambda one: one[0], default=None)
    return best[1] if best is not None and fits(best[1]) else None


RULES = st.builds(
    Rule,
    st.sampled_from(["backward", "forward", "nearest"]),
    st.booleans(),
    st.integers(0, 12),
    st.booleans(),
    st.sampled_from(["miss", "next"]),
) | st.builds(Rule, st.just("backward"), st.booleans(), st.none(), st.booleans(), st.just("miss"))


@settings(max_examples=tries(200), deadline=None, derandomize=True, database=None)
@given(left=LEFT_ROWS, right=RIGHT_ROWS, rule=RULES, data=st.data())
def test_the_winner_is_the_match_whatever_the_rule_and_each_version_and_delete_is_a_candidate(
    left: Rows, right: Rows, rule: Rule, data: st.DataObject
) -> None:
    where = {"where": pc.field("b") <= pc.field("a"), "otherwise": rule.otherwise} if rule.where else {}
    joined = Pond().in_batches.asof_join(
        LEFT,
        RIGHT,
        **SIDES,
        history="2 hours",
        how="left",
        grace=HOUR,
        tolerance=None if rule.tolerance is None else timedelta(seconds=rule.tolerance),
        exact=rule.exact,
        direction=rule.direction,
        right_op="op",
        **where,
    )
    with joined as running:
        for row in fed(running, left, right, data):
            told = running.explain_match(row)
            match = by_hand(row, right, rule if rule.where else rule._replace(otherwise="miss"))
            assert [one.row for one in told.winners] == ([] if match is None else [{"u": match["u"], "b": match["b"]}])
            assert (row["u"], row["b"]) == ((None, None) if match is None else (match["u"], match["b"]))
            assert told.notes == ()
            assert ("no match" in told.verdict) == (match is None)
            of_key = sorted((one for one in right if one["k"] == row["k"]), key=lambda one: one["u"])
            there = [one["u"] for one in of_key if one["op"] == "upsert"]
            ended = [after["u"] for one, after in pairwise(of_key)
                     if (one["op"], after["op"]) == ("upsert", "delete")]  # fmt: skip
            assert [one.since for one in told.candidates if one.row is not None] == there
            assert [one.since for one in told.candidates if one.row is None] == ended
            assert all(one.older_by == row["t"] - one.since for one in told.candidates)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=tries(16), deadline=None, derandomize=True, database=None)
@given(left=LEFT_ROWS, right=RIGHT_ROWS, data=st.data())
def test_the_winner_is_that_of_duckdb_and_pandas_on_each_backend(
    backend: str, left: Rows, right: Rows, data: st.DataObject
) -> None:
    pd = pytest.importorskip("pandas")
    upserts = [{name: row[name] for name in ("k", "u", "b")} for row in right if row["op"] == "upsert"]
    plain = pa.schema([RIGHT.field(name) for name in ("k", "u", "b")])
    joined = Pond(backend=backend).in_batches.asof_join(LEFT, plain, **SIDES, how="left", history=HOUR, grace=HOUR)
    tables = {"l": pa.Table.from_pylist(list(left), LEFT), "r": pa.Table.from_pylist(upserts, plain)}
    query = "select l.k, epoch_us(l.t), l.a, r.b from l asof left join r on l.k = r.k and l.t >= r.u"
    merged = pd.merge_asof(
        tables["l"].to_pandas().sort_values("t"), tables["r"].to_pandas().sort_values("u"), by="k", left_on="t",
        right_on="u",
    )  # fmt: skip
    with joined as running:
        told = [running.explain_match(row) for row in fed(running, left, upserts, data)]
    found = sorted(
        (one.row["k"], micros(one.row["t"]), one.row["a"], *(match["b"] for match in matches(one))) for one in told
    )
    by_duck = sorted((*row[:3], *(() if row[3] is None else row[3:])) for row in answered(query, **tables))
    by_pandas = sorted(
        (row.k, micros(row.t), row.a, *(() if pd.isna(row.b) else (int(row.b),))) for row in merged.itertuples()
    )
    assert found == by_duck == by_pandas


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
@settings(max_examples=tries(24), deadline=None, derandomize=True, database=None)
@given(left=LEFT_ROWS, right=RIGHT_ROWS, bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)), data=st.data())
def test_pairs_of_streams_are_all_those_that_a_filter_of_all_pairs_finds(
    how: Any, left: Rows, right: Rows, bounds: tuple[int, int], data: st.DataObject
) -> None:
    before, after = (timedelta(seconds=number) for number in bounds)
    given: dict[str, Any] = {"before": before, "after": after, "how": how, "grace": "1 hour"}
    with Pond().in_batches.stream_join(LEFT, RIGHT, **SIDES, **given) as running:
        for row in fed(running, left, right, data):
            told = running.explain_match(row)
            assert told.notes == ()
            if row["t"] is None:
                of_key = [one for one in left if one["k"] == row["k"]]
                within = [one["t"] for one in of_key if -before <= row["u"] - one["t"] <= after]
                assert {one.side for one in told.candidates} <= {"left"}
            else:
                of_key = [one for one in right if one["k"] == row["k"]]
                within = [one["u"] for one in of_key if -before <= one["u"] - row["t"] <= after]
                if how not in ("semi", "anti") and row["u"] is not None:
                    assert sum("in this row" in one.why for one in told.winners) == 1
            assert len(told.candidates) == len(of_key)
            assert sorted(one.since for one in told.winners) == sorted(within)


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("history", [None, "1 hour"])
@settings(max_examples=tries(16), deadline=None, derandomize=True, database=None)
@given(left=LEFT_ROWS, right=RIGHT_ROWS)
def test_a_row_of_joined_tables_is_made_of_the_latest_row_of_either_side(
    how: Any, history: Any, left: Rows, right: Rows
) -> None:
    left = list({(row["k"], row["t"]): row for row in left}.values())
    join = Pond().in_batches.table_join(LEFT, RIGHT, **SIDES, how=how, history=history, right_op="op")
    with join as running:
        joined = {row["k"]: row for row in running.feed(left=left, right=right).to_pylist()}
        for key, row in joined.items():
            told = running.explain_match(row)
            now = {side: newest(rows, time, key) for side, rows, time in (("left", left, "t"), ("right", right, "u"))}
            expected = {side: one for side, one in now.items() if one is not None and one.get("op") != "delete"}
            assert {one.side: one.since for one in told.winners} == {
                side: one["t" if side == "left" else "u"] for side, one in expected.items()
            }
            assert ("has a row" in told.verdict) == (row["op"] == "upsert")
            assert told.notes == ()


def newest(rows: Rows, time: str, key: str) -> Mapping[str, Any] | None:
    return max((row for row in rows if row["k"] == key), key=lambda row: row[time], default=None)


def test_a_foreign_key_leads_to_the_row_that_it_names_and_one_of_null_to_none() -> None:
    columns: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("customer", pa.string()), ("t", TIME)]
    orders = pa.schema(columns)
    names = pa.schema([("customer", pa.string()), ("since", TIME), ("name", pa.string())])
    times: dict[str, Any] = {"left_time": "t", "right_time": "since"}
    join = Pond().in_batches.table_join(orders, names, on="customer", **times, left_key="id", how="left")
    with join as running:
        first = running.feed(
            left=[{"id": 1, "customer": "c", "t": seconds(1)}, {"id": 2, "customer": None, "t": seconds(1)}],
            right=[{"customer": "c", "since": seconds(0), "name": "Cy"}],
        ).to_pylist()
        rows = {row["id"]: row for row in first}
        assert [(one.side, one.won) for one in running.explain_match(rows[1]).candidates] == [
            ("left", True),
            ("right", True),
        ]
        assert running.explain_match(rows[2]).verdict == (
            "the join has a row for this key: the left side has one, the right side has none; its foreign key has a "
            "null, which equals nothing"
        )
        assert running.explain_match({"id": 1}).notes == ()
        running.feed(right=[{"customer": "c", "since": seconds(2), "name": "Cyd"}])
        (note,) = running.explain_match(rows[1]).notes
        assert "name='Cy'" in note
        assert "another one has come since" in note


def test_a_right_row_that_no_left_row_names_is_explained_as_far_as_it_can() -> None:
    columns: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("customer", pa.string()), ("t", TIME)]
    orders = pa.schema([*columns, ("op", pa.string())])
    names = pa.schema([("customer", pa.string()), ("since", TIME), ("name", pa.string())])
    times: dict[str, Any] = {"left_time": "t", "right_time": "since"}
    join = Pond().in_batches.table_join(orders, names, on="customer", **times, left_key="id", how="outer", left_op="op")
    order = {"id": 1, "customer": "c", "t": seconds(1), "op": "upsert"}
    with join as running:
        (alone,) = running.feed(right=[{"customer": "c", "since": seconds(0), "name": "Cy"}]).to_pylist()
        told = running.explain_match(alone)
        assert [one.side for one in told.winners] == ["right"]
        assert told.notes == ()
        assert told.verdict == (
            "the join has a row for this right row as long as no left row names it; which ones do is not looked up, so "
            "explain the row of one that does"
        )
        retracted, joined = running.feed(left=[order]).to_pylist()
        assert [(one["op"], one["id"], one["customer"]) for one in (retracted, joined)] == [
            ("delete", None, "c"),
            ("upsert", 1, "c"),
        ]
        told = running.explain_match(joined)
        assert [one.side for one in told.winners] == ["left", "right"]
        assert "has a row for this key: the left side has one, the right side has one" in told.verdict
        running.feed(left=[{**order, "t": seconds(2), "op": "delete"}])
        assert "has no row for this key: the left side has none" in running.explain_match(joined).verdict


def test_a_version_that_came_late_and_a_history_that_is_over_are_told() -> None:
    quotes = pa.schema([("k", pa.string()), ("u", TIME), ("b", pa.int64())])
    with Pond().in_batches.asof_join(LEFT, quotes, **SIDES, history="10 seconds") as running:
        fed = {"left": [{"k": "x", "t": seconds(5), "a": 1}], "right": [{"k": "x", "u": seconds(2), "b": 1}]}
        (row,) = running.feed(left=fed["left"], right=fed["right"]).to_pylist()
        assert running.explain_match(row).notes == ()
        running.feed(right=[{"k": "x", "u": seconds(4), "b": 7}])
        told = running.explain_match(row)
        assert [one.row for one in told.winners] == [{"u": seconds(4), "b": 7}]
        assert "came out with u=" in told.notes[0]
        assert "b=1" in told.notes[0]
        running.feed(right=[{"k": "x", "u": seconds(60), "b": 8}])
        assert "the state reaches back to 2026-06-01 12:00:50+00:00" in running.explain_match(row).notes[0]


def test_an_explanation_is_a_table_in_text_and_in_a_notebook() -> None:
    quotes = [{"k": "x", "u": seconds(2), "b": 1}, {"k": "x", "u": seconds(9), "b": 2}]
    plain = pa.schema([RIGHT.field(name) for name in ("k", "u", "b")])
    with Pond().in_batches.asof_join(LEFT, plain, **SIDES, history="1 minute", name="<priced>") as running:
        (row,) = running.feed(left=[{"k": "x", "t": seconds(5), "a": 1}], right=quotes).to_pylist()
        told = running.explain_match(row)
    assert str(told).splitlines()[1:] == [
        "    side   row                               from                       until                      older by"
        "  why",
        "=>  right  u=2026-06-01 12:00:02+00:00, b=1  2026-06-01 12:00:02+00:00  2026-06-01 12:00:09+00:00  0:00:03"
        "   valid at the time of the row",
        "    right  u=2026-06-01 12:00:09+00:00, b=2  2026-06-01 12:00:09+00:00  -                          -0:00:04"
        "  newer than the row",
        "the match is that of 2026-06-01 12:00:02+00:00: valid at the time of the row",
    ]
    assert "&lt;priced&gt;" in told._repr_html_()
    assert "<td>=&gt;</td>" in told._repr_html_()


def test_who_asks_about_no_join_or_not_a_whole_row_is_refused() -> None:
    with (
        Pond().in_batches.latest(LEFT, key="k", time="t", history=0) as running,
        pytest.raises(ConfigurationError, match="latest-k: the verb 'latest-k' is no join"),
    ):
        running.explain_match({"k": "x"})
    row: Any
    with Pond().in_batches.asof_join(LEFT, RIGHT, **SIDES, history=0) as joined:
        for row in (None, 7, ["k", "t"]):
            with pytest.raises(ConfigurationError, match="give a mapping from the names of columns to values"):
                joined.explain_match(row)

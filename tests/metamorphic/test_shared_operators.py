"""Verbs of a chain give the rows in one operator that they give in operators of their own, however rows come."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests
from millpond.errors import StateConflictError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic.checking import EXAMPLES, NULLABLE, bag, histories, rows_of, schema, table
from tests.metamorphic.histories import (
    SECOND,
    SHARING,
    Chain,
    Event,
    Way,
    answer_of,
    arrivals,
    current,
    cut,
    rows_from,
    tables,
)
from tests.metamorphic.histories import rows_of as told
from tests.metamorphic.operators import OperatedQuery, Place, Value

LATE: Final = 5
"""By so many seconds rows are late at most."""
GRACE: Final = LATE * SECOND
LONG: Final = 10_000_000 * SECOND
SCHEMAS: Final = {source: schema(source) for source in "ab"}
A, B = (Rows.of(source, columns) for source, columns in SCHEMAS.items())

Step = Callable[[str, Rows], Made]
"""A verb of a name on rows with the columns k, t and v."""


def asof(name: str, rows: Rows, how: JoinType = JoinType.LEFT) -> Made:
    return make_asof_join(name, rows, B, on="k", times=("t", "bt"), history=LONG, grace=GRACE, how=how)


def near(name: str, rows: Rows) -> Made:
    reach = 4 * SECOND
    return make_stream_join(
        name, rows, B, on="k", times=("t", "bt"), before=reach, after=reach, grace=GRACE, how=JoinType.LEFT
    )


def windows(name: str, rows: Rows, window: Any = TimeWindows(6_000, grace=LATE * 1_000)) -> Made:  # noqa: B008
    return make_aggregate(name, rows, {"v": aggregates.sum("v")}, by="k", time="t", window=window, final=True)


def sessions(name: str, rows: Rows) -> Made:
    return windows(name, rows, SessionWindows(3_000, grace=LATE * 1_000))


def totals(name: str, rows: Rows) -> Made:
    calls = {"v": aggregates.sum("v"), "n": aggregates.count(), "most": aggregates.max("v")}
    return make_aggregate(name, rows, calls, by="k", time="t")


def newest(name: str, rows: Rows) -> Made:
    return make_latest(name, rows, key="k", time="t", history=LONG)


def of_feed(name: str, rows: Rows) -> Made:
    return make_latest(name, rows, key="k", time="t", history=LONG, op="op")


STREAMS: Final[dict[str, Step]] = {"asof": asof, "near": near, "windows": windows, "sessions": sessions}
"""Steps whose results are rows."""
TABLES: Final[dict[str, Step]] = {"totals": totals, "newest": newest}
"""Steps whose results are changes of a table."""


def rows_behind(made: Made) -> Rows:
    """Return the result of a verb as the next one takes it."""
    rows = made.rows
    if "window" in rows.schema.names:
        return rows.select("k", "v", t=("window", "end"))
    if "change_time" in rows.schema.names:
        return rows.select("k", "v", "op", t="change_time")
    return rows.select("k", "v", "t").where_present("k")


def chain_of(steps: Sequence[Step]) -> Chain:
    made, rows = list[Made](), A.select("k", t="at", v="av")
    for number, step in enumerate(steps):
        made.append(step(f"verb-{number}", rows))
        rows = rows_behind(made[-1])
    read = {source for one in made for source in one.sources.values()}
    return chain_in(made, [source for source in "ab" if source in read])


def chain_in(made: Sequence[Made], sources: Sequence[str]) -> Chain:
    return Chain(made, {source: SCHEMAS[source] for source in sources}, {source: f"{source}t" for source in sources})


def beside() -> Chain:
    """Return totals beside the latest rows: a join with two inputs from its own operator."""
    one, two = totals("one", A.select("k", t="at", v="av")), newest("two", B.select("k", t="bt", v="bv"))
    sides = one.rows.select("k", "v", "op", t="change_time"), two.rows.select("k", w="v", o="op", u="change_time")
    return chain_in([one, two, make_table_join("three", *sides, on="k", times=("t", "u"), ops=("op", "o"))], "ab")


def _drawn() -> st.SearchStrategy[Chain]:
    stream, feed = st.sampled_from(list(STREAMS.values())), st.sampled_from(list(TABLES.values()))
    return st.one_of(
        st.lists(stream, min_size=2, max_size=3).map(chain_of),
        st.tuples(st.lists(stream, min_size=1, max_size=2), feed).map(lambda both: chain_of([*both[0], both[1]])),
        feed.map(lambda one: chain_of([one, of_feed])),
        st.tuples(stream, feed).map(lambda both: chain_of([*both, of_feed])),
        st.builds(beside),
    )


EVENTS: Final = st.tuples(rows_of("a", NULLABLE, 12), rows_of("b", NULLABLE, 8)).map(lambda both: [*both[0], *both[1]])
APART: Final = st.builds(replace, SHARING, apart=st.just(True))


def answer(chain: Chain, events: Sequence[Event], way: Way) -> Any:
    """Return what came out: rows, or the table that is left, without the times of its changes."""
    events = [event for event in events if event.source in chain.schemas]
    rows = answer_of(chain, events, dict.fromkeys(chain.schemas, GRACE), way).rows
    if "op" not in chain.verbs[-1].verb.schema.names:
        return bag(rows)
    return table(current(rows, ["k"]), "change_time", "t", "u")


@histories(EXAMPLES // 2)
@given(_drawn(), EVENTS, SHARING, APART)
def test_a_chain_gives_the_same_in_one_operator_as_in_several(
    chain: Chain, events: list[Event], shared: Way, apart: Way
) -> None:
    assert answer(chain, events, shared) == answer(chain, events, apart)


@pytest.mark.rest
@histories(EXAMPLES // 6)
@given(rows_of("a", [None], 12), SHARING.filter(lambda way: way.partitions[0] > 1), APART)
def test_rows_with_null_keys_that_meet_nothing_are_rows_of_any_task(
    events: list[Event], shared: Way, apart: Way
) -> None:
    first, reach = near("verb-0", A.select("k", t="at", v="av")), 4 * SECOND
    second = make_stream_join(
        "verb-1", B, first.rows.select("k", "v", "t"), on="k", times=("bt", "t"), before=reach, after=reach,
        grace=GRACE, how=JoinType.RIGHT,
    )  # fmt: skip
    chain = chain_in([first, second], "ab")
    assert answer(chain, events, shared) == answer(chain, events, apart)


@pytest.mark.parametrize("last", [*STREAMS, *TABLES])
@pytest.mark.parametrize("first", STREAMS)
def test_these_verbs_share_an_operator(tmp_path: Path, first: str, last: str) -> None:
    """Otherwise others would show nothing."""
    chain = chain_of([STREAMS[first], {**STREAMS, **TABLES}[last]])
    for shared, names in ((True, ["verb-1"]), (False, ["verb-0", "verb-1"])):
        query = OperatedQuery(chain.verbs, [2, 2], Place(tmp_path, ["memory"]), Random(0), shared=shared)
        assert [operator.name for operator in query.operators] == names
    ((one, two, three),) = (
        operator.verbs
        for operator in OperatedQuery(
            beside().verbs, [2] * 3, Place(tmp_path, ["memory"]), Random(0), shared=True
        ).operators
    )
    assert sorted(three.inputs[topic].verb for topic in three.inputs) == [one.name, two.name]


def _history(seed: int) -> tuple[Chain, list[list[Event]]]:
    """Return three verbs, and rows in three micro-batches."""
    chain, random = chain_of([asof, windows, totals]), Random(seed)
    events = [
        Event(source, at, {"k": key, f"{source}t": at, f"{source}v": number})
        for number in range(12)
        for source in "ab"
        for key, at in [(random.choice("abc"), (1_000 + 3 * number) * SECOND)]
    ]
    way = Way(seed, 3, 2, (2,))
    return chain, cut(arrivals(events, dict.fromkeys("ab", GRACE), random), way, random)


@pytest.mark.parametrize(("backend", "loses"), [("memory", False), ("lmdb", False), ("lmdb", True), ("rocksdb", False)])
def test_whoever_is_killed_between_the_commits_of_two_tasks_changes_nothing(
    tmp_path: Path, backend: str, loses: bool
) -> None:
    """The second of three micro-batches dies behind each step of its, one after the other."""
    chain, batches = _history(7)

    def rows(directory: Path, deaths: Sequence[int]) -> Counter[Any]:
        place = Place(directory, [backend], loses=loses)
        query = OperatedQuery(chain.verbs, [2] * 3, place, Random(1), shared=True)
        found = list[pa.Table]()
        for number, events in enumerate(batches):
            inputs = tables(chain, events, 2, Random(number))
            found += query.run(inputs, complete=number == len(batches) - 1, deaths=deaths if number == 1 else ())
        return Counter(str(row) for one in found for row in told(one))

    whole = rows(tmp_path / "whole", [])
    assert whole
    assert rows(tmp_path / "dying", range(9)) == whole


def test_a_group_has_the_manifests_of_all_its_verbs_or_none(tmp_path: Path) -> None:
    chain, batches = _history(3)
    place, events = Place(tmp_path, ["lmdb"]), [event for events in batches for event in events]
    query = OperatedQuery(chain.verbs, [2] * 3, place, Random(1), shared=True)
    query.run(tables(chain, events, 2, Random(0)), deaths=range(6))
    assert len(place.values) == 2
    for number in place.values:
        held = kept_manifests(*Value(place.values, number).get())
        assert [one.application_id for one in held] == [f"app.verb-{verb}" for verb in range(3)]


def test_an_operator_lets_nobody_go_on_from_the_manifest_of_a_stranger(tmp_path: Path) -> None:
    chain, batches = _history(3)
    place, events = Place(tmp_path, ["memory"]), [event for events in batches for event in events]
    OperatedQuery(chain.verbs, [1] * 3, place, Random(1), shared=True).run(tables(chain, events, 2, Random(0)))
    others = chain_in([asof("another", A.select("k", t="at", v="av"))], "ab")
    query = OperatedQuery(others.verbs, [1], place, Random(1), shared=True)
    with pytest.raises(StateConflictError, match="verb-"):
        query.run(tables(others, events, 2, Random(0)))


def test_a_window_closes_as_soon_as_the_verb_before_has_come_far_enough_whether_or_not_a_row_says_so(
    tmp_path: Path,
) -> None:
    """In an operator of its own it would wait for a row of the join."""
    join = make_asof_join("join", A.select("k", t="at", v="av"), B, on="k", times=("t", "bt"), history=LONG)
    chain = chain_in([join, windows("windows", rows_behind(join))], "ab")
    query = OperatedQuery(chain.verbs, [2, 2], Place(tmp_path, ["memory"]), Random(0), shared=True)
    found = []
    for rows in ([("b", "k", 0), ("a", "k", 1)], [("a", "nothing matches", 500)]):
        events = [_event(source, key, second) for source, key, second in rows]
        found.append([row["k"] for one in query.run(tables(chain, events, 1, Random(0))) for row in told(one)])
    assert found == [[], ["k"]]


def _event(source: str, key: str, second: int) -> Event:
    at = (1_000 + second) * SECOND
    return Event(source, at, {"k": key, f"{source}t": at, f"{source}v": second})


def test_rows_from_outside_and_from_a_verb_meet(tmp_path: Path) -> None:
    """Of the second of two joins one side comes from the first, the other from outside."""
    chain = chain_of([asof, near])
    events = [_event(source, "k", second) for source, second in (("a", 0), ("b", 1), ("a", 2))]
    query = OperatedQuery(chain.verbs, [2, 2], Place(tmp_path, ["memory"]), Random(0), shared=True)
    found = query.run(tables(chain, events, 1, Random(0)), complete=True)
    assert sorted((row["v"], row["bv"]) for one in found for row in told(one)) == [(0, 1), (2, 1)]
    assert len(rows_from(chain, events, "b")) == 1

"""Keys that are edited or erased between micro-batches: what follows is what it would be had their rows been others."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.errors import ConfigurationError
from millpond.processors import CumulativeWindows, SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic.applied import results_of
from tests.metamorphic.checking import bag, event, histories, rows_of, schema
from tests.metamorphic.histories import SECOND, Chain, Event, ticking
from tests.metamorphic.rules import RESULTS, Totals
from tests.metamorphic.stopped import Edit, told

PERSON, OTHER = "ann of the mill pond", "bob of the weir"
CALLS = {"n": aggregates.count(), "s": aggregates.sum("av"), "most": aggregates.max("av"), "few": aggregates.min("av")}
A, B = Rows.of("a", schema("a", op=True)), Rows.of("b", schema("b", op=True))
TIMES = {"a": "at", "b": "bt"}
KEYS = [PERSON, PERSON, OTHER, "c"]
CUT = 20
"""The second after which a query is stopped."""


def aggregated(window: Any = None, *, final: bool = False) -> Made:
    return make_aggregate("out", A, CALLS, by="k", time="at", window=window, final=final)


TUMBLING = TimeWindows("8 seconds", grace="4 seconds")
ONE_SIDED: dict[str, Callable[[], Made]] = {
    "latest": lambda: make_latest("out", A, key="k", time="at", op="ao", history=60 * SECOND),
    "aggregate": aggregated,
    "windows": lambda: aggregated(TUMBLING),
    "final": lambda: aggregated(TUMBLING, final=True),
    "sessions": lambda: aggregated(SessionWindows("3 seconds", grace="4 seconds")),
    "final-sessions": lambda: aggregated(SessionWindows("3 seconds", grace="4 seconds"), final=True),
}
VERBS: dict[str, Callable[[], Made]] = {
    **ONE_SIDED,
    "apply": lambda: make_apply(
        "out", A, Totals("av"), key="k", time="at", results=results_of(RESULTS), lateness=2 * SECOND
    ),
    "asof": lambda: make_asof_join(
        "out", A, B, on="k", times=("at", "bt"), history=10 * SECOND, grace=3 * SECOND, how=JoinType.LEFT, right_op="bo"
    ),
    "streams": lambda: make_stream_join(
        "out", A, B, on="k", times=("at", "bt"), before=5 * SECOND, after=2 * SECOND, grace=SECOND, how=JoinType.OUTER
    ),
    "tables": lambda: make_table_join("out", A, B, on="k", times=("at", "bt"), ops=("ao", "bo"), how=JoinType.LEFT),
}  # fmt: skip
ROWS = st.tuples(rows_of("a", KEYS, 14, op=True), rows_of("b", KEYS, 8, op=True)).map(lambda two: two[0] + two[1])
SEEDS = st.integers(0, 1 << 20)
HOW = st.fixed_dictionaries({"seed": SEEDS, "partitions": st.sampled_from([1, 3]), "complete": st.booleans()})


def chain_of(made: Made) -> Chain:
    sources = set(made.sources.values())
    schemas = {source: schema(source, op=True) for source in sorted(sources)}
    return Chain([made], schemas, {source: TIMES[source] for source in schemas})


def parts(events: Sequence[Event], chain: Chain) -> tuple[list[list[Event]], list[list[Event]]]:
    """Return the rows before and after a query is stopped, in the order of time, each in two micro-batches."""
    mine = [event for event in ticking(events) if event.source in (*chain.schemas, "*")]
    mine.sort(key=lambda event: event.at)
    ends = [(1_000 + second) * SECOND for second in (CUT // 2, CUT, 3 * CUT // 2)]
    first, second, third = ([event for event in mine if event.at < end] for end in ends)
    return (
        [first, second[len(first) :]],
        [third[len(second) :], mine[len(third) :]],
    )


def without(batches: Sequence[Sequence[Event]], left_out: Callable[[Event], bool]) -> list[list[Event]]:
    return [[event for event in events if not left_out(event)] for events in batches]


def is_person(event: Event) -> bool:
    return event.row.get("k") == PERSON


def erasing(key: str | int) -> Edit:
    def edit(inspector: StateInspector) -> None:
        assert erase(inspector, [[key]], by="x").traces == ()

    return edit


def editing(edit: Callable[[StateEditor], object]) -> Edit:
    def edit_all(inspector: StateInspector) -> None:
        with StateEditor(inspector, "x", "") as editor:
            edit(editor)
            editor.commit()

    return edit_all


def undone(inspector: StateInspector) -> None:
    if any(query.record.edit is not None for query in inspector.queries(inspector.checkpoint.chosen(None))):
        StateEditor(inspector, "x", "").undo()


@pytest.mark.parametrize("verb", VERBS)
@histories(4)
@given(ROWS, HOW)
def test_an_erased_key_is_as_if_it_had_never_come(verb: str, events: list[Event], how: dict[str, Any]) -> None:
    chain = chain_of(VERBS[verb]())
    before, after = parts(events, chain)
    found = told(chain, before, [erasing(PERSON)], after, **how)
    assert bag(found) == bag(told(chain, without(before, is_person), [], after, **how))


@pytest.mark.parametrize("verb", ["windows", "final", "final-sessions"])
@histories(4)
@given(ROWS, HOW)
def test_keys_are_erased_one_after_the_other_before_the_next_micro_batch(
    verb: str, events: list[Event], how: dict[str, Any]
) -> None:
    chain = chain_of(VERBS[verb]())
    before, after = parts(events, chain)
    again = [event for event in parts(events, chain)[1][0] if event.at == (1_000 + CUT) * SECOND]
    found = told(chain, [*before, again], [erasing(PERSON), erasing(OTHER)], after, **how)
    gone = without([*before, again], lambda event: event.row.get("k") in (PERSON, OTHER))
    assert bag(found) == bag(told(chain, gone, [], after, **how))


@pytest.mark.parametrize("verb", ONE_SIDED)
@histories(4)
@given(ROWS, HOW)
def test_a_deleted_key_is_as_if_it_had_never_come_and_an_undone_one_as_before(
    verb: str, events: list[Event], how: dict[str, Any]
) -> None:
    chain = chain_of(ONE_SIDED[verb]())
    before, after = parts(events, chain)
    store = "latest" if verb == "latest" else "aggregate"
    delete = editing(lambda editor: editor.delete(store, [PERSON]))
    found = told(chain, before, [delete], after, **how)
    if not (how["complete"] and "final" in verb):  # Had it never come out, it would have no value before.
        assert bag(found) == bag(told(chain, without(before, is_person), [], after, **how))
    back = told(chain, before, [delete, undone], after, **how)
    assert bag(back) == bag(told(chain, before, [], after, **how))


@pytest.mark.parametrize("verb", ["windows", "final"])
@histories(4)
@given(ROWS, HOW)
def test_a_window_that_is_reset_is_as_if_none_of_its_rows_had_come(
    verb: str, events: list[Event], how: dict[str, Any]
) -> None:
    chain = chain_of(ONE_SIDED[verb]())
    before, after = parts(events, chain)
    start = (1_000 + 16) * SECOND
    how = {**how, "complete": False}
    reset = editing(lambda editor: editor.delete("aggregate", [PERSON], window_start=start // 1_000))
    found = told(chain, before, [reset], after, **how)
    rest = without(before, lambda event: is_person(event) and start <= event.at < start + 8 * SECOND)
    assert bag(found) == bag(told(chain, rest, [], after, **how))


@pytest.mark.parametrize("verb", ["latest", "aggregate", "windows", "final"])
@histories(4)
@given(ROWS, HOW)
def test_a_row_that_is_put_is_as_if_the_rows_had_come_that_made_it(
    verb: str, events: list[Event], how: dict[str, Any]
) -> None:
    chain = chain_of(ONE_SIDED[verb]())
    before, after = parts(events, chain)
    store = "latest" if verb == "latest" else "aggregate"
    how = {**how, "complete": False}
    rows: list[dict[str, Any]] = []
    reached = max((event.at for batch in before for event in batch), default=0) - 4 * SECOND

    def read(inspector: StateInspector) -> None:
        view = inspector.store(store)
        found = view.history([PERSON]) if verb == "latest" else view.get([PERSON])
        rows.extend([] if found is None else found.to_pylist())

    def put(editor: StateEditor) -> None:
        for row in rows:
            come_out = verb == "final" and row["window_start"].timestamp() * SECOND + 8 * SECOND <= reached
            with pytest.raises(ConfigurationError, match="no reader would see it") if come_out else nullcontext():
                editor.put(store, [row], ahead=True)

    expected = told(chain, before, [read], after, **how)
    specs = chain.verbs[0].verb.topology.stores

    def put_all(inspector: StateInspector) -> None:
        editing(put)(replace(inspector, specs=specs))

    found = told(chain, without(before, is_person), [put_all], after, **how)
    assert bag(found) == bag(expected)


@histories(4)
@given(rows_of("a", ["x", "y"], 14, op=True), rows_of("b", ["x", "y"], 8, op=True), HOW)
def test_the_foreign_side_keeps_nothing_of_an_erased_left_key(
    left: list[Event], right: list[Event], how: dict[str, Any]
) -> None:
    schemas = {"a": schema("a", op=True, id_=True), "b": schema("b", op=True)}
    join = make_table_join(
        "out", Rows.of("a", schemas["a"]), Rows.of("b", schemas["b"]),
        on="k", times=("at", "bt"), ops=("ao", "bo"), left_key="id",
    )  # fmt: skip
    chain = Chain([join], schemas, TIMES)
    rows = [replace(one, row={**one.row, "id": 7_000_000 + number % 3}) for number, one in enumerate(left)]
    before, after = parts([*rows, *right], chain)
    found = told(chain, before, [erasing(7_000_001)], after, **how)
    gone = without(before, lambda event: event.row.get("id") == 7_000_001)
    assert bag(found) == bag(told(chain, gone, [], after, **how))


def test_a_right_row_that_only_an_erased_left_row_has_named_is_alone_with_its_next_change() -> None:
    schemas = {"a": schema("a", op=True, id_=True), "b": schema("b", op=True)}
    join = make_table_join(
        "out", Rows.of("a", schemas["a"]), Rows.of("b", schemas["b"]),
        on="k", times=("at", "bt"), ops=("ao", "bo"), left_key="id", how=JoinType.OUTER,
    )  # fmt: skip
    named = event("a", "x", 1, 5, "upsert", with_op=True)
    before = [replace(named, row={"id": 7_000_001, **named.row}), event("b", "x", 0, 1, "upsert", with_op=True)]
    after = [event("b", "x", 9, 2, "upsert", with_op=True)]
    found = told(Chain([join], schemas, TIMES), [before], [erasing(7_000_001)], [after], seed=1, partitions=2)
    assert [(row["id"], row["k"], row["bv"], row["op"]) for row in found] == [(None, "x", 2, "upsert")]


def test_left_rows_that_name_an_erased_foreign_key_find_a_right_row_of_it_with_their_next_change() -> None:
    schemas = {"a": schema("a", op=True, id_=True), "b": schema("b", op=True)}
    join = make_table_join(
        "out", Rows.of("a", schemas["a"]), Rows.of("b", schemas["b"]),
        on="k", times=("at", "bt"), ops=("ao", "bo"), left_key="id",
    )  # fmt: skip
    naming = event("a", PERSON, 1, 5, "upsert", with_op=True)
    left = [replace(naming, row={"id": number, **naming.row}) for number in (1, 2)]
    before = [*left, event("b", PERSON, 0, 1, "upsert", with_op=True)]
    again = event("b", PERSON, 9, 2, "upsert", with_op=True)
    changed = event("a", PERSON, 20, 6, "upsert", with_op=True)
    after = [[again], [replace(changed, row={"id": 2, **changed.row})]]

    def erase_person(inspector: StateInspector) -> None:
        assert erase(inspector, [[PERSON]], by="x").traces

    found = told(Chain([join], schemas, TIMES), [before], [erase_person], after, seed=1, partitions=2)
    assert [(row["id"], row["av"], row["bv"], row["op"]) for row in found] == [(2, 6, 2, "upsert")]


def seconds(second: int) -> datetime:
    return datetime.fromtimestamp(1_000 + second, UTC)


def fired(edits: Sequence[Edit], key: str = PERSON) -> list[tuple[str, int]]:
    """Return which timers of a key fire after edits and a row of another key, and for when."""
    chain = chain_of(VERBS["apply"]())
    rows = [event("a", key, second, value, "upsert", with_op=True) for key, second, value in
            ((PERSON, 0, 3), (OTHER, 3, 3), (OTHER, 30, 3))]  # fmt: skip
    found = told(chain, [rows[:2]], edits, [rows[2:]], seed=1, partitions=1)
    return sorted((row["what"], row["seen"] // SECOND - 1_000) for row in found if row["k"] == key)


def test_a_timer_is_set_moved_and_deleted_and_one_that_is_due_fires_next() -> None:
    before = []

    def move(editor: StateEditor) -> None:
        before.append(editor.set_timer("out-timers", [PERSON], seconds(12), name="idle"))
        before.append(editor.set_timer("out-timers", {"k": PERSON}, None, name="soon"))
        before.append(editor.set_timer("out-timers", [PERSON], seconds(-500), name="due"))
        before.append(editor.set_timer("out-timers", [PERSON], 1_000, name="clock", wall_clock=True))
        before.append(editor.set_timer("out-timers", [PERSON], 0, name="clock", wall_clock=True))

    assert fired([]) == [("idle", 5), ("soon", 2)]
    assert fired([], OTHER) == fired([editing(move)], OTHER)
    moved = fired([editing(move)])
    assert [one for one in moved if one[0] != "clock"] == [("due", -500), ("idle", 12)]
    assert [what for what, _ in moved].count("clock") == 1
    assert before[:5] == [seconds(5), seconds(2), None, None, datetime.fromtimestamp(1, UTC)]
    assert fired([editing(move), undone]) == fired([])


def test_what_is_no_timer_is_refused_with_what_to_write() -> None:
    def refused(editor: StateEditor) -> None:
        with pytest.raises(ConfigurationError, match=r"holds no timers; .* one of \['out-timers'\]"):
            editor.set_timer("out-state", [PERSON], None)
        with pytest.raises(ConfigurationError, match="set, move or delete one with set_timer"):
            editor.delete("out-timers", b"x")
        with pytest.raises(ConfigurationError, match=r"a rule cannot get the time .*; give a datetime"):
            editor.set_timer("out-timers", [PERSON], 2**50)
        later = datetime(2026, 1, 1, tzinfo=UTC)
        editor.set_timer("out-timers", [PERSON], later)
        assert editor.set_timer("out-timers", [PERSON], None) == later

    fired([editing(refused)])


def test_aggregates_whose_results_do_not_tell_their_states_are_refused_by_the_name_of_the_call() -> None:
    before, after = (event("a", PERSON, second, 3, "upsert", with_op=True) for second in (0, 1))

    def end(calls: dict[str, Any], edit: Callable[[StateEditor], object]) -> dict[str, Any]:
        chain = chain_of(make_aggregate("out", A, calls, by="k", time="at"))
        (row,) = told(chain, [[before]], [editing(edit)], [[after]], seed=1, partitions=1)
        return {name: row[name] for name in calls}

    def put(editor: StateEditor) -> None:
        (row,) = editor.view("aggregate").get([PERSON]).to_pylist()  # type: ignore[union-attr]
        editor.put("aggregate", [{**row, "value": {**row["value"], "count": 4, "sum": 8}}])

    def delete(editor: StateEditor) -> None:
        with pytest.raises(ConfigurationError, match=r"avg.*: its state is more than its result.*; delete the key, wh"):
            put(editor)
        assert editor.delete("aggregate", [PERSON]) == 1

    anew = {"n": 1, "s": 3, "most": 3, "few": 3}
    assert end({**CALLS, "mean": aggregates.avg("av")}, delete) == {**anew, "mean": 3.0}
    assert end(CALLS, put) == {**anew, "n": 5, "s": 11}


def test_the_result_of_all_rows_is_read_put_and_deleted_by_a_key_without_columns() -> None:
    chain = chain_of(make_aggregate("out", A, CALLS, by=[], time="at"))
    before = [[upsert(key, second, 3) for second, key in enumerate((PERSON, OTHER))]]

    def end(edit: Callable[[StateEditor], object]) -> dict[str, Any]:
        (row,) = told(chain, before, [editing(edit)], [[upsert("c", 9, 5)]], seed=1, partitions=3)
        return {name: row[name] for name in CALLS}

    def put(editor: StateEditor) -> None:
        (row,) = editor.view("aggregate").get({}).to_pylist()  # type: ignore[union-attr]
        assert (row["key"], row["value"]["count"]) == ({}, 2)
        editor.put("aggregate", [{**row, "value": {**row["value"], "count": 7}}])

    assert end(put) == {"n": 8, "s": 11, "most": 5, "few": 3}
    assert end(lambda editor: editor.delete("aggregate", [])) == {"n": 1, "s": 5, "most": 5, "few": 5}


def test_a_window_that_no_row_could_be_in_is_refused_with_one_that_fits() -> None:
    chain = chain_of(VERBS["windows"]())
    rows = [event("a", PERSON, 0, 3, "upsert", with_op=True)]

    def put(editor: StateEditor) -> None:
        (row,) = editor.view("aggregate").get([PERSON]).to_pylist()  # type: ignore[union-attr]
        with pytest.raises(
            ConfigurationError, match=r"is of no window .* give the window_start \(--window-start\) 1970-01-01T00:16:32"
        ):
            editor.put("aggregate", [{**row, "window_start": seconds(-5)}])
        for wrong in (seconds(-9), seconds(0)):
            with pytest.raises(
                ConfigurationError, match=r"give a timestamp \(--timestamp\) from 1970.*16:32.* until before .*16:40"
            ):
                editor.put("aggregate", [{**row, "window_start": seconds(-8), "timestamp": wrong}])
        editor.put("aggregate", [{**row, "window_start": seconds(-8), "timestamp": seconds(-1)}])
        value = {**row["value"], next(iter(row["value"])): None}
        with pytest.raises(ConfigurationError, match="a count is never null"):
            editor.put("aggregate", [{**row, "value": value}])

    told(chain, [rows], [editing(put)], [[]], seed=1, partitions=1)


def upsert(key: str, second: int, value: int) -> Event:
    return event("a", key, second, value, "upsert", with_op=True)


def test_what_waits_in_an_operator_is_erased_or_left() -> None:
    chain = chain_of(VERBS["streams"]())
    rows = [upsert(PERSON, 0, 3), upsert(OTHER, 0, 4)]

    def refused(inspector: StateInspector) -> None:
        waiting = [view.name for view in inspector.stores() if view.shape.layout is not None]
        assert waiting
        for store in waiting:
            with (
                StateEditor(inspector, "x", "") as editor,
                pytest.raises(
                    ConfigurationError, match=r"waits for others in its operator; erase the key, or leave them \["
                ),
            ):
                editor.delete(store, [PERSON])

    def found(*edits: Edit) -> list[tuple[str, int]]:
        come_out = told(chain, [rows], edits, [[upsert("c", 50, 1)]], seed=1, partitions=1)
        return sorted((row["k"], row["av"]) for row in come_out)

    assert found(refused) == found() == [(PERSON, 3), (OTHER, 4), ("c", 1)]
    assert found(refused, erasing(PERSON)) == [(OTHER, 4), ("c", 1)]


def test_rows_with_an_order_are_replaced_by_one_with_a_later_order_or_erased() -> None:
    chain = chain_of(make_latest("out", A, key="k", time="at", op="ao", order="av", history=60 * SECOND))

    def refused(editor: StateEditor) -> None:
        (row,) = editor.view("latest").get([PERSON]).to_pylist()  # type: ignore[union-attr]
        with pytest.raises(ConfigurationError, match=r"; let a row with a later order arrive, or erase the key \["):
            editor.put("latest", [row])

    def found(edit: Edit, value: int) -> list[tuple[str, int]]:
        rows = told(chain, [[upsert(PERSON, 0, 5)]], [editing(refused), edit], [[upsert(PERSON, 0, value)]],
                    seed=1, partitions=1)  # fmt: skip
        return [(row["k"], row["av"]) for row in rows]

    assert found(lambda _: None, 4) == []
    assert found(lambda _: None, 6) == [(PERSON, 6)]
    assert found(erasing(PERSON), 4) == [(PERSON, 4)]


def test_of_windows_that_depend_on_rows_those_that_are_there_get_other_values() -> None:
    chain = chain_of(VERBS["sessions"]())
    value = [5, 50, 20, 1]

    def put(editor: StateEditor) -> None:
        (row,) = editor.view("aggregate").get([PERSON]).to_pylist()  # type: ignore[union-attr]
        with pytest.raises(ConfigurationError, match=r"depends on its rows; put a value of one that is there \["):
            editor.put("aggregate", [{**row, "window_start": seconds(-5), "value": value}])
        editor.put("aggregate", [{**row, "value": value}])

    found = told(chain, [[upsert(PERSON, 0, 3)]], [editing(put)], [[upsert(PERSON, 1, 4)]], seed=1, partitions=1)
    assert [found[-1][name] for name in CALLS] == [6, 54, 20, 1]


def test_one_of_windows_that_start_together_is_put_by_the_start_of_its_last_step() -> None:
    chain = chain_of(aggregated(CumulativeWindows("8 seconds", "4 seconds", grace="20 seconds")))

    def put(editor: StateEditor) -> None:
        first, whole = editor.view("aggregate").get([PERSON]).to_pylist()  # type: ignore[union-attr]
        assert [first["window_start"], whole["window_start"]] == [seconds(0), seconds(4)]
        with pytest.raises(ConfigurationError, match=r"which start every 4 seconds: give the window_start .*16:44"):
            editor.put("aggregate", [{**whole, "window_start": seconds(5)}])
        for wrong in (seconds(-1), seconds(8)):
            with pytest.raises(
                ConfigurationError, match=r"give a timestamp .* from 1970.*16:40.* until before .*16:48"
            ):
                editor.put("aggregate", [{**whole, "timestamp": wrong}])
        editor.put("aggregate", [{**whole, "value": [5, 50, 20, 1]}])

    found = told(chain, [[upsert(PERSON, 0, 3)]], [editing(put)], [[upsert(PERSON, 1, 4)]], seed=1, partitions=1)
    assert sorted([row["window"][1] - row["window"][0], *(row[name] for name in CALLS)] for row in found[-2:]) == [
        [4 * SECOND, 2, 7, 4, 3],
        [8 * SECOND, 6, 54, 20, 1],
    ]


def test_a_window_that_has_come_out_is_not_put_and_a_later_one_comes_out() -> None:
    def put(editor: StateEditor) -> None:
        (row,) = editor.view("aggregate").get([OTHER]).to_pylist()  # type: ignore[union-attr]
        row = {**row, "key": [PERSON], "value": [7, 1, 1, 1]}
        with pytest.raises(ConfigurationError, match=r"up to 1970-01-01T00:16:58.* would see it; put a later one \["):
            editor.put("aggregate", [{**row, "window_start": seconds(16)}])
        editor.put("aggregate", [{**row, "window_start": seconds(24)}])

    chain = chain_of(VERBS["final"]())
    rows = [upsert(OTHER, 0, 3), upsert(OTHER, 30, 4)]
    found = told(chain, [rows], [editing(put)], [[upsert(OTHER, 60, 1)]], seed=1, partitions=1)
    assert sorted((row["k"], row["n"]) for row in found) == [(PERSON, 7), (OTHER, 1), (OTHER, 1)]

"""The steps of drivers of queries of verbs: deaths on the way, and verbs beside those that change."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from millpond.adapters.edit import ErasureReport, StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.pond import Millpond
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.calls.arguments import (
    check_calls,
)
from millpond.processors.options.joins import ASOF_JOINS, AsofDirection, JoinType
from millpond.processors.verbs.aggregates import count
from millpond.processors.verbs.kept_calls import CallChanges
from tests.evolution.verb_drafts import TABLES, rekeyed
from tests.evolution.verb_job import OWNER, Said
from tests.evolution.verb_life import Arrival, VerbLife

ROWS = [Arrival("a", 0, 1), Arrival("b", 0, 2), Arrival("c", 3, None)]


@pytest.fixture
def life() -> Iterator[VerbLife]:
    with VerbLife() as life:
        yield life


def test_a_verb_whose_calls_have_changed_is_renamed_whenever_the_driver_dies(life: VerbLife) -> None:
    life.begin(["totals"], 1, "memory")
    life.batch(ROWS, right=False)
    life.change_calls(0, "comes", 0, [])
    life.batch(ROWS, right=False)
    for death in range(1, 25):
        life.rename_verb(0, [death])
        life.check()
        life.batch(ROWS, right=False)
    assert life.seen["killed while carrying over"] > 10


def test_verbs_beside_one_that_another_takes_the_place_of_go_on(life: VerbLife) -> None:
    life.begin(["totals", "latest", "totals", "windows"], 2, "memory")
    life.batch(ROWS, right=False)
    life.replace_verb(1, "latest", [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_a_query_goes_back_behind_the_beginning_of_a_verb_whose_stores_are_called_after_it_and_which_was_renamed(
    life: VerbLife,
) -> None:
    life.begin(["latest"], 2, "memory")
    life.batch(ROWS, right=False)
    life.batch(ROWS, right=False)
    life.replace_verb(0, "apply", [])
    life.rename_verb(0, [])
    life.set_back(0, [])
    life.batch(ROWS, right=False)
    life.check()


def test_a_verb_that_has_nothing_to_do_goes_on_beside_one_in_another_shape_and_one_that_is_renamed(
    life: VerbLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin(["latest", "totals", "totals"], 2, "memory")
    life.batch(ROWS, right=False)
    life.job.start(life.drafts[1:2], 3, "memory", Said(life.evolution, into=False, changes={}))
    life.start(life.drafts)
    come, quiet = life.come, life.drafts[0].number
    monkeypatch.setattr(life, "come", lambda draft, *how: [] if draft.number == quiet else come(draft, *how))
    life.batch(ROWS, right=False)
    life.check()
    life.rename_verb(2, [])
    life.check()


def test_a_query_goes_back_to_what_it_held_when_a_verb_that_is_gone_was_carried_over_with_the_others(
    life: VerbLife,
) -> None:
    life.begin(["latest", "latest", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    life.batch([], right=False)
    life.rename_verb(2, [])
    life.batch(ROWS, right=False)
    life.rename_verb(1, [])
    life.set_back(0, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_a_verb_comes_before_the_first_micro_batch_at_another_checkpoint(life: VerbLife) -> None:
    life.begin(["totals"], 1, "memory")
    life.batch(ROWS, right=False)
    life.add_verb(1, "latest", [])
    life.replace_verb(1, "windows", [])
    life.batch(ROWS, right=False)
    life.check()


def test_an_erasure_reaches_a_renamed_verb_that_has_not_run_since(life: VerbLife) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    life.repartition(1, [])
    life.batch(ROWS, right=False)
    life.rename_verb(0, [])
    life.erase_key("a", [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()
    life.rename_verb(1, [])
    life.erase_key("b", [])
    life.batch([], right=False)
    life.check()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_erasure_reaches_a_renamed_verb_that_had_nothing_to_do_in_the_micro_batch_since(
    life: VerbLife, times: int
) -> None:
    life.begin(["latest", "windows"], 2, "memory")
    life.batch([Arrival("k1", 0, 1), Arrival("k2", 0, 2)], False)
    for _ in range(times):
        life.rename_verb(0, [])
    life.batch([], False)
    life.erase_key("k1", [])
    life.check()


def test_a_verb_keeps_its_state_beside_one_of_the_same_stores_that_became_another_before_its_first_row(
    life: VerbLife,
) -> None:
    """Its tasks have been opened before, as by a first micro-batch that failed."""
    life.begin(["totals", "latest", "totals"], 1, "memory")
    life.check()
    life.change_calls(0, "comes", 0, [])
    life.check()
    life.batch(ROWS, right=False)
    life.rekey_verb(0, TABLES.index("latest"), (0, 0), False, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("kind", ["asof", "versions"])
@pytest.mark.parametrize("renamed", [False, True])
def test_an_erasure_reaches_a_verb_that_has_begun_with_the_rows_of_another_and_had_nothing_to_do_since(
    life: VerbLife, kind: str, renamed: bool
) -> None:
    life.begin(["totals", kind], 2, "memory")
    for right in (False, True):
        life.batch([Arrival("k1", 0, 1), Arrival("k2", 0, 2)], right)
    life.rekey_verb(0, TABLES.index("latest"), (0, 1), False, False, [])
    if renamed:
        life.rename_verb(1, [])
    life.batch([], False)
    for key in ("k1", "k2"):
        life.erase_key(key, [])
        life.check()
    life.batch(ROWS, False)
    life.check()


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_second_erasure_does_not_read_what_a_verb_left_under_its_former_name(
    life: VerbLife, at_once: bool, rows: int
) -> None:
    """The checkpoint holds manifests of it until its tasks have run, of some tasks even then."""
    life.begin(["totals", "latest"], 4, "memory")
    life.batch([Arrival(f"k{number}", 0, number) for number in range(9)], right=False)
    life.rename_verb(0, [])
    if at_once:
        life.erase_key("k1", [])
    life.batch([Arrival("k2", 0, 1)][:rows], right=False)
    asked = {f"{OWNER}.{one.name}" for one in life.drafts}
    for key in ("k3", "k4", "k5"):
        assert {one.history.application_id for one in life.job.inspector(life.job.storage).queries(1)} == asked
        life.erase_key(key, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_a_second_erasure_reaches_verbs_of_which_all_have_other_names_and_none_has_run_since(life: VerbLife) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    for which in range(2):
        life.rename_verb(which, [])
    for key in "ab":
        life.erase_key(key, [])
        life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_an_erasure_does_not_read_what_was_erased_under_a_later_name_that_is_gone_as_well(life: VerbLife) -> None:
    """The checkpoint holds manifests of the first name, and none of the second one any more."""
    life.begin(["totals"], 4, "memory")
    life.batch([Arrival(f"k{number}", 0, number) for number in range(9)], right=False)
    life.repartition(2, [])
    life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    life.erase_key("k1", [])
    life.replace_verb(0, "asof", [])
    life.batch(ROWS, right=True)
    assert len({one.application_id for one in life.job.inspector(life.job.storage).checkpoint.manifests(2)}) == 2
    life.erase_key("k3", [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def names_listed(life: VerbLife) -> set[str]:
    """Return the verbs whose stores ``millpond state list`` shows."""
    return {view.application_id.removeprefix(f"{OWNER}.") for view in life.job.inspector(life.job.storage).stores()}


@pytest.mark.parametrize("death", [None, *range(1, 16, 3)])
def test_a_name_under_which_nothing_goes_on_is_not_listed(life: VerbLife, death: int | None) -> None:
    deaths = [] if death is None else [death]
    life.begin(["totals", "latest"], 1, "memory")
    life.batch(ROWS, right=False)
    for change in (life.repartition, life.rename_verb, life.rename_verb):
        change(1 if change == life.repartition else 0, deaths=deaths)
        assert names_listed(life) == {one.name for one in life.drafts}
        life.edit_verb(0, None, True, [])
    life.batch([], right=False)
    life.erase_key("b", [])
    assert names_listed(life) == {one.name for one in life.drafts}
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("beside", [[], ["latest"]])
def test_a_verb_that_is_dropped_is_not_listed(life: VerbLife, beside: list[str]) -> None:
    life.begin(["totals", *beside], 2, "memory")
    life.batch(ROWS, right=False)
    life.replace_verb(0, "windows", [])
    for _ in range(2):
        assert names_listed(life) == {one.name for one in life.drafts}
        life.batch([], right=False)
    life.batch(ROWS, right=False)
    assert names_listed(life) == {one.name for one in life.drafts}
    life.check()


def test_a_verb_whose_rows_another_one_has_is_not_listed_behind_the_micro_batch_in_which_it_was_known(
    life: VerbLife,
) -> None:
    life.begin(["totals", "streams", "totals"], 3, "memory")
    life.batch(ROWS, right=False)
    life.batch([], right=False)
    life.rename_verb(0, [])
    life.rekey_verb(0, 0, (0, 0), True, False, [])
    life.set_back(0, [])
    assert names_listed(life) == {one.name for one in life.drafts}
    life.erase_key("a", [])
    assert names_listed(life) == {one.name for one in life.drafts}


def test_verbs_are_there_behind_the_micro_batch_after_which_one_of_them_was_renamed(life: VerbLife) -> None:
    life.begin(["totals", "latest"], 1, "memory")
    life.batch(ROWS, right=False)
    first, stood = life.drafts, life.kept[0]
    life.batch([], right=False)
    life.rename_verb(0, [])
    life.job.batch, life.job.checkpoint = stood.batch, dict(stood.checkpoint)
    found = life.job.inspector(life.job.storage).queries(stood.batch)
    assert {one.history.application_id: one.left for one in found} == {f"{OWNER}.{one.name}": False for one in first}


def test_an_edit_reaches_a_renamed_verb_that_has_not_run_since_and_not_the_state_under_its_old_name(
    life: VerbLife,
) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    old = f"{OWNER}.{life.drafts[0].name}"
    life.rename_verb(0, [])
    new = f"{OWNER}.{life.drafts[0].name}"

    def edit_the_old(inspector: StateInspector) -> None:
        with StateEditor(inspector, "ann", "") as editor, pytest.raises(ConfigurationError) as refused:
            editor.delete("aggregate", ["a"], application_id=old)
        assert f"; edit that, application_id={new!r} (--application), or, " in str(refused.value)

    life.edit(edit_the_old, [])
    life.edit_verb(0, None, True, [])
    life.check()
    life.edit_verb(0, None, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_an_edit_reaches_a_verb_that_has_gone_on_under_its_old_name_after_it_was_started_under_another(
    life: VerbLife,
) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    before, said = life.drafts[0], life.evolution
    life.rename_verb(0, [])

    def edit_the_old(inspector: StateInspector) -> None:
        with (
            StateEditor(inspector, "ann", "") as editor,
            pytest.raises(ConfigurationError, match=r"let it run a micro-batch first \["),
        ):
            editor.delete("aggregate", ["a"], application_id=f"{OWNER}.{before.name}")

    life.edit(edit_the_old, [])
    life.evolution = said
    life.start([before, *life.drafts[1:]])
    life.edit(edit_the_old, [])
    life.batch(ROWS, right=False)
    life.check()
    life.edit_verb(0, None, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_calls_change_of_a_verb_that_has_begun_where_another_one_went_and_has_no_row_yet(life: VerbLife) -> None:
    life.begin(["latest"], 1, "memory")
    life.batch(ROWS, right=False)
    life.replace_verb(0, "totals", [])
    life.change_calls(0, "comes", 1, [])
    life.change_calls(0, "goes", 0, [])
    life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    life.check()
    life.change_calls(0, "comes", 2, [])
    life.batch(ROWS, right=False)
    life.check()


def test_a_verb_is_renamed_whose_calls_have_changed_before_its_query_has_committed_anything(life: VerbLife) -> None:
    """A worker has claimed the place of the state, and died."""
    life.begin(["windows"], 1, "memory")
    life.check()
    life.change_calls(0, "comes", 0, [])
    life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_query_goes_back_to_before_the_first_row_of_a_verb_that_has_other_partitions_or_another_name_since(
    life: VerbLife, renamed: bool
) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch([], right=False)
    life.batch(ROWS, right=False)
    life.repartition(1, [])
    life.batch(ROWS, right=False)
    if renamed:
        life.rename_verb(0, [])
        life.batch(ROWS, right=False)
    life.set_back(0, [])
    life.check()
    if renamed:
        life.rename_verb(1, [])
        life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    life.check()
    assert life.told[life.drafts[0].number].rows


@pytest.mark.parametrize("beside", [False, True])
def test_a_verb_does_not_go_on_with_what_it_had_under_a_name_before_its_last_one(life: VerbLife, beside: bool) -> None:
    life.begin(["totals", "totals"] if beside else ["totals"], 2, "memory")
    life.batch(ROWS, right=False)
    first = life.drafts[0].name
    life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    drafts, now = life.drafts, life.drafts[0].name
    wanted = [replace(drafts[0], name="third"), *drafts[1:]]
    life.evolution = Evolution("checkpoint", renamed={first: "third"})
    with pytest.raises(StateConflictError, match=f"has gone on as '{now}'") as refused:
        life.start(wanted)
    assert refused.value.sentence.endswith(f"renamed={{'{now}': 'third'}})")
    life.evolution = Evolution("checkpoint", renamed={now: "third"})
    life.start(wanted)
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_an_edit_is_undone_beside_an_erasure_that_came_before_it(life: VerbLife) -> None:
    life.begin(["totals", "totals"], 1, "memory")
    life.batch(ROWS, right=False)
    life.erase_key("a", [])
    life.edit_verb(0, None, True, [])
    life.check()

    def undo_once_more(inspector: StateInspector) -> None:
        with StateEditor(inspector, "bob", "") as editor, pytest.raises(StateConflictError, match="undone"):
            editor.undo()

    life.edit(undo_once_more, [])
    life.batch(ROWS, right=False)
    life.check()


def test_an_edit_under_a_name_that_a_verb_had_between_two_micro_batches_stays(life: VerbLife) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    life.rename_verb(0, [])
    life.edit_verb(0, None, False, [])
    life.rename_verb(0, [])
    life.check()
    life.restart(says=True)
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_an_edit_under_a_name_that_is_taken_back_before_a_micro_batch_stays(life: VerbLife) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    first = life.drafts
    life.rename_verb(0, [])
    life.edit_verb(0, None, False, [])
    now = life.drafts[0].name
    life.evolution = Evolution("checkpoint", renamed={now: first[0].name})
    for _ in range(2):
        life.start(first)
        life.check()
    life.edit_verb(1, None, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()
    life.restart(says=True)
    life.check()


def test_an_erasure_reaches_what_a_verb_left_under_its_former_name_before_it_had_other_partitions(
    life: VerbLife,
) -> None:
    life.begin(["totals", "latest"], 1, "memory")
    rows = [Arrival("erased-key", 0, 1), Arrival("other-key", 0, 2)]
    life.batch(rows, right=False)
    life.repartition(1, [])
    life.batch(rows, right=False)
    life.rename_verb(0, [])
    life.batch(rows, right=False)
    reports = list[ErasureReport]()
    life.edit(lambda inspector: reports.append(erase(inspector, [["erased-key"]], by="ann")), [])
    assert [report.traces for report in reports] == [()]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", ["latest", "windows"])
def test_the_name_of_a_verb_of_another_kind_is_refused_with_both_kinds_and_the_line_that_is_right(
    life: VerbLife, declared: bool, kind: str
) -> None:
    life.begin(["totals" if kind == "latest" else "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    old, new = life.drafts[0].name, life.new(kind)
    told = "an aggregate; 'tot' is a latest" if kind == "latest" else "a latest; 'tot' is an aggregate"
    is_ = "latest" if kind == "latest" else "aggregate"
    line = f"give the {is_} another name, and write evolution=Evolution(checkpoint, dropped=['tot']), with which it "
    text = f"the state of the verb 'tot' is that of {told}; {line}begins empty".replace("'tot'", repr(old))
    with pytest.raises(StateConflictError) as refused:
        life.start([replace(new, name=old)], says=declared)
    assert refused.value.sentence == text
    life.evolution = Evolution("checkpoint", renamed={old: new.name})
    with pytest.raises(
        StateConflictError, match=f"renamed says that it is '{new.name}' now, but .*; write "
    ) as refused:
        life.start([new])
    assert f"dropped=['{old}']" in str(refused.value)
    life.evolution = Evolution("checkpoint", dropped=[old])
    life.start([new])
    life.batch(ROWS, right=False)
    life.check()


def test_a_verb_of_another_kind_that_may_begin_with_the_rows_that_are_there_is_told_so(life: VerbLife) -> None:
    life.begin(["latest"], 1, "memory")
    life.batch(ROWS, right=False)
    old = life.drafts[0]
    new = life.begun(old, "asof", (0, 0), grouped=False)
    for name, place in ((old.name, "<another name>"), (new.name, new.name)):
        life.evolution = Evolution("checkpoint", renamed={} if name == old.name else {old.name: name})
        told = f"or evolution=Evolution(checkpoint, rekeyed={{'{place}.right': '{old.name}'}}), with which it begins"
        with pytest.raises(StateConflictError, match=re.escape(told)):
            life.start([replace(new, name=name)])
    assert rekeyed(old, new) == {f"{new.name}.right": old.name}
    life.evolution = Evolution("checkpoint")
    life.rekey_verb(0, TABLES.index("asof"), (0, 0), False, False, [])
    assert (life.drafts[0].kind, life.drafts[0].lent) == ("asof", new.lent)
    life.batch(ROWS, right=False)


def test_a_verb_in_another_shape_is_told_of_verbs_and_goes_on_once_that_is_written(life: VerbLife) -> None:
    life.begin(["totals"], 2, "memory")
    life.batch(ROWS, right=False)
    life.partitions, name = 3, life.drafts[0].name
    with pytest.raises(StateConflictError, match=f"the state of the verb '{name}' in another shape") as refused:
        life.start(life.drafts, says=False)
    assert "write evolution=Evolution(checkpoint); or call the verb with its former arguments" in str(refused.value)
    life.start(life.drafts)
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_what_is_no_mapping_or_list_is_refused_with_what_to_write() -> None:
    """Of a text each letter would be a name, and nothing would be said of what was meant."""
    wrong: Any = "old"
    for said in (Evolution, ColumnChanges, CallChanges):
        place: Any = partial(said, "checkpoint") if said is Evolution else said
        with pytest.raises(ConfigurationError, match="renamed is 'old'; give a mapping from each old name"):
            place(renamed=wrong, dropped=[])
        with pytest.raises(ConfigurationError, match=r"dropped is 'old'; write the names in a list, such as \['old'\]"):
            place(renamed={}, dropped=wrong)
        with pytest.raises(ConfigurationError, match=r"renamed is {'old': 5}; give a mapping from each old name"):
            place(renamed={"old": 5}, dropped=[])
        with pytest.raises(ConfigurationError, match=r"dropped is \[5\]; write the names in a list, such as \['old'\]"):
            place(renamed={}, dropped=[5])
        place(renamed={"old": "new"}, dropped=["old"])
    with pytest.raises(ConfigurationError, match="calls is 'old'; give a mapping from the name of each result"):
        check_calls(wrong, None)
    check_calls({"old": count()}, None)
    with pytest.raises(ConfigurationError, match=r"evolution is 'old'; give Evolution\('old'\)"):
        Millpond(application_id="app", state_dir="state", evolution=wrong)
    with pytest.raises(ConfigurationError, match="partitions must be 1 or more, not '3'"):
        Millpond(application_id="app", state_dir="state", partitions=cast(Any, "3"))
    Millpond(application_id="app", state_dir="state", evolution=Evolution("old"), partitions=3)


@pytest.mark.parametrize("erased", [False, True])
def test_a_start_that_takes_a_renaming_out_is_refused_where_there_is_an_edit_under_the_new_name(
    life: VerbLife, erased: bool
) -> None:
    life.begin(["totals", "latest"], 2, "memory")
    life.batch(ROWS, right=False)
    first = life.drafts
    life.rename_verb(0, [])
    life.edit_verb(0, None, True, [])
    life.evolution = Evolution("checkpoint")
    life.start(first)
    life.check()
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "second"})
    life.start([replace(first[0], name="second"), *first[1:]])
    life.edit_verb(0, None, False, [])
    if erased:
        life.erase_key("b", [])
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "third"})
    with pytest.raises(StateConflictError, match=r"renamed=\{'second': 'third'\}"):
        life.start([replace(first[0], name="third"), *first[1:]])
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "second", "second": "third"})
    life.start([replace(first[0], name="third"), *first[1:]])
    life.check()
    life.evolution = Evolution("checkpoint")
    with pytest.raises(StateConflictError, match="edited as 'third'") as refused:
        life.start(first)
    said = f"renamed={{'third': '{first[0].name}'}}"
    assert said in str(refused.value)
    life.evolution = Evolution("checkpoint", renamed={"third": first[0].name})
    for _ in range(2):
        life.start(first)
        life.check()
    life.evolution = Evolution("checkpoint")
    life.start(first)
    life.edit_verb(0, None, False, [])
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "third"})
    for _ in range(2):
        life.start([replace(first[0], name="third"), *first[1:]])
        life.check()
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_edit_under_a_new_name_is_not_lost_where_nothing_is_said_of_names(life: VerbLife, partitions: int) -> None:
    life.begin(["totals", "latest"], partitions, "memory")
    life.batch(ROWS, right=False)
    first = life.drafts
    life.rename_verb(0, [])
    life.edit_verb(0, None, True, [])
    life.start(first, says=False)
    life.check()
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "second"})
    life.start([replace(first[0], name="second"), *first[1:]])
    life.edit_verb(0, None, False, [])
    life.start(life.drafts, says=False)
    life.check()
    life.start(first, says=False)
    line = f"evolution=Evolution(checkpoint, renamed={{'second': '{first[0].name}'}})"
    with pytest.raises(StateConflictError, match=r"at its checkpoint .* edited as 'second'") as refused:
        life.batch(ROWS, right=False)
    assert f"to go on with that, write {line}; or take it back: millpond state undo" in str(refused.value)
    life.evolution = Evolution("checkpoint", renamed={"second": first[0].name})
    life.start(first)
    life.check()
    life.batch(ROWS, right=False)
    life.start(life.drafts, says=False)
    life.batch(ROWS, right=False)
    life.check()


def test_rows_put_under_a_new_name_are_not_lost_in_a_task_that_had_none(life: VerbLife) -> None:
    life.begin(["totals"], 4, "memory")
    life.batch([Arrival("a", 0, 1)], right=False)
    first = life.drafts
    life.rename_verb(0, [])
    new = life.drafts[0].name

    def put(inspector: StateInspector) -> None:
        with StateEditor(inspector, "ann", "") as editor:
            table = editor.view("aggregate", application_id=f"{OWNER}.{new}").get(["a"])
            assert table is not None
            (row,) = table.to_pylist()
            rows = [{**row, "key": {"k": key}} for key in "bcdefgh"]
            editor.put("aggregate", rows, ahead=True, application_id=f"{OWNER}.{new}")
            editor.commit()

    life.edit(put, [])
    life.start(first, says=False)
    for key in "bcdefgh":
        with pytest.raises(StateConflictError, match=f"edited as '{new}'"):
            life.batch([Arrival(key, 0, 1)], right=False)


@pytest.mark.parametrize("edited", [False, True])
def test_state_that_was_carried_over_last_is_told_why_nothing_is_undone_and_the_way_back(
    life: VerbLife, edited: bool
) -> None:
    life.begin(["totals"], 1, "memory")
    life.batch(ROWS, right=False)
    if edited:
        life.edit_verb(0, None, False, [])
    life.repartition(1, [])
    told = r"edited after micro-batch 0 and then carried over, .* \(2 partitions\), .*; edit the rows once more \["
    if not edited:
        told = r"from 1 partitions to 2 partitions, .* to have 1 partitions again, .*: millpond state repartition \["

    def undo(inspector: StateInspector) -> None:
        with StateEditor(inspector, "bob", "") as editor, pytest.raises(StateConflictError, match=told):
            editor.undo()

    life.edit(undo, [])
    if edited:
        life.edit_verb(0, None, True, [])
    else:
        life.repartition(3, [])
        assert life.partitions == 1
    life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_verbs_that_exchange_names_are_given_new_ones_and_one_that_has_its_former_name_again_goes_on(
    life: VerbLife,
) -> None:
    life.begin(["totals", "latest"], 1, "memory")
    life.batch(ROWS, right=False)
    first, second = life.drafts
    a, b = first.name, second.name
    life.evolution = Evolution("checkpoint", renamed={a: b, b: a})
    for wanted in ([replace(first, name=b), replace(second, name=a)], [replace(second, name=a)]):
        with pytest.raises(ConfigurationError, match="give them names that none has had") as refused:
            life.start(wanted)
        asked = wanted[0].name
        before = b if asked == a else a
        assert f"if it has got a former name again, write renamed={{{before!r}: {asked!r}}}; " in str(refused.value)
        assert refused.value.sentence.endswith(f", renamed={ {a: f'{b}_2', b: f'{a}_2'} }")
    life.evolution = Evolution("checkpoint", renamed={a: f"{b}_2", b: f"{a}_2"})
    for _ in range(2):
        life.start([replace(first, name=f"{b}_2"), replace(second, name=f"{a}_2")])
        life.check()
    life.batch(ROWS, right=False)
    life.check()
    life.evolution = Evolution("checkpoint", renamed={f"{b}_2": a, a: f"{b}_2"})
    back = [replace(first, name=a), life.drafts[1]]
    with pytest.raises(ConfigurationError, match="has got a former name again") as refused:
        life.start(back)
    assert f"write renamed={ {f'{b}_2': a} }; " in str(refused.value)
    life.evolution = Evolution("checkpoint", renamed={f"{b}_2": a})
    for _ in range(2):
        life.start(back)
        life.check()
        life.batch(ROWS, right=False)
        life.check()


def test_a_query_without_apply_is_told_that_it_has_no_timers(life: VerbLife) -> None:
    life.begin(["totals"], 1, "memory")
    life.batch(ROWS, right=False)

    def set_timer(inspector: StateInspector) -> None:
        told = "'aggregate' holds no timers, and nor does any other"
        with StateEditor(inspector, "ann", "") as editor, pytest.raises(ConfigurationError, match=told):
            editor.set_timer("aggregate", ["a"], None)

    life.edit(set_timer, [])


def test_a_verb_does_not_begin_with_rows_that_lack_an_edit_under_a_new_name_and_begins_with_those_that_have_it(
    life: VerbLife,
) -> None:
    life.begin(["latest", "totals"], 2, "memory")
    life.batch(ROWS, right=False)
    old = life.drafts[0]
    life.rename_verb(0, [])
    renamed = life.drafts[0]

    def edit(inspector: StateInspector) -> None:
        with StateEditor(inspector, "ann", "") as editor:
            editor.delete("latest", ["a"], application_id=f"{OWNER}.{renamed.name}")
            editor.commit()

    life.edit(edit, [])
    new = life.begun(old, "latest", (0, 0), grouped=True)
    wanted = [new, *life.drafts[1:]]
    life.evolution = Evolution("checkpoint", rekeyed={new.name: old.name}, accept_loss=True)
    with pytest.raises(StateConflictError, match=f"edited as '{renamed.name}'") as refused:
        life.start(wanted)
    assert f"rekeyed={{'{new.name}': '{renamed.name}'}}" in str(refused.value)
    life.told[new.number] = life.told[old.number].without("a").lent(new.lent)
    life.evolution = Evolution("checkpoint", rekeyed={new.name: renamed.name}, accept_loss=True)
    for _ in range(2):
        life.start(wanted)
        life.check()
    life.batch(ROWS, right=False)
    life.check()


def test_an_edit_under_a_new_name_may_be_that_of_each_verb_of_its_shape_which_the_driver_has_not_reached(
    life: VerbLife,
) -> None:
    life.begin(["totals", "totals"], 1, "memory")
    life.batch(ROWS, right=False)
    first, said = life.drafts, life.evolution
    life.evolution = Evolution("checkpoint", renamed={first[0].name: "now"})
    life.start([replace(first[0], name="now")])
    life.edit_verb(0, None, False, [])
    life.evolution = said
    renamed = [f"renamed={{'now': '{one.name}'}}" for one in first]
    for verb in first:
        with pytest.raises(StateConflictError, match="edited as 'now'") as refused:
            life.start([verb])
        assert all(one in str(refused.value) for one in renamed)


def test_a_verb_is_edited_beside_a_new_one_that_is_to_run_where_one_is_gone(life: VerbLife) -> None:
    life.begin(["totals", "asof"], 1, "memory")
    life.batch(ROWS, right=False)
    life.rename_verb(0, [])
    life.batch(ROWS, right=False)
    life.replace_verb(1, "latest", [])
    life.edit_verb(0, None, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("how", ASOF_JOINS)
@pytest.mark.parametrize("before", ASOF_JOINS)
def test_left_rows_that_wait_go_on_in_an_as_of_join_of_another_type(
    life: VerbLife, before: JoinType, how: JoinType
) -> None:
    """The store in which they wait is called after the type."""
    life.begin(["waiting"], 3, "memory")
    life.change_match(0, before, True, 0, AsofDirection.BACKWARD, [], [])
    life.batch([Arrival(f"k{number}", 0, number) for number in range(5)], right=False)
    life.batch([Arrival(f"k{number}", 0, number) for number in range(3)], right=True)
    life.change_match(0, how, True, 0, AsofDirection.BACKWARD, [Arrival("k9", 0, 1)], [])
    life.batch([Arrival("k9", 0, 1)], right=False)
    life.check()


def test_a_verb_that_cannot_go_on_with_its_state_is_not_told_to_carry_it_over(life: VerbLife) -> None:
    life.begin(["totals"], 2, "memory")
    life.batch(ROWS, right=False)
    (draft,) = life.drafts
    windows = replace(draft, kind="windows", window=20)
    with pytest.raises(StateConflictError, match="in another shape than it has now") as told:
        life.start([windows], says=False)
    assert "carry the state over" not in str(told.value)
    with pytest.raises(StateConflictError, match="cannot go on with the rows of 'aggregate'"):
        life.start([windows])
    (line,) = re.findall(r"dropped=\[.*?\]", str(told.value))
    assert line == f"dropped=[{draft.name!r}]"
    life.evolve([life.new("windows")], [])
    life.batch(ROWS, right=False)


@pytest.mark.parametrize("into", [False, True])
def test_a_verb_begins_with_all_rows_of_a_history_that_was_longer_for_a_while(life: VerbLife, into: bool) -> None:
    late = [one._replace(late=30) for one in ROWS]
    life.begin(["asof"], 2, "memory")
    life.batch([*ROWS, late[1], late[0], late[2]], right=True)
    for _ in range(2):
        life.change_reach(0, [])
        life.batch(late, right=True)
    life.rekey_verb(0, TABLES.index("latest"), (0, 0), True, into, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("kind", ["latest", "windows", "sessions", "asof", "waiting", "corrected", "streams"])
def test_late_rows_count_under_a_history_or_grace_that_was_longer_for_a_while(life: VerbLife, kind: str) -> None:
    life.begin([kind], 2, "memory")
    for times in range(4):
        for right in (True, False):
            life.batch([Arrival(key, late, late) for key in "ab" for late in (0, 9 * times, 30)], right=right)
        life.change_reach(0, [])
        life.check()
    life.batch(ROWS, right=False)
    life.check()


@pytest.mark.parametrize("kind", ["windows", "sessions"])
def test_windows_are_others_from_the_next_time_on_after_a_longer_grace(life: VerbLife, kind: str) -> None:
    life.begin([kind], 2, "memory")
    life.batch(ROWS, right=False)
    life.change_reach(0, [])
    life.batch(ROWS, right=False)
    life.change_windows(0, 0, 0, [])
    life.batch(ROWS, right=False)
    life.check()

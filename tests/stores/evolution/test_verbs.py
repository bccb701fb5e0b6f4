"""Verbs under other names, without Spark: state goes on, and what is left open is refused with a line to write."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError, StateConflictError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.manifests.schema_log import copy_schemas, keep_schemas, kept_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.evolution.current_manifests import current_manifests, without_left_behind
from millpond.stores.evolution.evolving import Committed, Target, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared, are_alike, called_after
from millpond.stores.evolution.record import EvolutionRecord, commits_of
from millpond.stores.evolution.verbs.declarations import (
    SaidOfVerbs,
    declaration,
    has_no_place,
    holds_state,
    strangers,
    taken,
    verb_in,
)
from tests.stores.evolution.test_evolving import KEYS, Query, in_process, shape, spec


@pytest.fixture
def query(tmp_path: Path) -> Query:
    """The verb ``app``, whose state is what a query without Spark has written."""
    query = Query(tmp_path)
    query.start(shape(2, "old-state"))
    query.put(KEYS, 7)
    return query


def renamed(query: Query, partitions: int = 2) -> EvolutionRecord:
    after = shape(partitions, "new-state")
    held = list(query.checkpoint.values())
    names = called_after(shape(2, "old-state"), after, "old", "new")
    committed = Committed(query.batch, held, lambda: query.batch, commits_of(held))
    history = History.of(query.storage, "other", "new")
    target = Target(f"new/{partitions}", after, Declared(names))
    return evolve(history, committed, target, {}, in_process, anew=True, source=query.history)


def rows(query: Query, record: EvolutionRecord, partitions: int) -> dict[str, int]:
    batch = 0 if query.batch is None else query.batch
    tasks = [f"0_{place}" for place in range(partitions)]
    found = [record.start_of(task, query.checkpoint.get(place), batch + 1) for place, task in enumerate(tasks)]
    return {
        key: value
        for manifest in found
        if manifest is not None
        for key, value, _ in read_rows(query.storage, manifest, spec("new-state"))
    }


@pytest.mark.parametrize("partitions", [2, 5])
def test_state_goes_on_under_another_application_and_nothing_of_the_old_one_changes(
    query: Query, partitions: int
) -> None:
    before = {path: path.read_bytes() for path in query.directory.rglob("state/app/**/*") if path.is_file()}
    record = renamed(query, partitions)
    assert rows(query, record, partitions) == dict.fromkeys(KEYS, 7)
    assert {one.application_id for one in record.bases.values()} == {"other"}
    assert {path: path.read_bytes() for path in before} == before
    history = History.of(query.storage, "other", "new")
    assert history.newest == record
    assert history.evolved
    assert record.previous is not None
    assert record.previous.shape == query.shape


def test_what_was_renamed_is_renamed_again_from_where_it_stands(query: Query) -> None:
    query.start(shape(3, "old-state"))
    record = renamed(query)
    assert record.generation > 1
    assert rows(query, record, 2) == dict.fromkeys(KEYS, 7)


def test_tasks_of_a_verb_that_is_gone_do_not_count_once_others_go_on(query: Query) -> None:
    record, old = renamed(query), list(query.checkpoint.values())
    new = list(record.bases.values())
    assert without_left_behind(query.storage, old, query.batch) == old
    assert without_left_behind(query.storage, [*old, *new], query.batch) == new
    assert current_manifests(query.storage, [*old, *new[:1]], query.batch) != []
    assert {one.application_id for one in current_manifests(query.storage, [*old, *new[:1]], query.batch)} == {"other"}
    state = TaskState(
        [spec("new-state")],
        MemorySupplier(),
        application_id="other",
        task_id="0_0",
        local_dir=query.directory / "local",
        storage=query.storage,
        fingerprint=record.fingerprint,
    )
    with state:
        state.open(record.bases["0_0"])["new-state"].put(KEYS[0], 8)  # type: ignore[attr-defined]
        assert state.commit().application_id == "other"


def test_tasks_of_a_verb_that_had_other_partitions_before_it_got_another_name_do_not_count(query: Query) -> None:
    old = list(query.checkpoint.values())
    query.start(shape(3, "old-state"))
    new = list(renamed(query).bases.values())
    assert without_left_behind(query.storage, [*old, *new], query.batch) == new
    assert without_left_behind(query.storage, [*old, *new], query.batch, starting=True) == new


def test_a_generation_that_began_after_a_micro_batch_does_not_tell_what_was_left_behind_there(query: Query) -> None:
    held, history = list(query.checkpoint.values()), History.of(query.storage, "other", "new")
    began = EvolutionRecord(1, "new/2#1@new", shape(2, "new-state"), 3, None, commits_of(held))
    later = replace(began, generation=2, batch=6, origins=frozenset())
    history.begun("new/2", shape(2, "new-state")).keep(began).keep(later)
    files = [one.files[-1]._replace(commit=f"{one.commit}0") for one in held]
    beside = [Manifest("other", one.task_id, "new/2", one.lineage, file) for one, file in zip(held, files, strict=True)]
    assert without_left_behind(query.storage, [*held, *beside], 2) == [*held, *beside]
    assert current_manifests(query.storage, [*held, *beside], 2) == [*held, *beside]
    assert without_left_behind(query.storage, [*held, *beside], 3, starting=True) == [*held, *beside]
    assert without_left_behind(query.storage, [*held, *beside], 3) == beside
    assert without_left_behind(query.storage, [*held, *beside], 4, starting=True) == beside


def test_schemas_go_along_and_those_of_another_are_not_replaced(query: Query) -> None:
    first, second = (Schemas.first(pa.schema([("a", kind)])) for kind in (pa.int64(), pa.string()))
    keep_schemas(query.storage, "app", {"input": first})
    renamed(query)
    for _ in range(2):
        copy_schemas(query.storage, "app", "other")
    assert kept_schemas(query.storage, "other", "input") == first
    keep_schemas(query.storage, "third", {"input": second})
    with pytest.raises(StateConflictError, match="give the renamed verb a name that has no state"):
        copy_schemas(query.storage, "app", "third")


def test_stores_called_after_a_verb_get_its_name_and_others_keep_theirs() -> None:
    before, after = shape(2, "p-state", "p-timers", "latest"), shape(4, "q-state", "q-timers", "latest")
    assert called_after(before, after, "p", "q") == {"p-state": "q-state", "p-timers": "q-timers"}
    assert are_alike("p", before, "q", after)
    assert not are_alike("o", before, "q", after)
    assert called_after(before, before, "p", "q") == {}


def test_names_are_followed_back_over_releases_that_were_left_out() -> None:
    said = SaidOfVerbs({"a": "b", "b": "c", "x": "x"}, ["d"])
    assert said.former("c") == ["b", "a"]
    assert said.former("x") == said.former("new") == []
    assert said.now("a") == "c"
    assert said.gone == {"a", "b", "d"}
    assert SaidOfVerbs({"a": "b", "b": "a"}).former("a") == ["b"]
    assert said.former_of_asked("c") == ["b", "a"]


@pytest.mark.parametrize(
    ("said", "told", "rest"),
    [
        (
            SaidOfVerbs({"app": "b", "c": "d"}, ["e"]),
            "renamed says that it is 'b' now; take 'app' out of renamed",
            {"c": "d"},
        ),
        (SaidOfVerbs({"c": "d"}, ["e", "app"]), "dropped names it; take 'app' out of dropped", {"c": "d"}),
        (SaidOfVerbs(rekeyed={"b": "app"}), "begin with its rows ({'b': 'app'}); take 'app' out of rekeyed", {}),
    ],
    ids=["renamed", "dropped", "rekeyed"],
)
def test_a_verb_that_is_said_to_be_gone_goes_on_once_that_is_taken_out_and_a_new_one_begins_under_another_name(
    query: Query, said: SaidOfVerbs, told: str, rest: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told) + ", or give a new verb another name, because"):
        said.former_of_asked("app")
    taken_out = SaidOfVerbs(rest, ["e"])
    assert taken_out.former_of_asked("app") == []
    query.start(shape(3, "old-state"))
    assert query.content("old-state") == dict.fromkeys(KEYS, 7)
    assert said.former_of_asked("another") == []
    assert holds_state(query.storage, "app")
    assert not holds_state(query.storage, "another")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (({"a": "c", "b": "c"}, []), "two verbs the new name 'c'"),
        (({"a": "b"}, ["a"]), "'a' is both renamed and dropped"),
        (({"a": "b"}, ["b"]), "'b' is both renamed and dropped"),
    ],
)
def test_declarations_that_contradict_themselves_are_refused(said: tuple[dict[str, str], list[str]], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        SaidOfVerbs(*said)


def test_an_operator_is_refused_where_another_verb_has_run_unless_those_that_run_know_it() -> None:
    held = [Manifest.empty("shop.total", "0_1", "x"), Manifest.empty("shop.own", "0_1", "x")]
    assert strangers(held, ["shop.own"], []) == held[:1]
    assert strangers(held, ["shop.own"], [[], [held[0].commit]]) == []
    one, several = str(taken("shop", ["totals"], held[0])), str(taken("shop", ["a", "b"], held[0]))
    for text in (one, several):
        assert "holds the state of the verb 'total' (task '0_1') of application 'shop'" in text
        assert declaration(None, dropped=["total"]) in text
    assert declaration(None, {"total": "totals"}) in one
    assert "renamed" not in several
    assert "application_id" in str(taken("shop", ["a"], Manifest.empty("other", "0_0", "x")))
    assert verb_in("shop", "shop.a.b") == "a.b"
    assert verb_in("shop", "shopping.a") is None


def test_a_verb_without_a_place_is_told_what_may_have_become_of_others() -> None:
    text = str(has_no_place("shop", "totals", ["rates", "total"], ["total"], "/c"))
    assert "holds the state of 'rates', 'total' of application 'shop', and none of the verb 'totals'" in text
    for line in (
        declaration("/c", {"total": "totals"}),
        declaration("/c", dropped=["total"]),
        declaration("/c", into="a new checkpoint"),
    ):
        assert line in text
    unlike = str(has_no_place("shop", "totals", ["rates", "total"], [], "/c"))
    assert f"if it was one of these, write {declaration('/c', {'its old name': 'totals'})}; " in unlike
    for gone in ("rates", "total"):
        assert f"if it stands where {gone!r} stood, write {declaration('/c', dropped=[gone])}; " in unlike
    alone = str(has_no_place("shop", "totals", [], [], "/c"))
    assert "no verb" in alone
    assert "dropped" not in alone


def test_state_is_there_once_a_task_has_files(query: Query) -> None:
    assert holds_state(query.storage, "app")
    assert not holds_state(query.storage, "other")
    typo = Storage.from_uri(query.directory / "typo")
    assert not holds_state(typo, "app")
    typo.put(f"{query.checkpoint[0].directory}/{'0' * 32}.pin", b"{}")
    assert not holds_state(typo, "app")

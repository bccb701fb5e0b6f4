"""Following the advice of a refusal of changed stores, as it is written: the job goes on."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.errors import ConfigurationError, StateConflictError
from millpond.stores.durability import Manifest, Storage
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.evolving import Committed
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared, conversions_to_declare, origins_of
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.layouts import Layout
from tests.stores.evolution.test_converting import KEYS, PLAIN, STAMPED, TO_VERSIONED, VERSIONED, Query
from tests.stores.evolution.test_converting import shape as shape_of
from tests.stores.evolution.test_matching import shape, store

A, B, C = map(store, "abc")
FIRST, SECOND = store("AGGREGATE-0000000003"), store("AGGREGATE-0000000007")
HISTORY = store("a", kind=StoreKind.VERSIONED)
KEPT = {"a": Origin(0, "a")}


@pytest.mark.parametrize(
    ("old", "wrong", "advice", "right", "found"),
    [
        (
            [A, B],
            ([A], Declared()),
            r"renamed=\{'old name': 'new name'\}\), or dropped=\[\.\.\.\]",
            [([A], Declared(dropped=["b"])), ([A, C], Declared({"b": "c"}))],
            KEPT,
        ),
        (
            [A],
            ([A], Declared({"a": "c"})),
            r"the stores \['a'\]; write one of them, or, .* dropped=\['a'\] in place of that \[",
            [([A], Declared({"a": "a"})), ([B], Declared(dropped=["a"]))],
            None,
        ),
        (
            [A, B],
            ([C], Declared({"a": "c", "b": "c"})),
            r"leave one of them, and name the other one in dropped=\[\.\.\.\] \[",
            [([C], Declared({"a": "c"}, ["b"])), ([C], Declared({"b": "c"}, ["a"]))],
            None,
        ),
        (
            [A],
            ([B], Declared({"a": "b"}, ["a"])),
            "'a' is both renamed and dropped; take it out of one of them \\[",
            [([B], Declared({"a": "b"})), ([B], Declared(dropped=["a"]))],
            None,
        ),
        (
            [A],
            ([A], Declared(dropped=["a"])),
            "take it out, or, to begin empty, give the store of the topology another name \\[",
            [([A], Declared()), ([B], Declared(dropped=["a"]))],
            None,
        ),
        (
            [A],
            ([B], Declared({"a": "b"}, converted={"a": "versioned"})),
            r"the stores \['b'\]; write a store by the name that it has there, or leave it out \[",
            [
                ([store("b", kind=StoreKind.VERSIONED)], Declared({"a": "b"}, converted={"b": "versioned"})),
                ([B], Declared({"a": "b"})),
            ],
            None,
        ),
        (
            [A],
            ([HISTORY], Declared(converted={"a": "key-value"})),
            r"write converted=\{'a': 'versioned'\}, or change the topology \[",
            [([HISTORY], Declared(converted={"a": "versioned"})), ([A], Declared(converted={"a": "key-value"}))],
            None,
        ),
        (
            [A],
            ([HISTORY], Declared(valid_from={"a": 5})),
            r"versioned; add converted=\{'a': 'versioned'\}, or leave it out \[",
            [([HISTORY], Declared(converted={"a": "versioned"}, valid_from={"a": 5}))],
            None,
        ),
        (
            [A],
            ([A], Declared(valid_from={"a": 5})),
            "'a', which is not declared to become versioned; leave it out \\[",
            [([A], Declared())],
            KEPT,
        ),
        (
            [FIRST, SECOND],
            ([FIRST], Declared()),
            "with the same name twice where it stayed, or dropped=",
            [([FIRST], Declared({FIRST.name: FIRST.name}, [SECOND.name]))],
            {FIRST.name: Origin(0, FIRST.name)},
        ),
        (
            [A],
            ([HISTORY], Declared()),
            r"converted=\{'a': 'versioned'\}\), or give the new one another name, and .*\(\.\.\., dropped=\['a'\]\) \[",
            [([HISTORY], Declared(converted={"a": "versioned"})), ([B], Declared(dropped=["a"]))],
            None,
        ),
        (
            [B],
            ([HISTORY], Declared({"b": "a"})),
            r"converted=\{'a': 'versioned'\}\), or take 'b' out of renamed, and .*\(\.\.\., dropped=\['b'\]\) \[",
            [([HISTORY], Declared({"b": "a"}, converted={"a": "versioned"})), ([HISTORY], Declared(dropped=["b"]))],
            None,
        ),
        (
            [store("a", value="json")],
            ([A], Declared()),
            r"give the new one another name, and drop the old one: Evolution\(\.\.\., dropped=\['a'\]\) \[",
            [([B], Declared(dropped=["a"]))],
            {},
        ),
        (
            [store("b", value="json")],
            ([A], Declared({"b": "a"})),
            r"take 'b' out of renamed, and drop the old one: Evolution\(\.\.\., dropped=\['b'\]\) \[",
            [([A], Declared(dropped=["b"]))],
            {},
        ),
        (
            [store("a", layout=Layout("x", 1), kind=StoreKind.TIMESTAMPED_KEY_VALUE)],
            ([store("a", layout=Layout("x", 1))], Declared(converted={"a": "key-value"})),
            r"another name, and drop the old one: .* dropped=\['a'\]\), without 'a' in converted \[",
            [([store("b", layout=Layout("x", 1))], Declared(dropped=["a"]))],
            {},
        ),
    ],
    ids=[
        "lost",
        "unknown-target",
        "one-target",
        "renamed-and-dropped",
        "dropped-but-there",
        "kind-of-no-store",
        "other-kind",
        "time-of-nothing",
        "time-of-a-table",
        "numbered",
        "kind",
        "kind-of-renamed",
        "value-serde",
        "value-serde-of-renamed",
        "kind-of-an-operators-rows",
    ],
)
def test_what_is_advised_for_stores_that_do_not_match_is_taken(
    old: list[StoreShape],
    wrong: tuple[list[StoreShape], Declared],
    advice: str,
    right: list[tuple[list[StoreShape], Declared]],
    found: dict[str, Origin] | None,
) -> None:
    stores, declared = wrong
    with pytest.raises(StateConflictError, match=advice):
        origins_of(shape(*old), shape(*stores), declared)
    for stores, declared in right:
        origins = origins_of(shape(*old), shape(*stores), declared)
        gone = {one.name for one in old} & set(declared.dropped)
        assert not gone & {origin.name for origin in origins.values()}
        assert len(origins) == len(old) - len(gone)
    if found is not None:
        assert origins_of(shape(*old), shape(*right[0][0]), right[0][1]) == found


def test_state_without_noted_kinds_is_converted_once_the_job_has_started_as_it_was(tmp_path: Path) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    for file in query.storage.list("app/evolution/out"):
        query.storage.delete(file.path)
    with pytest.raises(StateConflictError, match="start the job once as it was, with this release, which notes it"):
        query.start(shape_of(VERSIONED), TO_VERSIONED)
    query.start(shape_of(STAMPED))
    query.start(shape_of(VERSIONED), TO_VERSIONED)
    assert query.content() == dict.fromkeys(KEYS, ("x", 1, None))


def test_a_store_becomes_one_of_the_kinds_that_are_told(tmp_path: Path) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    advice = re.escape("give one of ['key-value', 'timestamped-key-value', 'versioned']")
    with pytest.raises(ConfigurationError, match=f"the store 'prices' becomes 'table'; {advice} \\["):
        query.start(shape_of(VERSIONED), Declared(converted={"prices": "table"}))
    query.start(shape_of(VERSIONED), TO_VERSIONED)
    assert query.content() == dict.fromkeys(KEYS, ("x", 1, None))
    query.start(shape_of(STAMPED), Declared(converted={"prices": "timestamped-key-value"}))
    assert query.content() == dict.fromkeys(KEYS, ("x", 1))
    query.start(shape_of(PLAIN), Declared(converted={"prices": "key-value"}, accept_loss=True))
    assert query.content() == dict.fromkeys(KEYS, "x")


def test_a_query_is_given_its_checkpoint_or_an_application_of_its_own_or_the_others_start_first(tmp_path: Path) -> None:
    on_spark = pytest.importorskip("millpond.adapters.spark.evolution.evolution")

    def committed(history: History, found: list[Manifest], batch: int | None) -> Committed:
        checkpoint = SimpleNamespace(location="/other", last=lambda: batch, held=lambda: (batch, {0: found}))
        return on_spark.committed_of(history, checkpoint)  # type: ignore[no-any-return]

    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    stranger = replace(next(iter(query.checkpoint.values())), application_id="stranger")
    mine = query.history(shape_of(STAMPED))
    advice = (
        "/other holds no state of application 'app', .*; give the checkpointLocation of the query for 'out', or start"
    )
    with pytest.raises(ConfigurationError, match=advice):
        committed(mine, [stranger], 3)
    found = committed(mine, list(query.checkpoint.values()), query.batch)
    assert mine.standing(found.manifests, found.batch).manifests == {one.task_id: one for one in found.manifests}
    another = History.of(query.storage, "another", "out").begun("t/2", shape_of(STAMPED))
    assert committed(another, [stranger], 3).manifests == []
    for file in query.storage.list("app/evolution/out"):
        query.storage.delete(file.path)
    added = History.of(query.storage, "app", "added").begun("added/3", shape_of(PLAIN, 3, "others"))
    with pytest.raises(ConfigurationError, match="'added' is new and the state is that of other queries, start these"):
        committed(added, [stranger], 3)
    query.start(shape_of(STAMPED))
    assert committed(added, [stranger], 3).manifests == []
    assert query.content() == dict.fromkeys(KEYS, ("x", 1))


def test_of_two_jobs_that_were_started_at_once_the_other_goes_on_when_it_is_started_after_the_first(
    tmp_path: Path,
) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    raced = History.of(query.storage, "app", "out")
    query.start(shape_of(STAMPED, 3))
    with pytest.raises(StateConflictError, match=re.escape("start one job after the other")):
        raced.keep(replace(query.record, batch=99))
    query.start(shape_of(STAMPED, 5))
    assert query.content() == dict.fromkeys(KEYS, ("x", 1))


def test_of_two_jobs_that_were_built_before_either_ran_the_other_goes_on_when_it_is_built_again(tmp_path: Path) -> None:
    storage, wider = Storage.from_uri(f"file://{tmp_path}/state?sync=false"), shape_of(STAMPED, 3)
    record = History.of(storage, "app", "out").begun("t/3", wider, keep=False).newest
    assert record is not None
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    with pytest.raises(
        StateConflictError, match=r"another shape .* build the query again, and start one after the other \["
    ):
        Beginning(storage, "app", "out", record).keep()
    query.start(wider)
    Beginning(storage, "app", "out", query.record).keep()
    assert query.content() == dict.fromkeys(KEYS, ("x", 1))


def test_a_query_goes_on_once_it_is_given_its_own_checkpoint(tmp_path: Path) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    own = query.checkpoint
    query.checkpoint = {place: replace(one, fingerprint="another/2") for place, one in own.items()}
    with pytest.raises(
        StateConflictError, match=r"state of \['another/2'\] .* give the checkpointLocation of this query \["
    ):
        query.start(shape_of(STAMPED, 3))
    query.checkpoint = own
    query.start(shape_of(STAMPED, 3))
    assert query.content() == dict.fromkeys(KEYS, ("x", 1))


def test_a_verb_is_told_of_its_own_name_and_of_the_kinds_that_its_stores_may_become() -> None:
    """Names of its stores are not those of an evolution of verbs, and it has no other names for them."""
    left, right = (store(name, kind=StoreKind.TIMESTAMPED_KEY_VALUE) for name in ("left", "right"))
    after = shape(*(replace(one, kind=StoreKind.VERSIONED) for one in (left, right)))
    declared, before = Declared(verb="tj"), shape(left, right)
    anew = r"give the verb another name, and drop this one: Evolution\(\.\.\., dropped=\['tj'\]\)"
    with pytest.raises(
        StateConflictError, match=rf"^the verb 'tj': .* converted={{'left': 'versioned'}}\), or {anew} \["
    ):
        origins_of(before, after, declared)
    kinds = conversions_to_declare(before, after)
    assert kinds == {"left": "versioned", "right": "versioned"}
    assert origins_of(before, after, replace(declared, converted=kinds)).keys() == {"left", "right"}
    told = rf"the state of the verb 'tj' has the stores \['right'\], .* now the verb has \['left'\]; .*, or {anew} \["
    with pytest.raises(StateConflictError, match=told):
        origins_of(before, shape(left), declared)
    told = told.replace("'right'", "'AGGREGATE-0000000003'")
    with pytest.raises(StateConflictError, match=told):
        origins_of(shape(left, FIRST), shape(left), declared)
    assert origins_of(before, before, declared).keys() == {"left", "right"}

"""The report on verbs before a query starts: following its line leads to a plan with nothing to write."""

import ast
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.durability.manifests.schema_log import keep_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.evolution.verbs.declarations import HeldState, SaidOfVerbs
from millpond.stores.evolution.verbs.verb_plan import NEW_PLACE, AskedVerb, EvolutionPlan, Planning, VerbChange, keys_in
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

KINDS = {
    "aggregate": ("aggregate",),
    "latest": ("latest",),
    "asof_join": ("right",),
    "table_join": ("left", "right"),
    "stream_join": ("KSTREAM-JOINTHIS-0000000004-store", "KSTREAM-JOINOTHER-0000000005-store"),
    "apply": ("{}-waiting", "{}-timers", "{}-state"),
}
"""The stores of each kind of verb."""

CHECKPOINT = "/c"


def shape(kind: str, name: str, partitions: int = 2, of: StoreKind = StoreKind.KEY_VALUE) -> Shape:
    stores = (store.format(name) for store in KINDS[kind])
    return Shape(
        partitions,
        tuple(StoreShape(0, one, of, "string", "int64", None, "string") for one in stores),
    )


def asked(kind: str, name: str, operators: int = 1) -> AskedVerb:
    return AskedVerb(shape(kind, name), ["k"], operators)


class Shop:
    """An application whose verbs have run, each in an operator of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = Storage.from_uri(place / "state")
        self.operators: dict[int, list[Manifest]] = {}

    def ran(
        self,
        kind: str,
        name: str,
        operator: int | None = None,
        of: StoreKind = StoreKind.KEY_VALUE,
        key: str = "k",
    ) -> None:
        application, own = f"shop.{name}", shape(kind, name, of=of)
        History.of(self.storage, application, name).begun("x/2", own)
        place = "right-key" if kind == "asof_join" else "input-key"
        keep_schemas(self.storage, application, {place: Schemas.first(pa.schema([(key, pa.string())]))})
        state = TaskState(
            [StoreSpec(store.name, StoreKind.KEY_VALUE, STRING, INT64) for store in own.stores],
            MemorySupplier(),
            application_id=application,
            task_id="0_0",
            local_dir=self.place / "local",
            storage=self.storage,
            fingerprint="x/2",
        )
        with state:
            for store in state.open(None).values():
                store.put("key", 1)  # type: ignore[attr-defined]
            number = len(self.operators) if operator is None else operator
            self.operators.setdefault(number, []).append(state.commit())

    def plan(self, verbs: Mapping[str, AskedVerb], said: Mapping[str, Any] | None = None, **more: Any) -> EvolutionPlan:
        given = dict(said or {})
        into = given.pop("into", None)
        planning = Planning(
            self.storage,
            "shop",
            HeldState(CHECKPOINT, 7, self.operators) if self.operators else None,
            verbs,
            SaidOfVerbs(**given),
            CHECKPOINT,
            list(verbs) if said is not None else [],
            CHECKPOINT if said is not None else None,
            into,
        )
        return replace(planning, **more).plan()

    def followed(self, verbs: Mapping[str, AskedVerb]) -> EvolutionPlan:
        """Return the plan of those who write the line that they are told."""
        return self.plan(verbs, written(self.plan(verbs).line))


def written(line: str) -> dict[str, Any]:
    """Return what a line declares."""
    (call,) = [one.value for one in ast.walk(ast.parse(f"f({line})")) if isinstance(one, ast.keyword)][:1]
    assert isinstance(call, ast.Call)
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def changes(plan: EvolutionPlan) -> dict[str, VerbChange]:
    return {row.verb: row.change for row in plan.rows}


def lines(plan: EvolutionPlan) -> Collection[str]:
    return [row.line for row in plan.rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_verb_under_another_name_is_told_from_a_new_one_and_the_line_brings_its_state_along(
    shop: Shop, kind: str
) -> None:
    shop.ran(kind, "old")
    shop.ran("aggregate" if kind == "latest" else "latest", "stays")
    verbs = {"new": asked(kind, "new"), "stays": asked("aggregate" if kind == "latest" else "latest", "stays")}
    plan = shop.plan(verbs)
    assert changes(plan) == {"new": VerbChange.RENAMED, "stays": VerbChange.GOES_ON}
    assert plan.rows[0].line == "renamed={'old': 'new'}"
    assert plan.line == "evolution=Evolution('/c', renamed={'old': 'new'})"
    after = shop.followed(verbs)
    assert changes(after) == {"new": VerbChange.CARRIED, "stays": VerbChange.GOES_ON}
    assert after.line == ""


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("latest", StoreKind.VERSIONED),
        ("table_join", StoreKind.TIMESTAMPED_KEY_VALUE),
        ("stream_join", StoreKind.WINDOW),
    ],
)
def test_a_verb_by_another_key_is_told_and_the_line_lets_it_begin_with_the_rows(
    shop: Shop, kind: str, of: StoreKind
) -> None:
    shop.ran(kind, "old", of=of)
    verbs = {"new": AskedVerb(shape(kind, "new", of=of), ["k", "other"], 1)}
    plan = shop.plan(verbs)
    assert changes(plan) == {"new": VerbChange.OTHER_KEY}
    assert plan.rows[0].line == "rekeyed={'new': 'old'}"
    assert plan.line == "evolution=Evolution('/c', rekeyed={'new': 'old'})"
    after = shop.followed(verbs)
    assert changes(after) == {"new": VerbChange.REKEYED}
    assert after.rows[0].there.startswith("old: ")
    assert after.line == ""
    assert "begins with the rows of others, as declared" in str(after)


def test_a_verb_of_another_kind_that_begins_with_the_rows_of_two_has_one_operator_less(shop: Shop) -> None:
    for name in ("lefts", "rights"):
        shop.ran("latest", name)
    said: dict[str, Any] = {"rekeyed": {"new.left": "lefts", "new.right": "rights"}}
    plan = shop.plan({"new": asked("table_join", "new")}, said)
    assert changes(plan) == {"new": VerbChange.REKEYED}
    assert plan.line == (
        "evolution=Evolution('/c', rekeyed={'new.left': 'lefts', 'new.right': 'rights'}, into='<a new checkpoint>')"
    )


def test_a_verb_in_place_of_another_kind_begins_empty_and_the_old_one_is_dropped(shop: Shop) -> None:
    shop.ran("latest", "old")
    verbs = {"new": asked("table_join", "new")}
    plan = shop.plan(verbs)
    assert changes(plan) == {"new": VerbChange.NEW, "old": VerbChange.GONE}
    assert plan.line == "evolution=Evolution('/c', dropped=['old'])"
    after = shop.followed(verbs)
    assert changes(after) == {"new": VerbChange.NEW, "old": VerbChange.DROPPED}
    assert after.line == ""


@pytest.mark.parametrize("more", [True, False])
def test_more_or_fewer_operators_take_another_checkpoint(shop: Shop, more: bool) -> None:
    shop.ran("latest", "one")
    shop.ran("aggregate", "two")
    verbs = {"one": asked("latest", "one")}
    if more:
        verbs |= {"two": asked("aggregate", "two"), "three": asked("apply", "three")}
    plan = shop.plan(verbs)
    dropped = "" if more else " dropped=['two'],"
    assert plan.line == f"evolution=Evolution('/c',{dropped} into={NEW_PLACE!r})"
    assert shop.followed(verbs).line == ""


def test_a_verb_in_the_operator_of_another_and_one_that_had_no_rows_take_no_place(shop: Shop) -> None:
    shop.ran("latest", "one")
    shop.operators[1] = []
    assert shop.plan({"one": asked("latest", "one"), "two": asked("aggregate", "two", 0)}).line == ""
    assert shop.plan({"one": asked("latest", "one"), "two": asked("aggregate", "two")}).line == ""


def test_another_shape_is_declared(shop: Shop) -> None:
    shop.ran("aggregate", "sums")
    verbs = {"sums": AskedVerb(shape("aggregate", "sums", 5), ["k"], 1)}
    plan = shop.plan(verbs)
    assert changes(plan) == {"sums": VerbChange.RESHAPED}
    assert plan.line == "evolution=Evolution('/c')"
    assert changes(shop.followed(verbs)) == {"sums": VerbChange.CARRIED}


def test_a_state_dir_without_the_state_is_told(shop: Shop, tmp_path: Path) -> None:
    shop.ran("aggregate", "sums")
    verbs = {"sums": asked("aggregate", "sums")}
    plan = shop.plan(verbs, storage=Storage.from_uri(tmp_path / "typo"))
    assert changes(plan) == {"sums": VerbChange.MISSING}
    assert lines(plan) == ["state_dir='<the one that the checkpoint was written with>'"]
    assert plan.line == ""
    assert "typo" in plan.state_dir
    assert changes(shop.plan(verbs)) == {"sums": VerbChange.GOES_ON}


def test_before_the_first_micro_batch_all_is_new_or_elsewhere(shop: Shop) -> None:
    verbs = {"sums": asked("aggregate", "sums"), "last": asked("latest", "last")}
    assert changes(shop.plan(verbs)) == {"sums": VerbChange.NEW, "last": VerbChange.NEW}
    shop.ran("aggregate", "sums")
    shop.operators.clear()
    plan = shop.plan(verbs)
    assert changes(plan) == {"sums": VerbChange.ELSEWHERE, "last": VerbChange.NEW}
    assert "has no micro-batch yet" in str(plan)


def test_the_likeliest_of_several_is_proposed_and_each_once(shop: Shop) -> None:
    for name in ("totals-by-shop", "totals-by-day"):
        shop.ran("aggregate", name)
    verbs = {name: asked("aggregate", name) for name in ("total-by-day", "total-by-shop")}
    assert written(shop.plan(verbs).line) == {
        "renamed": {"totals-by-day": "total-by-day", "totals-by-shop": "total-by-shop"}
    }
    assert shop.followed(verbs).line == ""


BOTH = {"s1": AskedVerb(shape("aggregate", "s1"), ["sym"], 1), "a1": AskedVerb(shape("aggregate", "a1"), ["acct"], 1)}
"""The verbs of two queries, under new names."""


@pytest.fixture
def queries(shop: Shop) -> Shop:
    """Two queries of one application, of which the second one is looked at: ``s`` ran in the other."""
    shop.ran("aggregate", "s", key="sym")
    shop.operators.clear()
    shop.ran("aggregate", "a", key="acct")
    return shop


def test_of_two_queries_each_verb_is_known_by_its_key_and_the_line_names_its_checkpoint(queries: Shop) -> None:
    elsewhere = {"s1": VerbChange.ELSEWHERE_IT_SEEMS, "a1": VerbChange.RENAMED}
    plan = queries.plan(BOTH)
    assert changes(plan) == elsewhere
    assert plan.line == "evolution=Evolution({'a1': '/c'}, renamed={'a': 'a1'})"
    said: dict[str, Any] = {"renamed": {"s": "s1"}}
    plan = queries.plan(BOTH, said, declared=["s1"], places={"s1": "/other"})
    assert plan.line == "evolution=Evolution({'s1': '/other', 'a1': '/c'}, renamed={'s': 's1', 'a': 'a1'})"
    said["renamed"]["a"] = "a1"
    after = queries.plan(BOTH, said, declared=["a1"], places={"s1": "/other", "a1": "/c"})
    assert changes(after) == {"s1": VerbChange.ELSEWHERE, "a1": VerbChange.CARRIED}
    assert after.line == ""


def test_what_is_declared_for_the_checkpoint_of_one_query_does_not_count_for_the_other(queries: Shop) -> None:
    said: dict[str, Any] = {"renamed": {"s": "s1", "a": "a1"}}
    plan = queries.plan(BOTH, said, declared=[], places="/other")
    assert changes(plan) == {"s1": VerbChange.ELSEWHERE, "a1": VerbChange.RENAMED}
    assert plan.line == "evolution=Evolution({'s1': '/other', 'a1': '/c'}, renamed={'s': 's1', 'a': 'a1'})"
    own = queries.plan(BOTH, said)
    assert changes(own) == {"s1": VerbChange.ELSEWHERE, "a1": VerbChange.CARRIED}
    assert own.line == ""


def test_a_plan_is_a_table_with_the_line_to_write(shop: Shop) -> None:
    shop.ran("apply", "old")
    text = str(shop.plan({"new": asked("apply", "new")}))
    head, titles, row, last = text.splitlines()
    assert "/c stands after micro-batch 7; the state_dir is" in head
    assert titles.split("  ")[0] == "verb"
    assert "old: old-state, old-timers, old-waiting by k, 2 partitions" in row
    assert "new-state, new-timers, new-waiting by k, 2 partitions" in row
    assert last == "write evolution=Evolution('/c', renamed={'old': 'new'})"
    assert str(shop.plan({"old": asked("apply", "old")})).endswith("nothing has to be written")


def test_the_key_of_a_verb_that_keeps_rows_of_its_right_side_alone_is_known(shop: Shop) -> None:
    shop.ran("asof_join", "joined")
    assert list(keys_in(shop.storage, "shop.joined", None)) == ["k"]

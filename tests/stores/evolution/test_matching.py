"""The old store that a new one continues, and what is refused, with all that a user needs to know."""

import pytest

from millpond.errors import StateConflictError
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.conversion import Conversion
from millpond.stores.evolution.matching import (
    Declared,
    conversions_to_declare,
    kept_subtopologies,
    origins_of,
    same_state,
    told_difference,
)
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.layouts import Layout


def store(
    name: str,
    subtopology: int = 0,
    *,
    kind: StoreKind = StoreKind.KEY_VALUE,
    key: str = "string",
    value: str = "int64",
    layout: Layout | None = None,
    record_key: str = "string",
) -> StoreShape:
    return StoreShape(subtopology, name, kind, key, value, layout, record_key)


def shape(*stores: StoreShape, partitions: int = 2) -> Shape:
    return Shape(partitions, stores)


def test_a_plain_store_and_its_timestamped_twin_are_the_same_state_and_other_partitions_are_not() -> None:
    before = shape(store("counts"))
    assert same_state(before, shape(store("counts", kind=StoreKind.TIMESTAMPED_KEY_VALUE)))
    assert told_difference(before, shape(store("counts"), partitions=5)) == "partitions: 2 -> 5"
    assert not same_state(before, shape(store("counts", value="json")))


def test_a_store_that_is_declared_to_become_another_kind_is_not_the_same_state_as_its_twin() -> None:
    before, after = shape(store("rates")), shape(store("prices", kind=StoreKind.TIMESTAMPED_KEY_VALUE))
    kind = {"prices": "timestamped-key-value"}
    origins = origins_of(before, after, Declared({"rates": "prices"}, converted=kind))
    conversion = Conversion(StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE)
    assert origins == {"prices": Origin(0, "rates", conversion)}
    plain = shape(store("prices"))
    assert same_state(plain, after)
    assert not same_state(plain, after, kind)
    assert same_state(after, after, kind)
    origins = origins_of(plain, after, Declared(converted=kind))
    assert kept_subtopologies(plain, after, origins) == frozenset()
    assert kept_subtopologies(plain, after, origins_of(plain, after, Declared())) == {0}
    assert origins_of(after, after, Declared(converted=kind)) == {"prices": Origin(0, "prices")}


def test_it_is_told_which_kinds_are_to_be_declared() -> None:
    before = shape(store("a"), store("b"), store("c", kind=StoreKind.SESSION), store("d"))
    after = shape(
        store("a", kind=StoreKind.VERSIONED),
        store("b", kind=StoreKind.TIMESTAMPED_KEY_VALUE),
        store("c", kind=StoreKind.VERSIONED),
    )
    assert conversions_to_declare(before, after) == {"a": "versioned"}


def test_stores_are_found_by_name_wherever_they_are_and_new_ones_have_no_origin() -> None:
    before = shape(store("counts", 0), store("sums", 1), store("gone", 1))
    after = shape(store("totals", 0), store("counts", 2), store("new", 2))
    found = origins_of(before, after, Declared({"sums": "totals"}, ["gone"]))
    assert found == {"counts": Origin(0, "counts"), "totals": Origin(1, "sums")}


def test_two_stores_may_swap_their_names() -> None:
    both = shape(store("a"), store("b"))
    assert origins_of(both, both, Declared({"a": "b", "b": "a"})) == {"a": Origin(0, "b"), "b": Origin(0, "a")}
    assert kept_subtopologies(both, both, {"a": Origin(0, "b"), "b": Origin(0, "a")}) == frozenset()


def test_a_declaration_that_stays_in_the_code_does_no_harm_once_it_is_done() -> None:
    after = shape(store("totals"))
    assert origins_of(after, after, Declared({"sums": "totals"}, ["gone"])) == {"totals": Origin(0, "totals")}


@pytest.mark.parametrize(
    ("before", "after", "declared", "message"),
    [
        ([store("a"), store("b")], [store("a")], Declared(), r"stores \['b'\], which the topology has not.*dropped="),
        ([store("a")], [store("b")], Declared({"a": "c"}), r"'a' is 'c' now, but the topology has the stores \['b'\]"),
        ([store("a"), store("b")], [store("c")], Declared({"a": "c", "b": "c"}), "two old stores the same new name"),
        ([store("a")], [store("b")], Declared({"a": "b"}, ["a"]), "both renamed and dropped"),
        ([store("a")], [store("a")], Declared({}, ["a"]), "'a', which the topology has; .* to begin empty"),
        ([store("a")], [store("a", value="json")], Declared(), "'a' cannot go on.*value serde: int64 -> json"),
        ([store("a")], [store("b", key="int64")], Declared({"a": "b"}), "rows of 'a' .key serde: string -> int64"),
        (
            [store("a")],
            [store("a", kind=StoreKind.VERSIONED)],
            Declared(),
            r"'a' is 'versioned', but .* is 'key-value'; declare .*converted=\{'a': 'versioned'\}.*dropped=\['a'\]",
        ),
        (
            [store("a", value="json")],
            [store("a", kind=StoreKind.VERSIONED)],
            Declared(),
            "kind: key-value -> versioned; value serde: json -> int64.*another name, and drop",
        ),
        (
            [store("a", value="json")],
            [store("a", kind=StoreKind.VERSIONED)],
            Declared(converted={"a": "versioned"}),
            "rows of 'a' .value serde: json -> int64.*another name, and drop",
        ),
        (
            [store("a", kind=StoreKind.WINDOW)],
            [store("a", kind=StoreKind.VERSIONED)],
            Declared(converted={"a": "versioned"}),
            "kind: window -> versioned",
        ),
        (
            [store("a", layout=Layout("x", 1), kind=StoreKind.TIMESTAMPED_KEY_VALUE)],
            [store("a", layout=Layout("x", 1))],
            Declared(converted={"a": "key-value"}),
            "kind: timestamped-key-value -> key-value",
        ),
        ([store("a")], [store("a", layout=Layout("x", 1))], Declared(), "layout: None -> "),
        (
            [store("AGGREGATE-0000000003"), store("AGGREGATE-0000000007")],
            [store("AGGREGATE-0000000003")],
            Declared(),
            r"\['AGGREGATE-0000000003', 'AGGREGATE-0000000007'\] have no names of their own",
        ),
    ],
    ids=[
        "lost",
        "unknown-target",
        "one-target",
        "renamed-and-dropped",
        "dropped-but-there",
        "value-serde",
        "key-serde",
        "kind",
        "kind-and-serde",
        "declared-kind-and-serde",
        "kind-of-windows",
        "kind-of-an-operators-rows",
        "layout",
        "numbered",
    ],
)
def test_what_would_be_lost_or_unreadable_or_is_ambiguous_is_refused(
    before: list[StoreShape], after: list[StoreShape], declared: Declared, message: str
) -> None:
    with pytest.raises(StateConflictError, match=message):
        origins_of(shape(*before), shape(*after), declared)


def test_running_numbers_are_trusted_where_all_stay_or_a_user_says_which_is_which() -> None:
    numbered = store("AGGREGATE-0000000003")
    assert origins_of(shape(numbered), shape(numbered, partitions=5), Declared())
    other = shape(store("AGGREGATE-0000000007"))
    assert origins_of(shape(numbered), other, Declared({"AGGREGATE-0000000003": "AGGREGATE-0000000007"})) == {
        "AGGREGATE-0000000007": Origin(0, "AGGREGATE-0000000003")
    }


def test_tasks_are_kept_only_where_partitions_place_stores_and_the_keys_of_records_are_what_they_were() -> None:
    before = shape(store("a", 0), store("b", 1), store("c", 2))
    after = shape(store("a", 0), store("b", 1), store("new", 1), store("c", 2, record_key="int64"))
    origins = origins_of(before, after, Declared())
    assert kept_subtopologies(before, after, origins) == {0}
    assert kept_subtopologies(before, Shape(4, before.stores), origins) == frozenset()

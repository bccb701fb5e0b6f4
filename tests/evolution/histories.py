"""Histories of a job's life: it grows, shrinks, moves and upgrades at restarts, and dies at any step of all of it."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from tests.evolution.oracle import Record
from tests.evolution.story import BACKENDS, MOST
from tests.evolution.topologies import STORES

KEYS = [f"k{number}" for number in range(8)]

_RECORD = st.builds(Record, st.sampled_from(KEYS), st.none() | st.integers(0, 99), st.integers(0, 60))
_RECORDS = st.lists(_RECORD, max_size=7)
DEATHS: Final = st.lists(st.integers(1, 30), min_size=1, max_size=2)
"""At which step each attempt dies; the one after these lives."""
WHICH = st.integers(0, 99)
SOMETIMES: Final[st.SearchStrategy[list[int]]] = st.just(list[int]()) | DEATHS
_SELDOM = st.one_of(*[st.just(list[int]())] * 9, DEATHS)
_IN_PLACE = st.sampled_from([None, UpgradeMode.IN_PLACE])
_BATCHES = st.lists(st.tuples(st.lists(_RECORD, min_size=3, max_size=7), _SELDOM), min_size=2, max_size=4)


def lived(number: int, *, derandomize: bool) -> settings:
    """Return settings of so many lives, which are the same each time if they are derandomized."""
    return settings(
        max_examples=number,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


Steps: TypeAlias = Mapping[str, tuple[int, Mapping[str, st.SearchStrategy[Any]]]]

STEPS: Final[Steps] = {
    "batch": (5, {"records": _RECORDS, "deaths": SOMETIMES}),
    "repartition": (2, {"more": st.sampled_from(range(MOST - 1, 0, -1)), "deaths": SOMETIMES}),
    "add_store": (2, {"which": WHICH, "records": _RECORDS, "deaths": SOMETIMES}),
    "drop_store": (1, {"which": WHICH, "deaths": SOMETIMES}),
    "rename_store": (1, {"which": WHICH, "deaths": SOMETIMES}),
    "convert_store": (2, {"deaths": SOMETIMES}),
    "move_stores": (1, {"deaths": SOMETIMES}),
    "change_format": (
        2,
        {"flips": st.sampled_from([True, True, False]), "checksums": st.booleans(), "upgrade_mode": _IN_PLACE},
    ),
    "upgrade_in_place": (2, {"stamped": st.booleans(), "batches": _BATCHES}),
    "roll_over": (
        1,
        {"stamped": st.booleans(), "batches": st.lists(st.tuples(_RECORDS, _SELDOM), min_size=1, max_size=2)},
    ),
    "restart": (1, {"upgrade_mode": _IN_PLACE, "exclusive": st.booleans()}),
    "switch_backend": (1, {"which": WHICH}),
    "lose_the_machine": (1, {}),
    "set_back": (2, {"which": WHICH, "deaths": SOMETIMES}),
    "edit_store": (
        2,
        {"which": WHICH, "undone": st.booleans(), "deaths": SOMETIMES},
    ),
    "erase_key": (1, {"key": st.sampled_from(KEYS), "deaths": SOMETIMES}),
    "collect_garbage": (1, {}),
    "verify": (1, {}),
}
"""What can happen: how likely it is, and how."""

OFTEN: Final = frozenset(
    {
        "killed in a batch",
        "killed while carrying over",
        "a row was deleted",
        "a row was brought back",
        "a key was erased",
        "a backfill",
        "more partitions",
        "fewer partitions",
        "a store came empty",
        "a store came with seeds",
        "a store went",
        "a store has another name",
        "a store is of another kind",
        "switch_backend",
        "another format offline",
        "a downgrade",
        "changed over to what was prepared",
        "changed over to what was warmed",
    }
)
"""What comes of steps and happens in a tenth of the histories, more or less; and never in less than a twentieth."""

SELDOM: Final = frozenset(
    {
        "killed in a backfill",
        "killed in an edit",
        "at a new checkpoint",
        "upgrade offline",
        "upgrade in place",
        "upgrade by roll over",
        "downgrade offline",
        "downgrade in place",
        "downgrade in the middle of an upgrade",
        "a downgrade was refused",
        "other checksums",
        "prepared",
        "switch to memory",
        "switch to lmdb",
        "switch to rocksdb",
    }
)
"""What else comes of them."""

BEGINNINGS: Final = st.fixed_dictionaries(
    {
        "stores": st.sets(st.sampled_from(STORES), min_size=1, max_size=4).filter(lambda chosen: chosen != {"kinds"}),
        "partitions": st.integers(1, 3),
        "moved": st.booleans(),
        "stamped": st.sampled_from([False, False, True]),
        "versioned": st.booleans(),
        "backend": st.sampled_from(BACKENDS),
        "exclusive": st.booleans(),
        "history": st.none() | _RECORDS,
        "deaths": SOMETIMES,
    }
)


Happening: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a step, and how it happens."""


def step(steps: Steps) -> st.SearchStrategy[Happening]:
    """Return one of the steps, each as likely as it is said to be."""
    named = [
        st.tuples(st.just(name), st.fixed_dictionaries(dict(how)))
        for name, (weight, how) in steps.items()
        for _ in range(weight)
    ]
    return st.one_of(named)


HISTORIES: Final = st.lists(step(STEPS), min_size=10, max_size=20)

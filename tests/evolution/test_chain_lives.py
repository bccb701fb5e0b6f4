"""A chain of verbs in one operator grows, shrinks, moves and dies, and goes on as if it had always been what it is."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.spark import Evolution
from millpond.errors import StateConflictError
from tests.evolution.chain_life import PARTITIONS, ChainLife
from tests.evolution.histories import DEATHS, KEYS, SOMETIMES, WHICH, Steps, lived, step
from tests.evolution.story import BACKENDS

_ROWS = st.lists(st.tuples(st.sampled_from(KEYS[:5]), st.none() | st.integers(0, 99)), max_size=6)
_CHANGE = {"which": WHICH, "deaths": SOMETIMES}
_MOVING = {**_CHANGE, "into": st.booleans()}
STEPS: Final[Steps] = {
    "batch": (7, {"rows": _ROWS, "deaths": st.just([]) | st.lists(st.integers(0, 16), min_size=1, max_size=2)}),
    "rename_verb": (3, _CHANGE),
    "add_verb": (3, _MOVING),
    "drop_verb": (2, _MOVING),
    "repartition": (1, {"more": st.integers(1, PARTITIONS - 1), "deaths": DEATHS}),
    "restart": (1, {"says": st.booleans()}),
    "switch_backend": (1, {"which": WHICH}),
    "lose_the_machine": (1, {}),
    "set_back": (2, _CHANGE),
}
HAPPENS: Final = frozenset(
    {
        "killed in a batch",
        "killed while carrying over",
        "a verb came at the end",
        "a verb came between",
        "a verb went at the end",
        "a verb went between",
        "went back",
    }
)
"""What comes of steps."""
BEGINNINGS: Final = st.fixed_dictionaries(
    {"verbs": st.integers(2, 4), "partitions": st.integers(1, PARTITIONS), "backend": st.sampled_from(BACKENDS)}
)


def lives(number: int, *, derandomize: bool) -> Counter[str]:
    """Run so many of them; what has happened."""
    seen = Counter[str]()

    @lived(number, derandomize=derandomize)
    @given(BEGINNINGS, st.lists(step(STEPS), min_size=12, max_size=25))
    def live(beginning: Mapping[str, Any], history: Sequence[Any]) -> None:
        with ChainLife() as life:
            life.begin(**beginning)
            for name, how in history:
                life.step(name, how)
            life.check()
        seen.update(life.seen)

    live()
    return seen


def test_a_chain_in_one_operator_may_change_and_die_in_every_way() -> None:
    seen = lives(8, derandomize=True)
    assert STEPS.keys() | HAPPENS <= seen.keys(), seen


@pytest.mark.rest
def test_so_may_a_hundred_chains() -> None:
    """The same lives each time; with ``make soak`` others."""
    assert STEPS.keys() | HAPPENS <= lives(120, derandomize="MILLPOND_SOAK_SECONDS" not in os.environ).keys()


def test_a_verb_finds_the_one_before_it_under_another_name_of_which_nothing_is_said_any_more() -> None:
    """It has been renamed before anything came to the checkpoint at which the chain goes on."""
    with ChainLife() as life:
        life.begin(2, 2, "memory")
        life.batch([("k0", 1), ("k1", 2)])
        life.add_verb(0, True, [])
        for number in range(2):
            life.rename_verb(0, [])
            life.evolution = Evolution("checkpoint")
            life.restart(says=bool(number))
        life.batch([("k0", 3)])
        life.restart(says=False)
        life.check()


def test_so_it_does_if_no_row_had_come_yet() -> None:
    with ChainLife() as life:
        life.begin(2, 1, "memory")
        life.batch([])
        life.add_verb(0, True, [])
        life.batch([])
        life.rename_verb(0, [])
        life.restart(says=False)
        life.batch([("k0", 1)])
        life.restart(says=False)
        life.check()


@pytest.mark.parametrize("change", ["add_verb", "drop_verb"])
def test_between_two_verbs_of_an_operator_none_comes_or_goes_but_at_another_checkpoint(change: str) -> None:
    with ChainLife() as life:
        life.begin(3, 2, "memory")
        life.batch([("k0", 1), ("k1", 2)])
        verbs = list(life.chain.items())
        (second, third) = verbs[1:]
        others = [verbs[0], second, life.new(), third] if change == "add_verb" else [verbs[0], third]
        with pytest.raises(StateConflictError, match=r"'verb-3' has begun in one operator with 'verb-2', .* into="):
            life.evolve(dict(others), [])
        getattr(life, change)(1 if change == "add_verb" else 0, into=False, deaths=[])
        life.batch([("k0", 3), ("k2", 4)])
        life.check()

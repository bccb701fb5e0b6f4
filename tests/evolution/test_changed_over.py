"""Results of an ``over`` come, go and have other names while rows wait and others are in reach, on each backend."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from millpond.errors import StateConflictError
from tests.evolution.verb_drafts import OVER, OVER_CALLS, Call
from tests.evolution.verb_life import Arrival, VerbLife

FUNCTIONS = list(OVER_CALLS)
KINDS = pytest.mark.parametrize("kind", OVER)


@pytest.fixture
def life() -> Iterator[VerbLife]:
    with VerbLife() as life:
        yield life


def rows(first: int) -> list[Arrival]:
    """Return twelve rows of three keys; half of them come out before the next ones come."""
    values = ((first + number) * 7 % 11 for number in range(12))
    return [Arrival("abc"[number % 3], number % 4, value or None) for number, value in enumerate(values)]


@KINDS
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_any_result_comes_and_has_another_place_and_name_and_goes(life: VerbLife, kind: str, backend: str) -> None:
    life.begin([kind], 2, backend)
    for number in range(3):
        life.batch(rows(number), right=False)
    for which, _ in enumerate(FUNCTIONS):
        for how in ("comes", "has another place", "has another name", "goes"):
            life.change_calls(0, how, which, [])
            life.check()
            life.batch(rows(which), right=False)
    life.check()
    assert {f"over: a call {how}" for how in ("comes", "goes", "has another name")} <= life.seen.keys()


@KINDS
def test_all_results_are_others_than_those_with_which_the_state_began(life: VerbLife, kind: str) -> None:
    life.begin([kind], 1, "memory")
    for number in range(3):
        life.batch(rows(number), right=False)
    calls = tuple(life.new_call(which, FUNCTIONS) for which, _ in enumerate(FUNCTIONS))
    life.evolve([replace(life.drafts[0], calls=calls)], [])
    for number in range(4):
        life.batch(rows(number), right=False)
        life.check()
    life.repartition(2, [])
    life.set_back(1, [])
    for number in range(3):
        life.batch(rows(number), right=False)
        life.check()


@KINDS
def test_a_result_that_becomes_another_is_refused_with_what_to_write_and_that_goes_on(
    life: VerbLife, kind: str
) -> None:
    life.begin([kind], 2, "memory")
    for number in range(3):
        life.batch(rows(number), right=False)
    draft = life.drafts[0]
    first, second = draft.calls
    told = f"'{second.name}' was lag('v', offset=2) and is sum('v'), which cannot go on with the state of the former"
    with pytest.raises(StateConflictError, match=re.escape(told)) as refused:
        life.start([replace(draft, calls=(first, replace(second, function="sum")))])
    line = f"added=['{second.name}_2'], dropped=['{second.name}']"
    assert line in str(refused.value)
    assert [FUNCTIONS.index(one.function) for one in draft.calls] == [0, 1]
    life.evolve([replace(draft, calls=(first, Call(life.number(), f"{second.name}_2", "sum")))], [])
    for number in range(4):
        life.batch(rows(number), right=False)
    life.check()

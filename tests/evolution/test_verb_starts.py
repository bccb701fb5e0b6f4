"""What drivers of queries of verbs do, step by step: deaths on the way, and verbs beside those that change."""

from collections.abc import Iterator

import pytest

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


def test_a_verb_comes_before_the_first_micro_batch_at_another_checkpoint(life: VerbLife) -> None:
    life.begin(["totals"], 1, "memory")
    life.batch(ROWS, right=False)
    life.add_verb(1, "latest", [])
    life.replace_verb(1, "windows", [])
    life.batch(ROWS, right=False)
    life.check()

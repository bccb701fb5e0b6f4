"""What drivers of queries of verbs do, step by step: deaths on the way, and verbs beside those that change."""

from collections.abc import Iterator

import pytest

from millpond.adapters.edit import StateEditor
from millpond.adapters.inspect import StateInspector
from millpond.errors import ConfigurationError
from tests.evolution.verb_job import OWNER
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
        assert f"edit that, application_id={new!r}" in str(refused.value)

    life.edit(edit_the_old, [])
    life.edit_verb(0, True, [])
    life.check()
    life.edit_verb(0, False, [])
    life.check()
    life.batch(ROWS, right=False)
    life.check()

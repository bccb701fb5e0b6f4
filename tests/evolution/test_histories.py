"""A job's life: it grows, moves, upgrades and dies at any step, and what it puts out is what the oracle says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.evolution.histories import BEGINNINGS, EVENTS, HISTORIES, STEPS, Life


def lives(histories: int, *, derandomize: bool) -> Counter[str]:
    """Run histories; what has happened in them, and how often."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=histories,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(BEGINNINGS, HISTORIES)
    def live(beginning: Mapping[str, Any], history: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        with Life(seen) as life:
            life.begin(**beginning)
            for name, how in history:
                life.step(name, how)
            life.check()
        seen["history"] += 1

    live()
    return seen


def test_a_job_may_change_and_die_in_every_way_and_goes_on_as_if_it_had_always_been_what_it_is() -> None:
    seen = lives(40, derandomize=True)
    events = {"killed in a batch", "killed while carrying over", "killed in a backfill", "prepared"}
    assert STEPS.keys() | events <= seen.keys()


@pytest.mark.long
def test_so_may_five_hundred_jobs_and_nothing_that_can_happen_is_left_out() -> None:
    seen = lives(500, derandomize=False)
    assert seen["history"] >= 500
    assert sum(seen[name] for name in STEPS) >= 12 * seen["history"]
    rare = {name: seen[name] for name in STEPS.keys() | EVENTS if seen[name] < 4}
    assert not rare, seen

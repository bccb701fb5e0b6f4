"""A job's life: it grows, moves, upgrades and dies at any step, and what it puts out is what the oracle says."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.evolution import verb_histories as verbs
from tests.evolution.histories import BEGINNINGS, HISTORIES, OFTEN, SELDOM, STEPS
from tests.evolution.life import Life
from tests.evolution.verb_life import VerbLife

LIVES: Final = 300
PARTS: Final = [20, 56, 56, 56, 56, 56]
"""So many lives of queries of verbs are in each part, so that processes share them; those of the first are long."""


class Lives(NamedTuple):
    """What has happened in some lives.

    Attributes:
        times: how often.
        lives: in how many of them.
        number: how many there were.
    """

    times: Counter[str]
    lives: Counter[str]
    number: int


def lives(kind: type[Life | VerbLife], number: int, *, derandomize: bool, part: int | None = None) -> Lives:
    """Run so many of them, which are the same each time if they are derandomized; each part has others."""
    beginnings, histories = (verbs.BEGINNINGS, verbs.HISTORIES) if kind is VerbLife else (BEGINNINGS, HISTORIES)
    if part == 0:
        histories = verbs.LONG_HISTORIES
    seen: list[Counter[str]] = []

    @settings(
        max_examples=number,
        derandomize=derandomize and part is None,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(beginnings, histories)
    def live(beginning: Mapping[str, Any], history: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        with kind() as life:
            life.begin(**beginning)
            for name, how in history:
                life.step(name, how)
            life.check()
        seen.append(life.seen)

    (seed(part)(live) if derandomize and part is not None else live)()
    times, happened = Counter[str](), Counter[str]()
    for one in seen:
        times.update(one)
        happened.update(one.keys())
    return Lives(times, happened, len(seen))


def test_a_job_may_change_and_die_in_every_way_and_goes_on_as_if_it_had_always_been_what_it_is() -> None:
    seen = lives(Life, 40, derandomize=True)
    assert STEPS.keys() | OFTEN <= seen.times.keys()


@pytest.mark.long
def test_so_may_hundreds_of_jobs_and_nothing_that_can_happen_is_left_out() -> None:
    """The same lives each time; with ``make soak`` others."""
    seen = lives(Life, LIVES, derandomize="MILLPOND_SOAK_SECONDS" not in os.environ)
    assert seen.number >= LIVES
    assert sum(seen.times[name] for name in STEPS) >= 12 * seen.number
    rare = {name: seen.lives[name] for name in OFTEN if seen.lives[name] < seen.number / 20}
    rare |= {name: seen.times[name] for name in STEPS.keys() | SELDOM if seen.times[name] < 4}
    assert not rare, seen


def test_a_query_of_verbs_may_change_and_die_in_every_way_and_goes_on_as_if_it_had_always_been_what_it_is() -> None:
    seen = lives(VerbLife, 10, derandomize=True)
    assert verbs.STEPS.keys() <= seen.times.keys()


@pytest.mark.long
@pytest.mark.parametrize("part", range(len(PARTS)))
def test_so_may_hundreds_of_queries_of_verbs_and_no_step_is_left_out(part: int) -> None:
    """The same lives each time; with ``make soak`` others."""
    seen = lives(VerbLife, PARTS[part], derandomize="MILLPOND_SOAK_SECONDS" not in os.environ, part=part)
    assert sum(PARTS) >= LIVES
    assert seen.number >= PARTS[part]
    assert sum(seen.times[name] for name in verbs.STEPS) >= (20 if part else 50) * seen.number
    assert verbs.STEPS.keys() <= seen.times.keys(), seen
    assert len(verbs.HAPPENS & seen.times.keys()) >= len(verbs.HAPPENS) * 3 // 4, seen

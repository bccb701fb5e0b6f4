"""A job's life: it grows, moves, upgrades and dies at any step, and what it puts out is what the oracle says."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from tests.evolution import verb_histories as verbs
from tests.evolution.histories import BEGINNINGS, HISTORIES, OFTEN, SELDOM, STEPS, Happening, lived
from tests.evolution.life import Life
from tests.evolution.verb_life import RELEASE, VerbLife

LIVES: Final = 300
PARTS: Final = 10
"""So many parts have the lives of queries of verbs, so that processes share them."""
RELEASES: Final = 30
"""So many has the life of each query of verbs, at least."""


class Lives(NamedTuple):
    """A record of what has happened in some lives.

    Attributes:
        times: how often.
        lives: in how many of them.
        number: how many there were.
        releases: how many there were in the life that had the fewest.
    """

    times: Counter[str]
    lives: Counter[str]
    number: int
    releases: int


def lives(kind: type[Life | VerbLife], number: int, *, derandomize: bool, part: int | None = None) -> Lives:
    """Run so many of them, which are the same each time if they are derandomized; each part has others."""
    seen: list[Counter[str]] = []

    def live_job(beginning: Mapping[str, Any], history: Sequence[Happening]) -> None:
        with Life() as life:
            life.begin(**beginning)
            for name, how in history:
                life.step(name, how)
            life.check()
        seen.append(life.seen)

    def live_query(beginning: Mapping[str, Any], data: st.DataObject) -> None:
        with VerbLife() as life:
            life.begin(**beginning)
            while life.seen[RELEASE] < RELEASES:
                life.step(*data.draw(verbs.STEP))
            life.check()
        seen.append(life.seen)

    of_kind = given(BEGINNINGS, HISTORIES)(live_job) if kind is Life else given(verbs.BEGINNINGS, st.data())(live_query)
    live = lived(number, derandomize=derandomize and part is None)(of_kind)
    (seed(part)(live) if derandomize and part is not None else live)()
    times, happened = Counter[str](), Counter[str]()
    for one in seen:
        times.update(one)
        happened.update(one.keys())
    return Lives(times, happened, len(seen), min(one[RELEASE] for one in seen))


def test_a_job_may_change_and_die_in_every_way_and_goes_on_as_if_it_had_always_been_what_it_is() -> None:
    seen = lives(Life, 20, derandomize=True)
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
    seen = lives(VerbLife, 5, derandomize=True)
    assert seen.releases >= RELEASES
    assert verbs.STEPS.keys() <= seen.times.keys()


@pytest.mark.rest
@pytest.mark.parametrize("part", [pytest.param(one, id=f"part-{one}") for one in range(PARTS)])
def test_so_may_hundreds_of_queries_of_verbs_and_no_step_is_left_out(part: int) -> None:
    """The same lives each time; with ``make soak`` others."""
    seen = lives(VerbLife, LIVES // PARTS, derandomize="MILLPOND_SOAK_SECONDS" not in os.environ, part=part)
    assert seen.number * PARTS >= LIVES
    assert seen.releases >= RELEASES
    assert verbs.STEPS.keys() <= seen.times.keys(), seen
    assert len(verbs.HAPPENS & seen.times.keys()) >= len(verbs.HAPPENS) * 3 // 4, seen

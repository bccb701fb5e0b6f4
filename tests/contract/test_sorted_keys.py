"""``SortedKeys``: any additions and removals, few or many at once, and what is between any two keys."""

from bisect import bisect_left
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.backend.memory import RUN, SortedKeys

SPAN = 6 * RUN


def key(number: int) -> bytes:
    return b"%06d" % number


def step(rng: Random, there: list[int]) -> tuple[bool, list[int]]:
    """Return whether to add, and what: all over, a range, or behind all others, one or thousands."""
    size = rng.choice([1, 3, 70, RUN // 2, 2 * RUN + 1])
    free = sorted(set(range(SPAN)) - set(there))
    if there and (not free or rng.random() < 0.5):
        first = rng.randrange(len(there))
        return False, sorted(rng.choice([there[first : first + size], rng.sample(there, min(size, len(there)))]))
    return True, sorted(rng.choice([free[-size:], free[:size], rng.sample(free, min(size, len(free)))]))


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_keys_are_those_that_were_added_and_not_removed_in_order(seed: int, steps: int) -> None:
    rng, keys, there = Random(seed), SortedKeys(), list[int]()
    for _ in range(steps):
        adds, numbers = step(rng, there)
        (keys.add if adds else keys.remove)(list(map(key, numbers)))
        there = sorted({*there, *numbers} if adds else set(there) - set(numbers))
        keys.check()
        start, stop = (rng.choice([None, rng.randrange(SPAN + 1), *there[:1], *there[-1:]]) for _ in range(2))
        low = 0 if start is None else bisect_left(there, start)
        high = len(there) if stop is None else bisect_left(there, stop)
        bounds = None if start is None else key(start), None if stop is None else key(stop)
        expected = list(map(key, there[low:high]))
        assert list(keys.between(*bounds)) == expected
        assert list(keys.between(*bounds, reverse=True)) == expected[::-1]


@pytest.mark.parametrize(
    "order", [lambda numbers: None, list.reverse, Random(1).shuffle], ids=["forward", "backward", "by chance"]
)
def test_runs_stay_as_long_as_they_should_when_keys_come_and_go_one_by_one(
    order: Callable[[list[int]], None],
) -> None:
    keys, numbers = SortedKeys(), list(range(5 * RUN))
    order(numbers)
    for number in numbers:
        keys.add([key(number)])
    keys.check()
    for number in numbers[RUN:]:
        keys.remove([key(number)])
    keys.check()
    assert list(keys.between(None, None)) == sorted(map(key, numbers[:RUN]))
    for number in numbers[:RUN]:
        keys.remove([key(number)])
    keys.check()
    assert list(keys.between(None, None)) == []

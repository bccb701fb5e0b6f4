"""The draws of the benchmark follow their distributions, as they can be counted on paper."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest

from millpond.bench.engines.distributions import THETA, Numbers, Zipfian, scattered, uniform

DRAWS = 200_000


def weights(ranks: int, theta: float = THETA) -> list[float]:
    """Return the exact shares of the ranks, by nothing but the definition."""
    each: list[float] = [1 / (rank + 1) ** theta for rank in range(ranks)]
    return [weight / sum(each) for weight in each]


def chi_square(drawn: Numbers, shares: Sequence[float]) -> float:
    """Return how far counts are from the expected ones: about the number of shares if the draws follow them."""
    counts: list[int] = np.bincount(drawn, minlength=len(shares)).tolist()
    assert len(counts) == len(shares)
    return sum((count - DRAWS * share) ** 2 / (DRAWS * share) for count, share in zip(counts, shares, strict=True))


def far(shares: int) -> float:
    """Return a bound that a chi-square of so many shares exceeds once in a million times or less often."""
    return shares + 7 * sqrt(2 * shares)


@pytest.mark.parametrize("theta", [THETA, 0.5, 1.2])
@pytest.mark.parametrize("ranks", [1, 2, 100, 1_000])
def test_zipfian_ranks_have_the_shares_of_the_definition(ranks: int, theta: float) -> None:
    drawn = Zipfian(ranks, theta).draw(np.random.default_rng(1), np.full(DRAWS, ranks))
    assert chi_square(drawn, weights(ranks, theta)) < far(ranks)


def test_another_exponent_is_told_from_the_one_that_was_drawn() -> None:
    drawn = Zipfian(100).draw(np.random.default_rng(1), np.full(DRAWS, 100))
    assert chi_square(drawn, weights(100, THETA + 0.02)) > far(100)
    assert chi_square(drawn, weights(100)) < far(100)


def test_ranks_among_more_and_more_rows_are_zipfian_among_those_that_are_there() -> None:
    below = np.where(np.arange(2 * DRAWS) % 2 == 0, 50, 80)
    drawn = Zipfian(1_000).draw(np.random.default_rng(2), below)
    assert chi_square(drawn[::2], weights(50)) < far(50)
    assert chi_square(drawn[1::2], weights(80)) < far(80)


def test_the_latest_rows_are_drawn_most_often() -> None:
    below = np.where(np.arange(2 * DRAWS) % 2 == 0, 50, 80)
    drawn = Zipfian(1_000).latest(np.random.default_rng(3), below)
    assert chi_square(drawn[::2], weights(50)[::-1]) < far(50)
    assert chi_square(drawn[1::2], weights(80)[::-1]) < far(80)


def test_uniform_numbers_are_all_as_often() -> None:
    drawn = uniform(np.random.default_rng(4), np.full(DRAWS, 1_000))
    assert chi_square(drawn, [1 / 1_000] * 1_000) < far(1_000)


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
def test_scattered_numbers_are_one_for_one(bits: int) -> None:
    assert sorted(scattered(np.arange(2**bits), bits).tolist()) == list(range(2**bits))


def test_neighbors_are_scattered_all_over() -> None:
    found = scattered(np.arange(100_000), 64)
    assert len(set(found.tolist())) == 100_000
    share = np.bincount((found >> np.uint64(58)).astype(np.int64), minlength=64) / 100_000
    assert share.min() > 0.9 / 64
    assert share.max() < 1.1 / 64

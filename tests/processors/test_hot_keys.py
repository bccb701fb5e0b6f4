"""The hot keys of a task, from a sample of each run: right in any cut, in columns and in batches."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from millpond.processors.distribution.hot_keys import HOT, LEAST, MOST, HotKeys
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records


def records(keys: list[bytes], *, columns: bool) -> Records:
    if not columns:
        return Batch(list(keys), [None] * len(keys), [0] * len(keys))
    return Columns(pa.array(keys, pa.binary()), pa.nulls(len(keys)), np.zeros(len(keys), np.int64))


def drawn(random: Random, count: int, share: float) -> list[bytes]:
    """Return keys of which one has a share of all, and the others are spread."""
    return [b"hot" if random.random() < share else f"{random.randrange(10_000)}".encode() for _ in range(count)]


def seen(random: Random, keys: list[bytes], most: int) -> dict[bytes, int]:
    hot, place = HotKeys(), 0
    while place < len(keys):
        size = random.randint(1, most)
        hot.see("in", records(keys[place : place + size], columns=random.random() < 0.5))
        place += size
    return {key: times for (_, key), times in hot.hottest().items()}


@pytest.mark.parametrize("most", [30, 500, 20_000])
@pytest.mark.parametrize("seed", range(8))
def test_a_hot_key_is_found_in_any_cut_with_about_how_often_it_is_there(seed: int, most: int) -> None:
    random = Random(seed)
    share = random.choice([0.0, 0.3, 0.5, 0.99])
    keys = drawn(random, random.randint(5_000, 20_000), share)
    found, there = seen(random, keys, most), Counter(keys)[b"hot"]
    assert set(found) == ({b"hot"} if share else set())
    assert found.get(b"hot", 0) == pytest.approx(there, abs=0.12 * len(keys))


def test_records_in_the_order_of_their_keys_are_sampled_evenly() -> None:
    keys = [b"hot"] * 3_000 + [f"{number}".encode() for number in range(3_000)]
    hot = HotKeys()
    hot.see("in", records(keys, columns=True))
    assert hot.hottest() == {("in", b"hot"): pytest.approx(3_000, rel=0.05)}
    periodic = [b"even" if number % 2 else f"{number}".encode() for number in range(6_000)]
    hot = HotKeys()
    hot.see("in", records(periodic, columns=True))
    assert hot.hottest() == {("in", b"even"): pytest.approx(3_000, rel=0.15)}


def test_of_few_records_nothing_is_told_and_of_many_hot_keys_the_hottest() -> None:
    hot = HotKeys()
    hot.see("in", records([b"hot"] * (LEAST - 1), columns=True))
    assert hot.hottest() == {}
    hot = HotKeys()
    hot.see("in", records([], columns=True))
    hot.see("in", records([f"{number % 5}".encode() for number in range(200)], columns=True))
    hot.see("other", records([b"0"] * 200, columns=False))
    assert (len(hot.hottest()), next(iter(hot.hottest().items()))) == (1, (("other", b"0"), 200))
    assert HOT > 200 / 5 / 400
    assert MOST == 3


def test_a_key_is_hot_from_an_eighth_of_all_records_on() -> None:
    for times, found in ((25, {("in", b"hot"): 25}), (24, {})):
        hot = HotKeys()
        hot.see("in", records([b"hot"] * times + [f"{number}".encode() for number in range(200 - times)], columns=True))
        assert hot.hottest() == found


def test_what_is_held_is_bounded() -> None:
    hot = HotKeys()
    for number in range(20_000):
        hot.see("in", records([f"{number}".encode(), b"hot", b"hot"], columns=False))
    assert len(hot._found) <= 1 << 12
    assert list(hot.hottest()) == [("in", b"hot")]

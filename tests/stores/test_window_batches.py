"""A window store's batch calls do what its single calls do."""

import random
from typing import Any

import pytest

from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore


def store(*, duplicates: bool = False) -> TimestampedWindowStore[str, str]:
    return TimestampedWindowStore(
        "s", Transaction(MemoryBackend()), STRING, STRING, retention=3_000, window_size=10, retain_duplicates=duplicates
    )


@pytest.mark.parametrize("seed", range(20))
def test_put_many_and_fetch_many_are_put_and_fetch_for_many(seed: int) -> None:
    chance = random.Random(seed)
    single, batched = store(), store()
    now = 0
    for _ in range(30):
        now += chance.randrange(1_000)
        puts: list[tuple[Any, ...]] = [
            (chance.choice("abc"), chance.choice(["x", "y", None]), chance.randrange(10**6), now - 10 * start)
            for start in (chance.randrange(-20, 400) for _ in range(chance.randrange(12)))
        ]
        puts.sort(key=lambda put: put[3], reverse=True)
        for put in puts:
            single.put(*put)
        batched.put_many(*([put[column] for put in puts] for column in range(4)))
        assert list(single.fetch_all()) == list(batched.fetch_all())
        assert single.observed_stream_time == batched.observed_stream_time
        keys = [chance.choice("abc") for _ in range(20)]
        starts = [now - 10 * chance.randrange(400) for _ in keys]
        assert batched.fetch_many(keys, starts) == [single.fetch(key, at) for key, at in zip(keys, starts, strict=True)]
        batched.check()


def test_with_duplicates_many_puts_are_all_kept() -> None:
    single, batched = store(duplicates=True), store(duplicates=True)
    for value in "xyz":
        single.put("k", value, 5, 10)
    batched.put_many(["k"] * 3, ["x", "y", "z"], [5] * 3, [10] * 3)
    assert list(batched.fetch_range("k")) == list(single.fetch_range("k"))
    assert batched.fetch_many(["k"], [10]) == [single.fetch("k", 10)]

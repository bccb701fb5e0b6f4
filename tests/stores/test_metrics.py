"""Figures of a micro-batch: what is added up, and whose time is measured."""

from collections.abc import Iterator

import pytest

from millpond import metrics as measuring
from millpond.metrics import Metrics, Stopwatch, StoreMetric


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands still at its only entry, in nanoseconds."""
    now = [0]
    monkeypatch.setattr(measuring, "monotonic_ns", lambda: now[0])
    return now


def test_a_stopwatch_gives_the_microseconds_of_each_lap(clock: list[int]) -> None:
    watch = Stopwatch()
    clock[0] += 2_500
    assert watch.lap() == 2
    clock[0] += 7_000
    assert (watch.lap(), watch.lap()) == (7, 0)


def test_the_time_of_blocks_adds_up_and_that_of_a_block_that_fails_does_not_count(clock: list[int]) -> None:
    def fail() -> None:
        clock[0] += 3_000
        raise KeyError

    metrics = Metrics()
    for store in ("a", "b", "a"):
        with metrics.timed(StoreMetric.ENGINE_DURATION, store):
            clock[0] += 3_000
    with pytest.raises(KeyError), metrics.timed(StoreMetric.ENGINE_DURATION, "a"):
        fail()
    assert metrics.figures == {"a:engine.duration": 6, "b:engine.duration": 3}


def test_the_time_of_items_is_that_of_making_them_and_not_of_using_them(clock: list[int]) -> None:
    def items() -> Iterator[str]:
        for item in "xyz":
            clock[0] += 5_000
            yield item
        clock[0] += 1_000

    metrics = Metrics()
    for _ in metrics.timed_each(StoreMetric.FILE_DURATION, items()):
        clock[0] += 100_000
    assert metrics.figures == {"file.duration": 16}


def test_figures_are_those_of_one_micro_batch() -> None:
    metrics = Metrics()
    metrics.add(StoreMetric.FILE_SIZE, 5)
    metrics.put(StoreMetric.COPY_SIZE, 9, "counts")
    metrics.put(StoreMetric.COPY_SIZE, 7, "counts")
    before = metrics.figures
    metrics.clear()
    metrics.add(StoreMetric.FILE_SIZE, 1)
    assert before == {"file.size": 5, "counts:copy.size": 7}
    assert metrics.figures == {"file.size": 1}

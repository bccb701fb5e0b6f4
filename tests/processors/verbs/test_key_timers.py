"""``KeyTimers``: timers are found by time and by name, and only what has changed is written."""

from collections.abc import Iterator

import pytest

from millpond.processors.verbs.key_timers import Due, KeyTimers, TimerClock, keyed_timers_spec
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction


@pytest.fixture
def transaction() -> Iterator[Transaction]:
    with Transaction(MemoryBackend()) as transaction:
        yield transaction


def timers_on(transaction: Transaction, clock: TimerClock = TimerClock.EVENT_TIME) -> KeyTimers:
    store = keyed_timers_spec("timers").open(transaction)
    return KeyTimers(store, clock)  # type: ignore[arg-type]


def test_a_timer_that_is_set_and_canceled_or_fired_within_a_run_is_never_written(transaction: Transaction) -> None:
    timers = timers_on(transaction)
    timers.load(10)
    timers.set(b"a", b"", 5)
    timers.set(b"a", b"other", 20)
    assert timers.pop(10) == Due(5, b"a", b"")
    timers.cancel(b"a", b"other")
    timers.cancel(b"b", b"")
    timers.save()
    assert transaction.changes == {}


def test_a_timer_that_is_set_again_for_its_time_is_not_written_again(transaction: Transaction) -> None:
    timers = timers_on(transaction)
    timers.set(b"a", b"", 5)
    timers.save()
    transaction.commit()
    timers.load(10)
    timers.set(b"a", b"", 7)
    timers.set(b"a", b"", 5)
    timers.save()
    assert transaction.changes == {}


def test_timers_come_by_time_then_by_key_then_by_name_stored_or_not(transaction: Transaction) -> None:
    stored = [Due(-1, b"", b""), Due(5, b"a", b"\0"), Due(5, b"a\0", b""), Due(9, b"a\0\0", b"x"), Due(10, b"a", b"z")]
    new = [Due(5, b"a", b""), Due(6, b"\xff", b"x")]
    timers = timers_on(transaction)
    for time, key, name in stored:
        timers.set(key, name, time)
    timers.save()
    assert timers.load(10) == {due.key for due in stored[:-1]}
    for time, key, name in new:
        timers.set(key, name, time)
    due = sorted([*stored[:-1], *new])
    assert [timers.pop(10) for _ in range(len(due) + 1)] == [*due, None]
    timers.save()
    assert timers.load(11) == {b"a"}
    assert timers.pop(11) == stored[-1]


def test_the_timers_of_one_clock_are_not_those_of_the_other(transaction: Transaction) -> None:
    event, wall = timers_on(transaction), timers_on(transaction, TimerClock.WALL_CLOCK)
    event.set(b"a", b"", 5)
    wall.set(b"a", b"", 6)
    event.save()
    wall.save()
    event.cancel(b"a", b"")
    event.save()
    assert event.load(10) == set()
    assert wall.load(10) == {b"a"}
    assert wall.pop(10) == Due(6, b"a", b"")

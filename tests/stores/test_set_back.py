"""Stores whose times are set back: nothing is left beyond the limit, what lies before it stays, and they go on."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.stores import INT64, STRING
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import BEYOND, DATA
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.windows.session import SessionStore
from millpond.stores.typed.windows.window import WindowStore
from millpond.stores.typed.windows.windowed import Windowed
from tests.drawing import tries

FAR = 4_102_444_800_000
RETENTION = 3000

puts = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.integers(0, 20_000), st.integers(FAR - 9000, FAR))), max_size=30
)
limits = st.integers(0, 20_000)
Seen = set[tuple[Any, ...]]


def versioned(transaction: Transaction) -> tuple[Any, Callable[[str, int], object], Callable[[], Seen]]:
    store = VersionedKeyValueStore("s", transaction, STRING, INT64, history_retention=RETENTION)
    return (
        store,
        lambda key, time: store.put(key, time, time),
        lambda: {(key, version.timestamp) for key, version in store.scan()},
    )


def windowed(transaction: Transaction) -> tuple[Any, Callable[[str, int], object], Callable[[], Seen]]:
    store = WindowStore("s", transaction, STRING, INT64, retention=RETENTION, window_size=10)
    return (
        store,
        lambda key, time: store.put(key, time, time),
        lambda: {(window.key, window.start) for window, _ in store.fetch_all()},
    )


def duplicates(transaction: Transaction) -> tuple[Any, Callable[[str, int], object], Callable[[], Seen]]:
    store = WindowStore("s", transaction, STRING, INT64, retention=RETENTION, window_size=10, retain_duplicates=True)
    return (
        store,
        lambda key, time: store.put(key, time, time),
        lambda: {(window.key, window.start) for window, _ in store.fetch_all()},
    )


def sessions(transaction: Transaction) -> tuple[Any, Callable[[str, int], object], Callable[[], Seen]]:
    store = SessionStore("s", transaction, STRING, INT64, retention=RETENTION)
    return (
        store,
        lambda key, time: store.put(Windowed(key, time - time % 10, time), time),
        lambda: {(session.key, session.end) for session, _ in store.fetch_keys()},
    )


@pytest.mark.parametrize("make", [versioned, windowed, duplicates, sessions])
@settings(max_examples=tries(40))
@given(before=puts, limit=limits, after=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20_000))))
def test_what_lies_beyond_goes_and_what_lies_before_stays(
    make: Callable[[Transaction], Any], before: list[tuple[str, int]], limit: int, after: list[tuple[str, int]]
) -> None:
    with Transaction(MemoryBackend()) as transaction:
        store, put, seen = make(transaction)
        for key, time in before:
            put(key, time)
        was, observed = seen(), store.observed_stream_time
        done = store.set_back(limit)
        assert done.moved == ({} if observed is None or observed <= limit else {"observed_stream_time": observed})
        assert store.observed_stream_time == (None if observed is None else min(observed, limit))
        assert {entry for entry in was if entry[1] <= limit} <= seen()
        assert all(time <= limit for _, time in seen())
        store.check()
        for key, time in after:
            put(key, time)
        store.check()
        # Whatever was there before is forgotten in the end.
        for time in (90_000, 99_000):
            for key in "abc":
                put(key, time)
        assert all(time >= 90_000 for _, time in seen())
        assert len(list(transaction.scan(DATA, BEYOND))) == (9 if make is versioned else 3)


def test_a_store_is_the_same_once_it_is_opened_again() -> None:
    backend = MemoryBackend()
    with Transaction(backend) as transaction:
        store, put, _ = versioned(transaction)
        put("a", 100)
        put("a", FAR)
        store.set_back(500)
        store.flush()
        transaction.commit()
    with Transaction(backend) as transaction:
        store, put, seen = versioned(transaction)
        assert (store.observed_stream_time, seen()) == (500, {("a", 100)})


def test_timestamps_of_values_are_set_back_and_unknown_ones_stay() -> None:
    with Transaction(MemoryBackend()) as transaction:
        store = TimestampedKeyValueStore("s", transaction, STRING, INT64)
        for key, timestamp in (("a", FAR), ("b", 500), ("c", -1)):
            store.put(key, 1, timestamp)
        done = store.set_back(700)
        assert (done.moved, done.retimed, done.removed) == ({}, 1, 0)
        assert [store.get(key) for key in "abc"] == [ValueAndTimestamp(1, time) for time in (700, 500, -1)]

"""Window and session stores: what random histories do not say plainly, and that expired segments do go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.serdes import STRING
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.windows.session import SessionStore
from millpond.stores.typed.windows.timestamped_session import TimestampedSessionStore
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window import WindowStore
from millpond.stores.typed.windows.windowed import Windowed


def window_store(transaction: Transaction, **options: Any) -> WindowStore[str, str]:
    return WindowStore("s", transaction, STRING, STRING, **{"retention": 4_000, "window_size": 10, **options})


def session_store(transaction: Transaction, retention: int = 4_000) -> SessionStore[str, str]:
    return SessionStore("s", transaction, STRING, STRING, retention=retention)


def data_rows(transaction: Transaction) -> int:
    return sum(1 for row, _ in transaction.scan() if row[:1] == DATA)


def test_expired_windows_are_removed_segment_by_segment(transaction: Transaction) -> None:
    store = window_store(transaction)
    for start in range(0, 100_000, 100):
        store.put("k", "v", start)
    assert data_rows(transaction) <= 60
    assert [start for start, _ in store.fetch_range("k")] == list(range(96_000, 100_000, 100))


def test_expired_sessions_are_removed_segment_by_segment(transaction: Transaction) -> None:
    store = session_store(transaction)
    for start in range(0, 100_000, 100):
        store.put(Windowed("k", start, start + 50), "v")
    assert data_rows(transaction) <= 60
    assert sum(1 for _ in store.fetch("k")) == 40


def test_reads_are_strict_to_the_millisecond(transaction: Transaction) -> None:
    store = window_store(transaction)
    store.put("k", "edge", 1_000)
    store.put("k", "kept", 1_001)
    store.put("x", "clock", 5_000)
    assert store.fetch("k", 1_000) is None
    assert list(store.fetch_range("k")) == [(1_001, "kept")]
    store.put("k", "late", 1_000)
    assert store.fetch("k", 1_000) is None


def test_the_retention_may_change_at_a_restart(transaction: Transaction) -> None:
    store = window_store(transaction)
    for start in range(0, 4_000, 100):
        store.put("k", "v", start)
    store.flush()
    longer = window_store(transaction, retention=1_000_000)
    longer.put("k", "v", 500_000)
    assert sum(1 for _ in longer.fetch_range("k")) == 41
    assert longer.fetch("k", 100) == "v"
    longer.check()
    longer.flush()
    shorter = window_store(transaction, retention=10)
    assert [window.start for window, _ in shorter.fetch_all()] == [500_000]
    shorter.put("k", "v", 500_001)
    assert data_rows(transaction) <= 2
    shorter.check()


def test_duplicates_are_told_apart_also_after_a_restart(transaction: Transaction) -> None:
    store = window_store(transaction, retain_duplicates=True)
    store.put("k", "a", 10)
    store.put("k", "a", 10)
    store.flush()
    transaction.commit()
    reopened = window_store(transaction, retain_duplicates=True)
    reopened.put("k", "b", 10)
    assert list(reopened.fetch_range("k", reverse=True)) == [(10, "b"), (10, "a"), (10, "a")]


def test_a_key_does_not_see_the_windows_of_a_key_that_it_begins(transaction: Transaction) -> None:
    store = window_store(transaction)
    for key in ("a", "a\0", "aa", ""):
        store.put(key, key, 0)
    assert [value for _, value in store.fetch_range("a")] == ["a"]
    assert {window.key for window, _ in store.fetch_keys("a", "aa")} == {"a", "a\0"}


def test_a_range_of_keys_stops_before_its_end_and_takes_it_in_where_the_end_is_the_next_key(
    transaction: Transaction,
) -> None:
    windows = window_store(transaction)
    sessions = session_store(Transaction(MemoryBackend()))
    for key in ("a", "b", "c", "c more", "d"):
        windows.put(key, "v", 100)
        sessions.put(Windowed(key, 100, 110), "v")
    for store in (windows, sessions):
        assert sorted(window.key for window, _ in store.fetch_keys("a", "c")) == ["a", "b"]
        assert sorted(window.key for window, _ in store.fetch_keys("a", "c\0")) == ["a", "b", "c"]
    assert [start for start, _ in windows.fetch_range("a", 100, 100)] == [100]


def test_timestamps_come_back_beside_the_values(transaction: Transaction) -> None:
    windows = TimestampedWindowStore("s", transaction, STRING, STRING, retention=1_000, window_size=10)
    windows.put("k", "v", 7, 0)
    assert windows.fetch("k", 0) == ValueAndTimestamp("v", 7)
    assert list(windows.fetch_all()) == [(Windowed("k", 0, 10), ValueAndTimestamp("v", 7))]


def test_sessions_keep_timestamps_too(transaction: Transaction) -> None:
    sessions = TimestampedSessionStore("s", transaction, STRING, STRING, retention=1_000)
    sessions.put(Windowed("k", 0, 5), "v", 3)
    assert sessions.fetch_session("k", 0, 5) == ValueAndTimestamp("v", 3)
    sessions.remove(Windowed("k", 0, 5))
    assert list(sessions.fetch("k")) == []


def test_find_sessions_includes_its_bounds(transaction: Transaction) -> None:
    store = session_store(transaction)
    for start, end in ((0, 10), (11, 19), (20, 30)):
        store.put(Windowed("k", start, end), f"{start}")
    assert [value for _, value in store.find_sessions("k", 10, 20)] == ["0", "11", "20"]
    assert [value for _, value in store.find_sessions("k", 11, 19)] == ["11"]
    assert [value for _, value in store.find_sessions_ended(11, 30, reverse=True)] == ["20", "11"]


def test_a_session_that_ends_before_it_starts_is_refused(transaction: Transaction) -> None:
    with pytest.raises(ConfigurationError, match="ends before it starts"):
        session_store(transaction).put(Windowed("k", 2, 1), "v")


def test_times_and_limits_may_be_datetimes_and_timedeltas(transaction: Transaction) -> None:
    store = window_store(transaction, retention=timedelta(seconds=4), window_size=timedelta(seconds=1))
    assert (store.retention, store.window_size) == (4_000, 1_000)
    store.put("k", "v", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert list(store.fetch_all(latest=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))) == [(Windowed("k", 1000, 2000), "v")]
    for options in ({"retention": -1}, {"window_size": -1}):
        with pytest.raises(ConfigurationError, match="negative"):
            window_store(transaction, **options)

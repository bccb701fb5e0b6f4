"""``VersionedKeyValueStore``: what random histories do not say plainly, and that expired versions do go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX
from millpond.stores.encoding.serdes import STRING
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.versions.read_only_versioned import VersionedRecord
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore


def open_store(transaction: Transaction, **options: Any) -> VersionedKeyValueStore[str, str]:
    return VersionedKeyValueStore("s", transaction, STRING, STRING, **{"history_retention": 10_000, **options})


def rows(transaction: Transaction, mark: bytes) -> int:
    return sum(1 for row, _ in transaction.scan() if row[:1] == mark)


def test_put_returns_what_kip_914_says(transaction: Transaction) -> None:
    store = open_store(transaction)
    assert store.put("k", "a", 10_000) == VALID_TO_UNDEFINED == -1
    assert store.put("k", "b", 9_000) == 10_000
    assert store.put("k", None, 20_000) == VALID_TO_UNDEFINED
    assert store.put("k", "c", 9_999) == NOT_PUT == -(2**63)
    assert store.put("k", "d", 10_000) == 20_000


def test_a_tombstone_at_the_time_of_the_first_version_is_remembered(transaction: Transaction) -> None:
    store = open_store(transaction)
    store.put("k", "v", 50)
    store.put("k", None, 50)
    assert store.put("k", "older", 40) == 50
    assert store.get("k") is None
    assert store.get("k", 45) == VersionedRecord("older", 40, 50)


def test_history_finds_the_version_that_is_valid_at_its_upper_bound(transaction: Transaction) -> None:
    store = open_store(transaction)
    for time in (10, 100, 200):
        store.put("k", str(time), time)
    assert [record.value for record in store.history("k", 20, 150)] == ["10", "100"]
    assert [record.value for record in store.history("k", 20, 50, reverse=True)] == ["10"]


def test_history_refuses_bounds_in_the_wrong_order(transaction: Transaction) -> None:
    with pytest.raises(ConfigurationError, match="earliest must not be after latest"):
        open_store(transaction).history("k", 2, 1)


def test_a_grace_may_be_shorter_than_the_history_but_not_longer(transaction: Transaction) -> None:
    store = open_store(transaction, grace=100)
    store.put("k", "new", 5_000)
    assert store.put("k", "late", 4_899) == NOT_PUT
    assert store.put("k", "in time", 4_900) == 5_000
    assert store.get("k", 4_950) == VersionedRecord("in time", 4_900, 5_000)
    for grace in (10_001, -1):
        with pytest.raises(ConfigurationError, match="grace"):
            open_store(transaction, grace=grace)


def test_times_and_limits_may_be_datetimes_and_timedeltas(transaction: Transaction) -> None:
    store = open_store(transaction, history_retention=timedelta(seconds=10), grace=timedelta(seconds=1))
    assert (store.history_retention, store.grace) == (10_000, 1_000)
    store.put("k", "v", datetime(1970, 1, 1, tzinfo=UTC))
    assert store.get_value("k", datetime(1970, 1, 2, tzinfo=UTC)) == "v"


def test_versions_before_1970_are_in_order(transaction: Transaction) -> None:
    store = open_store(transaction)
    store.put("k", "first", -200)
    store.put("k", "second", -100)
    assert store.get("k", -150) == VersionedRecord("first", -200, -100)
    assert store.observed_stream_time == -100


def test_expired_versions_are_removed_and_the_one_still_valid_stays(transaction: Transaction) -> None:
    store = open_store(transaction)
    for time in range(0, 100_000, 100):
        store.put("k", str(time), time)
    store.put("idle", "kept", 500)
    assert rows(transaction, DATA) < 140
    assert rows(transaction, INDEX) < 10
    assert store.get_value("k", 89_950) == "89900"


def test_a_key_that_is_never_put_again_loses_its_expired_versions_too(transaction: Transaction) -> None:
    store = open_store(transaction)
    for time in range(100):
        store.put("idle", str(time), time)
    store.put("gone", "v", 50)
    store.put("gone", None, 60)
    store.put("other", "v", 100_000)
    assert rows(transaction, DATA) == 2
    assert store.get_value("idle") == "99"
    assert store.get("gone") is None


def test_the_observed_stream_time_survives_a_restart(transaction: Transaction) -> None:
    store = open_store(transaction)
    assert store.observed_stream_time is None
    store.put("k", "v", 50_000)
    store.flush()
    transaction.commit()
    reopened = open_store(transaction)
    assert reopened.observed_stream_time == 50_000
    assert reopened.put("k", "late", 39_999) == NOT_PUT


def test_a_longer_history_at_a_restart_keeps_more_from_then_on(transaction: Transaction) -> None:
    store = open_store(transaction, history_retention=1_000)
    for time in range(0, 20_001, 1_000):
        store.put("k", str(time), time)
    store.flush()
    longer = open_store(transaction, history_retention=10_000)
    assert longer.put("k", "late", 15_500) == 18_000, "what was left at the restart, not what was forgotten"
    for time in range(21_000, 60_001, 1_000):
        longer.put("k", str(time), time)
    assert [record.timestamp for record in longer.history("k")] == list(range(50_000, 60_001, 1_000))
    assert rows(transaction, DATA) <= 14


def test_a_shorter_history_at_a_restart_hides_and_then_removes(transaction: Transaction) -> None:
    store = open_store(transaction)
    for time in range(0, 10_001, 1_000):
        store.put("k", str(time), time)
    store.flush()
    shorter = open_store(transaction, history_retention=2_000)
    assert [record.timestamp for record in shorter.history("k")] == [8_000, 9_000, 10_000]
    shorter.put("k", "next", 11_000)
    assert rows(transaction, DATA) <= 5


def test_many_lookups_seek_over_versions_that_nobody_asks_for(transaction: Transaction) -> None:
    store = open_store(transaction, history_retention=10**9)
    for time in range(1_000):
        store.put("k", str(time), time)
    times = [999, 3, 500, 500, 0, 2_000]
    expected: list[ValueAndTimestamp[str] | None] = [
        ValueAndTimestamp(str(min(time, 999)), min(time, 999)) for time in times
    ]
    assert store.get_many_as_of(["k"] * 6, times) == expected
    assert store.get_many_as_of(["x", "k"], [5, -1]) == [None, None]


def test_delete_returns_the_version_that_it_replaced(transaction: Transaction) -> None:
    store = open_store(transaction)
    store.put("k", "a", 10)
    store.put("k", "b", 50)
    assert store.delete("k", 30) == VersionedRecord("a", 10, 50)
    assert store.delete("k", 60) == VersionedRecord("b", 50, None)
    assert store.delete("k", 70) is None
    store.put("x", "x", 50_000)
    assert store.delete("k", 60) is None


def test_what_a_lookup_returns_says_when_the_version_ended(transaction: Transaction) -> None:
    store = open_store(transaction)
    store.put("k", "a", 10)
    store.put("k", "b", 50)
    assert store.get("k", 30) == VersionedRecord("a", 10, 50)
    assert store.get("k", 60) == VersionedRecord("b", 50, None)
    assert store.delete("k", 30) == VersionedRecord("a", 10, 50)


def test_the_latest_times_are_those_of_versions_and_of_deletes_that_are_remembered(transaction: Transaction) -> None:
    store = open_store(transaction)
    store.put_many(["a", "a", "b", "b"], ["1", "2", "3", None], [10, 5, 20, 30])
    assert store.latest_times(["a", "b", "c"]) == [10, 30, None]
    store.put("d", "4", 20_031)
    assert store.latest_times(["a", "b"]) == [10, None]

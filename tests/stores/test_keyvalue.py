"""``KeyValueStore`` and ``TimestampedKeyValueStore``: what random histories do not say plainly."""

from datetime import UTC, datetime

import pytest

from millpond.errors import ConfigurationError, CorruptStoreError, SerdeError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import BYTES, INT64, STRING
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore, ValueAndTimestamp


def test_a_row_is_the_mark_of_data_and_the_key(transaction: Transaction) -> None:
    KeyValueStore("s", transaction, STRING, STRING).put("a", "v")
    assert dict(transaction.changes) == {b"\x01a": b"v"}


def test_a_timestamped_value_is_eight_bytes_and_the_value(transaction: Transaction) -> None:
    TimestampedKeyValueStore("s", transaction, STRING, STRING).put("a", "v", 258)
    assert dict(transaction.changes) == {b"\x01a": b"\x00\x00\x00\x00\x00\x00\x01\x02v"}


def test_a_prefix_scan_stops_where_the_prefix_does(transaction: Transaction) -> None:
    store = KeyValueStore("s", transaction, BYTES, BYTES)
    keys = [b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
    store.put_all((key, b"") for key in keys)
    assert [key for key, _ in store.prefix_scan(b"a\xff")] == [b"a\xff", b"a\xff\xff"]
    assert [key for key, _ in store.prefix_scan(b"\xff", reverse=True)] == [b"\xff\xff", b"\xff"]
    assert [key for key, _ in store.prefix_scan(b"")] == keys


def test_a_range_of_keys_stops_before_its_end_and_takes_it_in_where_the_end_is_the_next_key(
    transaction: Transaction,
) -> None:
    texts = KeyValueStore("s", transaction, STRING, INT64)
    for number, key in enumerate(["a", "b", "c", "c more", "d"]):
        texts.put(key, number)
    assert [key for key, _ in texts.scan("a", "c")] == ["a", "b"]
    assert [key for key, _ in texts.scan("a", "c\0")] == ["a", "b", "c"]
    assert [key for key, _ in texts.scan("a", "c\0", reverse=True)] == ["c", "b", "a"]
    numbers = KeyValueStore("n", Transaction(MemoryBackend()), INT64, INT64)
    numbers.put_many([1, 2, 3, 4], [1, 2, 3, 4])
    assert [key for key, _ in numbers.scan(1, 3)] == [1, 2]
    assert [key for key, _ in numbers.scan(1, 3 + 1)] == [1, 2, 3]


def test_a_scan_shows_what_was_there_when_it_began(transaction: Transaction) -> None:
    store = KeyValueStore("s", transaction, STRING, INT64)
    store.put_many(["a", "b"], [1, 2])
    with store.scan() as scan:
        store.put("b", 3)
        store.put("c", 4)
        assert list(scan) == [("a", 1), ("b", 2)]


def test_columns_of_different_length_are_refused_and_nothing_is_put(transaction: Transaction) -> None:
    with pytest.raises(ValueError, match="than argument"):
        KeyValueStore("s", transaction, STRING, INT64).put_many(["a", "b"], [1])
    with pytest.raises(ValueError, match="than argument"):
        TimestampedKeyValueStore("s", transaction, STRING, INT64).put_many(["a", "b"], [1, 2], [0])
    assert not transaction.changes


def test_put_all_puts_nothing_when_one_value_is_refused(transaction: Transaction) -> None:
    store = KeyValueStore("s", transaction, STRING, INT64)
    with pytest.raises(SerdeError):
        store.put_all([("a", 1), ("b", "two")])  # type: ignore[list-item]
    assert not transaction.changes


def test_the_length_is_exact_while_small_and_the_engines_when_large(transaction: Transaction) -> None:
    store = KeyValueStore("s", transaction, INT64, INT64)
    store.put_many(range(1000), list(range(1000)))
    assert store.len_estimate() == 1000
    store.put_many(range(1000, 2000), list(range(1000)))
    transaction.commit()
    assert store.len_estimate() == 2000


def test_a_timestamp_may_be_a_datetime_with_a_zone_and_nothing_vague(transaction: Transaction) -> None:
    store = TimestampedKeyValueStore("s", transaction, STRING, INT64)
    store.put("a", 1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert store.get("a") == ValueAndTimestamp(1, 1000)
    for vague in (datetime(1970, 1, 1), 1.5, "1", 2**63):
        with pytest.raises(ConfigurationError):
            store.put("a", 1, vague)  # type: ignore[arg-type]


def test_a_value_too_short_for_a_timestamp_is_damage(transaction: Transaction) -> None:
    transaction.put(b"\x01a", b"1234567")
    store = TimestampedKeyValueStore("s", transaction, STRING, BYTES)
    with pytest.raises(CorruptStoreError):
        store.check()

"""Partitions are part of the durable state's meaning: those of known keys never change."""

from collections import Counter

from millpond.processors.distribution.partitions import partition_of, partitions_of


def test_partitions_of_known_keys_never_change() -> None:
    assert [partition_of(key, 7) for key in (b"", b"JFK", b"LGA", b"EWR", bytes(8))] == [0, 4, 6, 0, 4]


def test_many_keys_have_the_partitions_of_each() -> None:
    keys = [f"user-{i}".encode() for i in range(1000)]
    assert partitions_of(keys, 5).tolist() == [partition_of(key, 5) for key in keys]


def test_partitions_get_about_as_many_keys_each() -> None:
    for make in (str.encode, lambda text: int(text).to_bytes(8, "big")):
        sizes = Counter(partition_of(make(str(i)), 8) for i in range(8000))
        assert min(sizes.values()) > 800

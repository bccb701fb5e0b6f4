"""Partitions are part of the durable state's meaning: those of known keys never change."""

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.encoding.partitions import partition_of, partitions_of


def test_partitions_of_known_keys_never_change() -> None:
    assert [partition_of(key, 7) for key in (b"", b"JFK", b"LGA", b"EWR", bytes(8))] == [0, 4, 6, 0, 4]


@given(st.lists(st.binary(max_size=20), max_size=40), st.integers(0, 5), st.integers(1, 1 << 20))
def test_many_keys_have_the_partitions_of_each(keys: list[bytes], skipped: int, partitions: int) -> None:
    column: Any = pa.array(keys, pa.binary())
    expected = [partition_of(key, partitions) for key in keys[skipped:]]
    assert partitions_of(column.slice(skipped), partitions).tolist() == expected


def test_keys_of_very_different_lengths_have_the_partitions_of_each() -> None:
    keys = [bytes(i % 251 for i in range(length)) for length in [*range(600), 100_000, 0, 70_000] * 60]
    assert partitions_of(pa.array(keys), 1 << 20).tolist() == [partition_of(key, 1 << 20) for key in keys]


def test_partitions_get_about_as_many_keys_each() -> None:
    for make in (str.encode, lambda text: int(text).to_bytes(8, "big")):
        sizes = Counter(partition_of(make(str(i)), 8) for i in range(8000))
        assert min(sizes.values()) > 800

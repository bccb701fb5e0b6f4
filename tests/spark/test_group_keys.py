"""Group keys are part of the durable state's meaning: their values never change."""

from collections import Counter

import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.operator.group_keys import group_keys, spark_hash


def test_hash_is_that_of_spark() -> None:
    # What spark.range(4).select(hash(col("id").cast("int"))) gives.
    assert [spark_hash(i) for i in range(4)] == [933211791, -559580957, 1765031574, -1823081949]


def test_group_keys_never_change() -> None:
    assert group_keys([0, 1], 4) == {
        (0, 0): 12,
        (0, 1): 6,
        (0, 2): 2,
        (0, 3): 0,
        (1, 0): 13,
        (1, 1): 9,
        (1, 2): 4,
        (1, 3): 1,
    }


def test_group_keys_fall_one_to_each_shuffle_partition() -> None:
    keys = group_keys(range(3), 12)
    assert len(set(keys.values())) == 36
    for shuffle_partitions in (12, 6, 4, 3, 2, 1):
        falls = Counter(spark_hash(number) % shuffle_partitions for number in keys.values())
        assert set(falls.values()) == {36 // shuffle_partitions}

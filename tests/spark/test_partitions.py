"""Partitions and group keys are part of the durable state's meaning: their values never change."""

from collections import Counter

from millpond.processors.distribution.partitions import group_keys, partition_of, partitions_of, spark_hash


def test_partitions_of_known_keys_never_change() -> None:
    assert [partition_of(key, 7) for key in (b"", b"JFK", b"LGA", b"EWR", bytes(8))] == [0, 4, 6, 0, 4]


def test_many_keys_have_the_partitions_of_each() -> None:
    keys = [f"user-{i}".encode() for i in range(1000)]
    assert partitions_of(keys, 5).tolist() == [partition_of(key, 5) for key in keys]


def test_partitions_get_about_as_many_keys_each() -> None:
    for make in (str.encode, lambda text: int(text).to_bytes(8, "big")):
        sizes = Counter(partition_of(make(str(i)), 8) for i in range(8000))
        assert min(sizes.values()) > 800


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

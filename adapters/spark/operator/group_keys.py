"""The integers by which Spark groups a task's records.

Rule of this module: group keys are part of the durable state's meaning, because Spark keeps each task's manifest under
its group key. So they depend on nothing but their arguments: not on the process, the session or the release.
"""

from collections.abc import Iterable
from typing import Final

_MASK: Final = 0xFFFFFFFF

_SPARK_SEED: Final = 42


def group_keys(subtopologies: Iterable[int], partitions: int) -> dict[tuple[int, int], int]:
    """Return the integer that stands for each (sub-topology, partition) when Spark groups records by task.

    Spark sends a group to shuffle partition ``pmod(hash(integer), shuffle partitions)``. Plain 0, 1, 2, ... fall
    unevenly; these fall evenly wherever the number of shuffle partitions divides ``partitions``. They do not depend on
    it, because it may change. Sub-topology ``s`` takes the ``s``-th smallest integer that falls right for each
    partition, so no two tasks ever share one.
    """
    return {
        (subtopology, partition): number
        for subtopology in subtopologies
        for partition, number in enumerate(_spread(subtopology, partitions))
    }


def _spread(skip: int, partitions: int) -> list[int]:
    """Return, for each partition, the integer that falls on it after ``skip`` others did."""
    found: dict[int, int] = {}
    seen = [0] * partitions
    number = 0
    while len(found) < partitions:
        partition = spark_hash(number) % partitions
        if seen[partition] == skip:
            found[partition] = number
        seen[partition] += 1
        number += 1
    return [found[partition] for partition in range(partitions)]


def spark_hash(number: int) -> int:
    """Return Spark's ``hash(cast(number as int))``: Murmur3 (x86, 32 bits) of four bytes, as a signed integer."""
    k = (number & _MASK) * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = _SPARK_SEED ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h

"""Which partition a record belongs to.

Rule of this module: the answer is part of the durable state's meaning, so it depends on nothing but the arguments: not
on the process, the session or the release. A record's partition is ``crc32(key bytes) mod partitions`` with the CRC-32
of zlib, gzip and PNG (reflected polynomial 0xEDB88320) over the *serialized* key, read as an unsigned integer: any
language can compute it.
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one serialized key.

    >>> partition_of(b"JFK", 4)
    3
    """
    return crc32(key) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.uint32]:
    """``partition_of`` for many keys, in their order."""
    hashes = np.fromiter(map(crc32, keys), dtype=np.uint32, count=len(keys))
    return hashes % np.uint32(partitions)

"""The partition to which a record belongs.

Rule of this module: the answer is part of the durable state's meaning, so it depends on the arguments alone, and not on
the process, the session or the release. A record's partition is ``crc32(key bytes) mod partitions`` with the CRC-32 of
zlib, gzip and PNG (reflected polynomial 0xEDB88320) over the *serialized* key, read as an unsigned integer: any
language can compute it.
"""

from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

NO_KEY: Final = b""
"""The bytes that stand for the key of a record without one."""

_POLYNOMIAL: Final = np.uint32(0xEDB88320)
_BLOCK: Final = 1 << 15
"""The number of keys that take a step together: as many as keep its data in the processor's cache."""

_WORTH: Final = 256
"""The number of keys left of a block below which one call for each is cheaper than a step of all."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of one serialized key.

    >>> partition_of(b"JFK", 4)
    3
    """
    return crc32(key) % partitions


def partitions_of(keys: Any, partitions: int) -> npt.NDArray[np.uint32]:
    """Return the partitions of many keys, in their order, as ``partition_of`` does.

    Args:
        keys: an Arrow array of binary, without nulls.
        partitions: the number of partitions.

    >>> import pyarrow as pa
    >>> partitions_of(pa.array([b"JFK", b"", b"LGA"]), 4).tolist()
    [3, 0, 2]
    """
    hashes = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), _BLOCK):
        hashes[start : start + _BLOCK] = _crc32s(keys.slice(start, _BLOCK))
    return hashes % np.uint32(partitions)


def _crc32s(keys: Any) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of each key: one step for the next byte of all keys, and key by key for the few longest."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * np.dtype(np.int32).itemsize).astype(np.int64)
    octets = np.frombuffer(data or b"", np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    registers = np.full(len(keys), 0xFFFFFFFF, np.uint32)
    step = int(lengths.min())
    for at in range(step):
        registers = _stepped(registers, octets[starts + at])
    while len(longer := np.flatnonzero(lengths > step)) >= _WORTH:
        registers[longer] = _stepped(registers[longer], octets[starts[longer] + step])
        step += 1
    hashes = ~registers
    rest = memoryview(data or b"")
    for i in longer.tolist():
        hashes[i] = crc32(rest[starts[i] + step : bounds[i + 1]], int(hashes[i]))
    return hashes


def _stepped(registers: npt.NDArray[np.uint32], octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the registers of the CRC after one more byte each."""
    stepped: npt.NDArray[np.uint32] = _TABLE[(registers ^ octets) & np.uint32(0xFF)] ^ (registers >> np.uint32(8))
    return stepped


def _table() -> npt.NDArray[np.uint32]:
    """Return the registers of each byte after eight steps of one bit."""
    registers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        registers = np.where(registers & np.uint32(1), (registers >> np.uint32(1)) ^ _POLYNOMIAL, registers >> 1)
    return registers.astype(np.uint32)


_TABLE: Final = _table()

"""Murmur3, 128 bits, with Kafka Streams' seed: the hash by which a foreign-key join recognizes a stale answer.

Rule of this module: it knows bytes. Many values are hashed together, block by block, the longest first.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

HASH_SIZE: Final = 16

_HASH = struct.Struct(">QQ")

_WORTH_COLUMNS: Final = 16
_TOGETHER: Final = 4096
"""The number of values that are hashed together, so that they stay in the processor's cache."""

_MASK = (1 << 64) - 1
_SEED = 104729
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_FIRST_BYTES: Final = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks for the first bytes of a word, by their number."""


def murmur3_128(data: bytes) -> bytes:
    """Return the 128-bit Murmur3 hash by which Kafka Streams recognizes a stale response.

    >>> murmur3_128(b"hello").hex()
    '30bfb4f39919e764566aea857401d1c6'
    """
    h1 = h2 = _SEED
    whole = len(data) & ~15
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 = ((_rotl(h1 ^ _mix1(k1), 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 = ((_rotl(h2 ^ _mix2(k2), 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h1 ^= _mix1(int.from_bytes(tail[:8], "little"))
    h2 ^= _mix2(int.from_bytes(tail[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finalized(h1), _finalized(h2)
    h1 = (h1 + h2) & _MASK
    return _HASH.pack(h1, (h2 + h1) & _MASK)


def murmur3_128_many(values: Sequence[bytes]) -> list[bytes]:
    """Return ``murmur3_128`` of many values, in their order; quicker together if they are more than a few.

    >>> murmur3_128_many([b"hello"] * 20)[19].hex()
    '30bfb4f39919e764566aea857401d1c6'
    """
    if len(values) < _WORTH_COLUMNS:
        return list(map(murmur3_128, values))
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    data = np.frombuffer(b"".join(values), np.uint8)
    raw = murmur3_128_of(data, lengths.cumsum() - lengths, lengths).tobytes()
    return [raw[at : at + HASH_SIZE] for at in range(0, len(raw), HASH_SIZE)]


def murmur3_128_of(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return ``murmur3_128`` of many values that lie in ``data``: 16 bytes for each, in their order.

    Args:
        data: the bytes of all values.
        starts, lengths: the start of each value, and its length.
    """
    # A word is read at each place that it may begin at, also where it goes on beyond the last value.
    padded = np.concatenate([data, np.zeros(16, np.uint8)])
    words: npt.NDArray[np.uint64] = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    longest_first = (-lengths).argsort(kind="stable")
    hashes = np.empty((len(starts), 2), ">u8")
    for start in range(0, len(starts), _TOGETHER):
        rows = longest_first[start : start + _TOGETHER]
        hashes[rows] = _hashed(words, starts[rows], lengths[rows])
    return hashes.view(np.uint8)


def _hashed(
    words: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return two numbers for each value; the values come longest first."""
    h1 = np.full(len(starts), _SEED, np.uint64)
    h2 = h1.copy()
    whole = lengths // 16
    for block in range(int(whole[0])):
        some = int(np.count_nonzero(whole > block))
        places = starts[:some] + 16 * block
        h1[:some] = (_rotl(h1[:some] ^ _mix1(words[places]), 27) + h2[:some]) * 5 + 0x52DCE729
        h2[:some] = (_rotl(h2[:some] ^ _mix2(words[places + 8]), 31) + h1[:some]) * 5 + 0x38495AB5
    places, rest = starts + 16 * whole, lengths % 16
    sizes = lengths.astype(np.uint64)
    h1 = (h1 ^ _mix1(words[places] & _FIRST_BYTES[np.minimum(rest, 8)])) ^ sizes
    h2 = (h2 ^ _mix2(words[places + 8] & _FIRST_BYTES[np.maximum(rest - 8, 0)])) ^ sizes
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _finalized(h1), _finalized(h2)
    h1 = h1 + h2
    return np.column_stack((h1, h2 + h1))


def _rotl(value: Any, bits: int) -> Any:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix1(k1: Any) -> Any:
    return (_rotl((k1 * _C1) & _MASK, 31) * _C2) & _MASK


def _mix2(k2: Any) -> Any:
    return (_rotl((k2 * _C2) & _MASK, 33) * _C1) & _MASK


def _finalized(value: Any) -> Any:
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return value ^ (value >> 33)

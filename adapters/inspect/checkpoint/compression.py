"""The compressed forms in which Spark writes the files of its state.

Rule of this module: it knows forms by the bytes with which they begin, and nothing of what is in them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from struct import error as StructError
from typing import Any, Final, Literal

import pyarrow as pa
from xxhash import xxh32_intdigest

from millpond.errors import SparkStateError

_LZ4_MAGIC: Final = b"LZ4Block"
_LZ4_HEAD: Final = Struct("<8sBiii")
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_LZ4_SEED: Final = 0x9747B28C
_LZ4_MASK: Final = 0xFFFFFFF
"""The 28 bits of a block's checksum that lz4-java keeps."""

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEAD: Final = len(_SNAPPY_MAGIC) + 8
_SNAPPY_LENGTH: Final = Struct(">i")

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def decompressed(data: bytes) -> bytes:
    """Return the content of a stream that Spark has compressed with one of lz4, zstd and snappy.

    Raises:
        FormatError: it is compressed with something else.
        ValueError: it is damaged.
    """
    if data.startswith(_LZ4_MAGIC):
        return b"".join(_lz4_blocks(data))
    if data.startswith(_SNAPPY_MAGIC):
        return b"".join(_snappy_blocks(data))
    if data.startswith(_ZSTD_MAGIC):
        with _arrow_errors(), pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    raise SparkStateError(f"it is compressed in a form that is not known here (it begins with {data[:8].hex()})")


def _lz4_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the blocks of lz4-java's LZ4BlockOutputStream, each proved by its checksum; the last one is empty."""
    position = 0
    while position < len(data):
        try:
            magic, token, packed, size, checksum = _LZ4_HEAD.unpack_from(data, position)
        except StructError as error:
            raise ValueError("it ends within a block") from error
        start = position + _LZ4_HEAD.size
        position = start + packed
        if magic != _LZ4_MAGIC or token & 0xF0 not in (_LZ4_RAW, _LZ4_PACKED) or not 0 <= packed <= len(data) - start:
            raise ValueError("it has a damaged block")
        content = data[start:position]
        if token & 0xF0 == _LZ4_PACKED:
            content = _unpacked(content, size, "lz4_raw")
        if len(content) != size or (size and xxh32_intdigest(content, _LZ4_SEED) & _LZ4_MASK != checksum):
            raise ValueError("a block fails its checksum")
        yield content
        if not size and position < len(data):
            raise ValueError("it goes on after its end")
    if not data[-_LZ4_HEAD.size :].startswith(_LZ4_MAGIC):
        raise ValueError("it has no end")


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the blocks of snappy-java's SnappyOutputStream; each begins with its length, as snappy itself writes it."""
    position = _SNAPPY_HEAD
    while position < len(data):
        try:
            (packed,) = _SNAPPY_LENGTH.unpack_from(data, position)
        except StructError as error:
            raise ValueError("it ends within a block") from error
        start = position + _SNAPPY_LENGTH.size
        position = start + packed
        if not 0 < packed <= len(data) - start:
            raise ValueError("it has a damaged block")
        yield _unpacked(data[start:position], _length(data[start:position]), "snappy")


def _length(block: bytes) -> int:
    """Return the number with which a block of snappy begins: seven bits a byte, the lowest first."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return length
    raise ValueError("it has a block without a length")


def _unpacked(block: bytes, size: int, codec: Literal["lz4_raw", "snappy"]) -> bytes:
    if not 0 <= size < 1 << 30:
        raise ValueError(f"it has a block of {size} bytes")
    with _arrow_errors():
        unpacked: Any = pa.decompress(block, size, codec)
    return bytes(unpacked)


@contextmanager
def _arrow_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from error

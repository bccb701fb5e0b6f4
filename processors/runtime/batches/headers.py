"""Headers: the pairs of a name and bytes, in order, that a record carries beside its key and value, as in Kafka.

Rule of this module: headers are never changed, so that records and their results may share them. Their bytes, where a
store keeps them, are for each pair::

    length of the name (4 bytes, big-endian), name (UTF-8), length of the value (4 bytes; -1 for None), value
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Pairs of a name, which may repeat, and bytes or None."""

NO_HEADERS: Final[Headers] = ()

_LENGTH: Final = Struct(">i")
_NONE: Final = -1


def as_headers(pairs: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return headers as tuples, from the pairs that a user gives.

    Raises:
        TypeError: one is not a pair of a text and bytes or None.

    >>> as_headers([("trace", b"7"), ("trace", None)])
    (('trace', b'7'), ('trace', None))
    """
    return tuple(map(_pair, pairs))


def _pair(pair: Any) -> tuple[str, bytes | None]:
    try:
        name, value = pair
    except (TypeError, ValueError):
        name = value = pair
    if not isinstance(name, str) or not isinstance(value, bytes | None):
        raise TypeError(f"the header {pair!r:.200} is not a pair of a text and bytes or None; make it one")
    return name, value


def headers_to_bytes(headers: Headers) -> bytes:
    """Return the bytes of headers, as a store keeps them."""
    parts = []
    for name, value in headers:
        raw = name.encode()
        parts += [_LENGTH.pack(len(raw)), raw, _LENGTH.pack(_NONE if value is None else len(value)), value or b""]
    return b"".join(parts)


def headers_from_bytes(data: bytes) -> Headers:
    """Return the headers that have these bytes.

    Raises:
        ValueError: these are not the bytes of headers.

    >>> headers_from_bytes(headers_to_bytes((('a', b'1'), ('b', None))))
    (('a', b'1'), ('b', None))
    """
    headers = []
    offset = 0
    while offset < len(data):
        name, offset = _entry(data, offset)
        value, offset = _entry(data, offset)
        if name is None:
            raise ValueError("a header has no name")
        headers.append((name.decode(), value))
    return tuple(headers)


def _entry(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """Return the bytes that begin with their length, and where they end."""
    start = offset + _LENGTH.size
    if start > len(data):
        raise ValueError("headers end too early")
    (length,) = _LENGTH.unpack_from(data, offset)
    if length == _NONE:
        return None, start
    if length < 0 or start + length > len(data):
        raise ValueError(f"a header has {length} bytes")
    return data[start : start + length], start + length


def size_of(headers: Headers) -> int:
    """Return the size of headers in bytes, as Kafka Streams counts it: of a name, its characters."""
    return sum(len(name) + len(value or b"") for name, value in headers)

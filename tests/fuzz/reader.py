"""The definition of a fuzzed reader, and the bytes that a fuzzer changes, made of the rows of a store.

Rule of this module: it knows no reader; ``tests.fuzz.readers`` lists them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from millpond.errors import MillpondError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction

_SIZES: Final = Struct(">HH")


@dataclass(frozen=True)
class Reader:
    """Something that reads bytes which somebody else may have made.

    Attributes:
        read: takes any bytes; it returns, or raises an error below ``MillpondError``.
        seeds: bytes that it reads without any error; the fuzzer begins with them.
    """

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def framed(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return rows as one run of bytes: of each row, the lengths of key and value (2 each), key, value."""
    return b"".join(_SIZES.pack(len(key), len(value)) + key + value for key, value in entries)


def unframed(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows in any bytes; what is missing at the end is cut off."""
    position = 0
    while position + _SIZES.size <= len(data):
        key_size, value_size = _SIZES.unpack_from(data, position)
        start = position + _SIZES.size
        middle = start + key_size
        position = middle + value_size
        yield data[start:middle], data[middle:position]


def transaction_over(data: bytes) -> Transaction:
    """Return a transaction over a backend that holds the rows in ``data``."""
    backend = MemoryBackend()
    backend.write(dict(unframed(data)))
    return Transaction(backend)


def rows_of(transaction: Transaction) -> bytes:
    """Return what was written in a transaction, for ``transaction_over``; the transaction is committed."""
    transaction.commit()
    return framed(transaction.backend.scan())


def attempt(*reads: Callable[[], Any]) -> None:
    """Call each of them, whatever the others raise below ``MillpondError``; iterators are exhausted.

    Raises:
        MillpondError: the first that was raised.
    """
    errors = []
    for read in reads:
        try:
            found = read()
            if isinstance(found, Iterator):
                for _ in found:
                    pass
        except MillpondError as error:
            errors.append(error)
    if errors:
        raise errors[0]

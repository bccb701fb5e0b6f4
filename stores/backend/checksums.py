"""Rows with a checksum over key and value: the formats ``CHECKSUMMED...`` of a store's directory.

The layout, for each row of the backend, whatever it holds::

    row    key
    value  checksum (8) value

    checksum   XXH3 of 64 bits, big-endian, of the key and the value one after the other, seeded with the key's length

Rule of this module: it wraps a backend and knows neither kinds of stores nor where rows go from here. A read returns
what was written, or raises.
"""

from xxhash import xxh3_64_digest

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.converted_values import ConvertedValues


class Checksums(ConvertedValues):
    """The rows of ``engine``, each with a checksum that every read verifies.

    Reading a row that is not as it was written raises ``CorruptStoreError``.

    Args:
        engine: the backend, for keys of any length.
        store: the name of the store for errors.
    """

    def __init__(self, engine: Backend, store: str) -> None:
        super().__init__(engine)
        self._store = store

    def _stored(self, key: bytes, value: bytes) -> bytes:
        return checksummed(key, value)

    def _seen(self, key: bytes, data: bytes) -> bytes:
        value = data[8:]
        if data[:8] != xxh3_64_digest(key + value, len(key)):
            raise CorruptStoreError(f"store {self._store!r} has a row {key[:40]!r} that fails its checksum")
        return value


def checksummed(key: bytes, value: bytes) -> bytes:
    r"""Return the bytes to store at ``key`` for ``value``.

    >>> checksummed(b"\x01tea", b"3.10").hex(" ", -8)
    '86afb48af57687ef 332e3130'
    """
    return xxh3_64_digest(key + value, len(key)) + value

r"""``KeyValueStore``: one value per key.

The layout::

    row    0x01 key
    value  value

``scan`` walks in the order of the key's bytes.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX, TIME_SIZE, TIMERS, after_prefix, unterminated
from millpond.stores.typed.scans import Scan
from millpond.stores.typed.store import K, Store, V, WritableStore, column_of

MOST_COUNTED: Final = 1001
"""The number of entries above which their number is estimated."""


class ReadOnlyKeyValueStore(Store[K, V]):
    """The reading half of ``KeyValueStore``."""

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, or None."""
        if key is None:
            raise self._null_key()
        data = self._read(DATA + self._encode_key(key))
        return None if data is None else self._decode_value(data)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the value of each key, in the order of ``keys``; None where there is none. Keys may repeat."""
        found = self._read_many([DATA + key for key in self._keys_bytes(keys)])
        return column_of(self._decode_values([data for data in found if data is not None]), found)

    def scan(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> Scan[tuple[K, V]]:
        """Return the entries with ``start <= key < stop`` in the order of the keys' bytes; None leaves a side open."""
        first = DATA if start is None else DATA + self._encode_key(start)
        end = INDEX if stop is None else DATA + self._encode_key(stop)
        return self._entries(first, end, reverse)

    def prefix_scan(self, prefix: K, *, reverse: bool = False) -> Scan[tuple[K, V]]:
        """Return the entries whose keys' bytes begin with those of ``prefix``."""
        first = DATA + self._key_bytes(prefix)
        return self._entries(first, after_prefix(first), reverse)

    def len_estimate(self) -> int:
        """Return the number of entries: exact up to 1,000, with uncommitted ones; above, the engine's estimate."""
        counted = sum(1 for _ in islice(self._scan_rows(DATA, INDEX), MOST_COUNTED))
        return counted if counted < MOST_COUNTED else max(counted, self._transaction.backend.entry_count())

    def _check_row(self, row: bytes, data: bytes) -> None:
        if row.startswith(TIMERS):
            self._decode_key(unterminated(row[len(TIMERS) + TIME_SIZE :]))
            return
        if row[:1] != DATA or self._encode_key(self._decode_key(row[1:])) != row[1:]:
            raise ValueError("it is not one of this store's rows")
        self._decode_value(data)

    def _entries(self, start: bytes, stop: bytes | None, reverse: bool) -> Scan[tuple[K, V]]:
        decode_key, decode_value = self._decode_key, self._decode_value
        rows = self._scan_rows(start, stop, reverse=reverse)
        return self._scans.begin((decode_key(row[1:]), decode_value(data)) for row, data in rows)


class KeyValueStore(ReadOnlyKeyValueStore[K, V], WritableStore[K, V]):
    """One value per key.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> from millpond.stores.backend.transaction import Transaction
    >>> store = KeyValueStore("counts", Transaction(MemoryBackend()), STRING, INT64)
    >>> store.put("a", 1)
    >>> store.put("b", 2)
    >>> list(store.scan("b"))
    [('b', 2)]
    """

    @property
    def transaction(self) -> Transaction:
        """The transaction in which the store reads and writes."""
        return self._transaction

    def put(self, key: K, value: V | None) -> None:
        """Set ``key`` to ``value``; None deletes it."""
        if key is None:
            raise self._null_key()
        self._write(DATA + self._encode_key(key), None if value is None else self._encode_value(value))

    def put_many(self, keys: Iterable[K], values: Sequence[V | None]) -> None:
        """Set each of ``keys`` to the value at the same position; the last one counts if a key is repeated."""
        rows = [DATA + key for key in self._keys_bytes(keys)]
        data = column_of(self._encode_values([value for value in values if value is not None]), values)
        self._write_many(dict(zip(rows, data, strict=True)))

    def put_all(self, items: Iterable[tuple[K, V | None]]) -> None:
        """Set every key to its value, as ``put`` does, all or none of them."""
        pairs = list(items)
        self.put_many([key for key, _ in pairs], [value for _, value in pairs])

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set ``key`` to ``value`` if it has none; return the value that it had, or None."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def delete(self, key: K) -> V | None:
        """Delete ``key``; return the value that it had, or None."""
        old = self.get(key)
        if old is not None:
            self.put(key, None)
        return old

"""``TimestampedWindowStore``: a value per key and window, with its timestamp (KIP-258).

The rows are those of ``WindowStore``; the value is a timestamp (8 bytes, big-endian, signed) and the value.
"""

from collections.abc import Iterable, Sequence

from millpond.stores.encoding.times import Instant
from millpond.stores.typed.store import K, V
from millpond.stores.typed.timestamped_keyvalue import TimestampedStore, ValueAndTimestamp, pack_timestamp
from millpond.stores.typed.windows.window import ReadOnlyWindowStore, WritableWindowStore


class ReadOnlyTimestampedWindowStore(TimestampedStore[K, V], ReadOnlyWindowStore[K, ValueAndTimestamp[V]]):
    """The reading half of ``TimestampedWindowStore``, as ``ReadOnlyWindowStore``, with timestamps."""


class TimestampedWindowStore(ReadOnlyTimestampedWindowStore[K, V], WritableWindowStore[K, ValueAndTimestamp[V]]):
    """A value per key and window, with its timestamp.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.backend.transaction import Transaction
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> rows = Transaction(MemoryBackend())
    >>> store = TimestampedWindowStore("counts", rows, STRING, INT64, retention=1000, window_size=10)
    >>> store.put("a", 2, 14, 10)
    >>> list(store.fetch_all(earliest=5))
    [(Windowed(key='a', start=10, end=20), ValueAndTimestamp(value=2, timestamp=14))]
    """

    def put(self, key: K, value: V | None, timestamp: Instant, window_start: Instant) -> None:
        """Set the value of ``key`` in the window that starts then, as of ``timestamp``; the value None deletes it.

        A window that has already expired is not put. With ``retain_duplicates`` None does nothing at all.
        """
        data = None if value is None else pack_timestamp(timestamp) + self._encode_plain(value)
        self._put(key, data, window_start)

    def put_many(
        self, keys: Iterable[K], values: Sequence[V | None], timestamps: Sequence[int], window_starts: Sequence[int]
    ) -> None:
        """Put many keys, as ``put`` does, each with the items at the same position.

        Windows that another one of them causes to expire are not put.
        """
        encode = self._encode_plain
        data = [
            None if value is None else pack_timestamp(timestamp) + encode(value)
            for value, timestamp in zip(values, timestamps, strict=True)
        ]
        self._put_many(keys, data, window_starts)

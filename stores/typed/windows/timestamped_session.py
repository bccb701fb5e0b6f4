"""``TimestampedSessionStore``: a value per key and session, with its timestamp.

The rows are those of ``SessionStore``; the value is a timestamp (8 bytes, big-endian, signed) and the value.
"""

from millpond.stores.encoding.times import Instant
from millpond.stores.typed.store import K, V
from millpond.stores.typed.timestamped_keyvalue import TimestampedStore, ValueAndTimestamp, pack_timestamp
from millpond.stores.typed.windows.session import ReadOnlySessionStore, WritableSessionStore
from millpond.stores.typed.windows.windowed import Windowed


class ReadOnlyTimestampedSessionStore(TimestampedStore[K, V], ReadOnlySessionStore[K, ValueAndTimestamp[V]]):
    """The reading half of ``TimestampedSessionStore``, as ``ReadOnlySessionStore``, with timestamps."""


class TimestampedSessionStore(ReadOnlyTimestampedSessionStore[K, V], WritableSessionStore[K, ValueAndTimestamp[V]]):
    """A value per key and session, with its timestamp.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.backend.transaction import Transaction
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> store = TimestampedSessionStore("visits", Transaction(MemoryBackend()), STRING, INT64, retention=1000)
    >>> store.put(Windowed("a", 10, 30), 3, 30)
    >>> list(store.find_sessions("a", earliest_end=25, latest_start=35))
    [(Windowed(key='a', start=10, end=30), ValueAndTimestamp(value=3, timestamp=30))]
    """

    def put(self, session: Windowed[K], value: V | None, timestamp: Instant) -> None:
        """Set the value of a session as of ``timestamp``; the value None deletes it.

        A session that has already expired is not put.
        """
        self._put(session, None if value is None else pack_timestamp(timestamp) + self._encode_plain(value))

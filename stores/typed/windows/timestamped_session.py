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
    """A value per key and session, with its timestamp."""

    def put(self, session: Windowed[K], value: V | None, timestamp: Instant) -> None:
        """Set the value of a session as of ``timestamp``; the value None deletes it.

        A session that has already expired is not put.
        """
        self._put(session, None if value is None else pack_timestamp(timestamp) + self._encode_plain(value))

"""``TimestampedSessionStore``: a value per key and session, with the time at which it came.

The rows are those of ``SessionStore``; the value is a timestamp (8 bytes, big-endian, signed) and the value.
"""

from millpond.stores.serdes import Serde
from millpond.stores.times import Duration, Instant
from millpond.stores.transaction import Transaction
from millpond.stores.typed.session import ReadOnlySessionStore, WritableSessionStore
from millpond.stores.typed.store import K, V
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp, ValueAndTimestampSerde, pack_timestamp
from millpond.stores.typed.windowed import Windowed


class ReadOnlyTimestampedSessionStore(ReadOnlySessionStore[K, ValueAndTimestamp[V]]):
    """The reading half of ``TimestampedSessionStore``: what ``ReadOnlySessionStore`` does, with timestamps."""

    def __init__(
        self,
        name: str,
        transaction: Transaction,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
    ) -> None:
        super().__init__(name, transaction, key_serde, ValueAndTimestampSerde(value_serde), retention=retention)
        self._value_serde = value_serde
        self._encode_plain = value_serde.serialize


class TimestampedSessionStore(ReadOnlyTimestampedSessionStore[K, V], WritableSessionStore[K, ValueAndTimestamp[V]]):
    """A value per key and session, with its timestamp."""

    def put(self, session: Windowed[K], value: V | None, timestamp: Instant) -> None:
        """Set the value of a session as of ``timestamp``; the value None deletes it.

        A session that is expired already is not put.
        """
        self._put(session, None if value is None else pack_timestamp(timestamp) + self._encode_plain(value))

"""``UnknownTimestamps``: a directory of the format ``PLAIN`` shown as ``TIMESTAMPED``.

Rule of this module: it does as Kafka Streams' timestamped stores do on a store without timestamps. Every value that is
read has the timestamp -1, and the timestamp of a value that is written is left out.
"""

from typing import Final

from millpond.stores.backend.converted_values import ConvertedValues
from millpond.stores.encoding.keys import DATA
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE, UNKNOWN_TIMESTAMP, pack_timestamp

UNKNOWN: Final = pack_timestamp(UNKNOWN_TIMESTAMP)
"""The bytes before a value of unknown age."""


class UnknownTimestamps(ConvertedValues):
    """The rows of ``engine``, with the unknown timestamp before each value.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> engine = MemoryBackend()
    >>> UnknownTimestamps(engine).write({DATA + b"tea": pack_timestamp(5) + b"3.10"})
    >>> engine.get(DATA + b"tea")
    b'3.10'
    """

    def _stored(self, key: bytes, value: bytes) -> bytes:
        return value[TIMESTAMP_SIZE:] if key[:1] == DATA else value

    def _seen(self, key: bytes, data: bytes) -> bytes:
        return UNKNOWN + data if key[:1] == DATA else data

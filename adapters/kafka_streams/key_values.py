"""Rows of key-value stores.

::

    column family default                   key -> value
    column family keyValueWithTimestamp     key -> timestamp (8, signed) value

A timestamped store that was opened on the directory of a plain one has rows in both: Kafka Streams moves a row when it
is next used. Those that still lie in ``default`` have the timestamp -1.
"""

from millpond.adapters.kafka_streams.entries import Entry, Row, timestamped
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP


def plain_entry(row: Row) -> Entry:
    """Return the entry of a plain store."""
    return Entry(row.key, row.value, None)


def timestamped_entry(row: Row) -> Entry:
    """Return the entry of a row in ``keyValueWithTimestamp``."""
    timestamp, value = timestamped(row)
    return Entry(row.key, value, timestamp)


def untimed_entry(row: Row) -> Entry:
    """Return the entry of a timestamped store's row that still lies in ``default``."""
    return Entry(row.key, row.value, UNKNOWN_TIMESTAMP)

"""The latest versions of keys as entries that expire.

A key whose latest version has expired is gone with all of its versions once the expiry is longer ago than the history:
until then they are read as of earlier times.
"""

from collections.abc import Iterator
from typing import Final

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX, LATEST_END, TERMINATOR, unpack_time
from millpond.stores.typed.expiry import Entry, ExpiringRows
from millpond.stores.typed.versions.version_history import VersionHistory
from millpond.stores.typed.versions.version_rows import HEAD_SIZE, LIVE, VALUE_START, is_latest_row, latest_row_of

_END: Final = len(LATEST_END)


def encoded_key(row: bytes) -> bytes:
    """Return the terminated key of the row of a latest version."""
    return row[len(DATA) : -_END] + TERMINATOR


class LatestVersions(ExpiringRows):
    """The rows of the latest versions of one store.

    Args:
        transaction: the store's transaction.
        history: removes versions that nobody can see any more.
        kept: the history retention.
    """

    def __init__(self, transaction: Transaction, history: VersionHistory, kept: int) -> None:
        self._transaction = transaction
        self._history = history
        self.kept = kept

    def row_of(self, encoded_key: bytes) -> bytes:
        return latest_row_of(encoded_key)

    def encoded_key(self, row: bytes) -> bytes:
        return encoded_key(row)

    def time_of(self, data: bytes) -> int:
        return unpack_time(data)

    def has_value(self, data: bytes) -> bool:
        return data[HEAD_SIZE:VALUE_START] == LIVE

    def entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return (entry for entry in self._transaction.scan(start, INDEX) if is_latest_row(entry[0]))

    def remove(self, entry: Entry) -> None:
        self._history.remove(entry.row, entry.data)

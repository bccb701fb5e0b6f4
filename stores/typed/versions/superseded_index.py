"""The index by which superseded versions are found once no reader can see them.

The layout::

    row    0x02 bucket_end (time) key (terminated)
    value  empty

A row says: some version of the key is superseded before ``bucket_end``, or is a tombstone of before then. A key has a
row no later than for the first of its versions that can be removed one day, and none is needed for the others. Once the
history begins at a bucket's end or later, its keys are visited and its rows deleted; a key with more versions to remove
is noted again. So a put looks at no other keys than those with something to remove, and a key that is overwritten in
order has one row, however often. Times are put into coarse buckets, so that a key is visited once per bucket.
"""

from collections.abc import Callable

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import INDEX, TIME_SIZE, TIMERS, pack_time, unpack_time
from millpond.stores.encoding.times import MAX_TIME


class SupersededIndex:
    """The index of one store.

    Args:
        transaction: the store's transaction.
        bucket: the width of the buckets in milliseconds; existing rows may have another.

    Attributes:
        bucket: the width of the buckets.
        first: the end of the first bucket that has a row; code that writes rows by other means moves it.
    """

    def __init__(self, transaction: Transaction, bucket: int) -> None:
        self._transaction = transaction
        self._write = transaction.put
        self.bucket = bucket
        self.first = self._find_first()

    def add(self, encoded_key: bytes, time: int) -> None:
        """Note that a version of the key can be removed once the history begins at ``time``."""
        bucket_end = min(time - time % self.bucket + self.bucket, MAX_TIME)
        self._write(INDEX + pack_time(bucket_end) + encoded_key, b"")
        self.first = min(self.first, bucket_end)

    def expire(self, horizon: int, remove: Callable[[bytes, int], None]) -> None:
        """Call ``remove(encoded_key, horizon)`` for the keys of all buckets that lie wholly up to ``horizon``.

        There are none if ``first`` is more than ``horizon + 1``.
        """
        until = INDEX + pack_time(min(horizon + 2, MAX_TIME))
        rows = [row for row, _ in self._transaction.scan(INDEX + pack_time(self.first), until)]
        self._transaction.put_many(dict.fromkeys(rows))
        for encoded_key in {row[1 + TIME_SIZE :] for row in rows}:
            remove(encoded_key, horizon)
        self.first = self._find_first(until)

    def set_back(self, limit: int) -> None:
        """Note that no version is superseded after ``limit`` any more."""
        later = min(limit - limit % self.bucket + self.bucket, MAX_TIME)
        rows = [row for row, _ in self._transaction.scan(INDEX + pack_time(later), TIMERS)]
        self._transaction.put_many(dict.fromkeys(rows))
        for row in rows:
            self.add(row[1 + TIME_SIZE :], limit)
        self.first = self._find_first()

    def _find_first(self, start: bytes = INDEX) -> int:
        """Return the end of the first bucket that has a row; all rows are at ``start`` or behind it."""
        for row, _ in self._transaction.scan(start, TIMERS):
            return unpack_time(row, 1)
        return MAX_TIME

"""The index by which superseded versions are found once nobody can see them anymore.

The layout::

    row    0x02 bucket_end (time) key (terminated)
    value  empty

A row says: some version of the key was superseded before ``bucket_end``. Times are put into coarse buckets, so that a
key that changes often has one row per bucket, not one per version. Once the history begins at a bucket's end or later,
its keys are visited and its rows deleted. So a put looks at no other keys than those with something to remove.
"""

from collections.abc import Callable

from millpond.stores.keys import BEYOND, INDEX, TIME_SIZE, pack_time, unpack_time
from millpond.stores.times import MAX_TIME
from millpond.stores.transaction import Transaction


class SupersededIndex:
    """The index of one store.

    Args:
        transaction: the store's.
        bucket: the width of the buckets in milliseconds; it may differ from that of the rows that are there.
    """

    def __init__(self, transaction: Transaction, bucket: int) -> None:
        self._transaction = transaction
        self._write = transaction.put
        self._bucket = bucket
        self._first = self._find_first()

    def add(self, encoded_key: bytes, time: int) -> None:
        """Note that a version of the key is superseded at ``time``, if there is one before it."""
        bucket_end = min(time - time % self._bucket + self._bucket, MAX_TIME)
        self._write(INDEX + pack_time(bucket_end) + encoded_key, b"")
        if bucket_end < self._first:
            self._first = bucket_end

    def expire(self, horizon: int, remove: Callable[[bytes, int], None]) -> None:
        """Call ``remove(encoded_key, horizon)`` for the keys of all buckets that lie wholly up to ``horizon``."""
        if self._first > horizon + 1:
            return
        rows = [row for row, _ in self._transaction.scan(INDEX, INDEX + pack_time(min(horizon + 2, MAX_TIME)))]
        self._transaction.put_many(dict.fromkeys(rows))
        for encoded_key in {row[1 + TIME_SIZE :] for row in rows}:
            remove(encoded_key, horizon)
        self._first = self._find_first()

    def set_back(self, limit: int) -> None:
        """Note that no version is superseded after ``limit`` any more."""
        later = min(limit - limit % self._bucket + self._bucket, MAX_TIME)
        rows = [row for row, _ in self._transaction.scan(INDEX + pack_time(later), BEYOND)]
        self._transaction.put_many(dict.fromkeys(rows))
        for row in rows:
            self.add(row[1 + TIME_SIZE :], limit)
        self._first = self._find_first()

    def _find_first(self) -> int:
        for row, _ in self._transaction.scan(INDEX, BEYOND):
            return unpack_time(row, 1)
        return MAX_TIME

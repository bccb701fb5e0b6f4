"""The changes that puts and the passing of time make to the rows of a versioned store, and the index of what can go.

Rule of this module: it knows rows and times, not the users' keys and values. It keeps two things true: wherever a key
has older versions, its latest says so; and a key with a version that can be removed one day is in the index, that is,
every key but those with one version that is no tombstone. The layout of the index::

    row    0x02 bucket_end (time) key (terminated)
    value  empty

A row says: some version of the key is superseded before ``bucket_end``, or is a tombstone of before then. A key has a
row no later than for the first of its versions that can be removed one day, and none is needed for the others. Once the
history begins at a bucket's end or later, its keys are visited and its rows deleted; a key with more versions to remove
is noted again. So a put looks at no other keys than those with something to remove, and a key that is overwritten in
order has one row, however often. Times are put into coarse buckets, so that a key is visited once per bucket.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX, TERMINATOR, TIME_SIZE, TIMERS, last_time, pack_time, unpack_time
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.versions.earlier_versions import RecentVersions
from millpond.stores.typed.versions.version_rows import (
    ALONE,
    HEAD_SIZE,
    JUST_ABOVE,
    LIVE,
    OLDER,
    TOMBSTONE,
    VALUE_START,
    changes_with_latest_apart,
    damaged_latest,
    history_prefix,
    latest_row_of,
    plain_entries,
    plain_entry,
)

_NOT_INDEXED = ALONE + LIVE


class SupersededIndex:
    """The index by which superseded versions are found once no reader can see them.

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


class VersionHistory:
    """The rows of one store.

    Args:
        transaction: the store's.
        bucket: the width of the buckets of the index.

    Attributes:
        index: the index of the versions that can be removed one day.
        recent: the versions that have become older ones.
    """

    def __init__(self, transaction: Transaction, bucket: int) -> None:
        self._transaction = transaction
        self._write = transaction.put
        self.index = SupersededIndex(transaction, bucket)
        self.recent = RecentVersions()
        # By the row of a key's latest version, the row of its first one: scans from there pass nothing that is removed.
        self._begins: dict[bytes, bytes] = {}

    def latest(self, rows: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Return the values at the rows of latest versions."""
        wanted = list(dict.fromkeys(rows))
        return dict(zip(wanted, self._transaction.get_many(wanted), strict=True))

    def put(self, row: bytes, latest: bytes | None, start: bytes, version: bytes) -> tuple[bytes, int | None]:
        """Put a version of one key.

        Args:
            row: the row of the key's latest version.
            latest: the row's value.
            start: the packed time from which the version is valid.
            version: the version's bytes.

        Returns:
            The value of ``row`` now, and the end of the version; None for the end of the latest.
        """
        if latest is None:
            self.recent.forget(row)
            indexed = version != TOMBSTONE
            following = start + ALONE + version
        elif len(latest) <= HEAD_SIZE:
            raise damaged_latest(latest)
        elif start > latest[:TIME_SIZE]:
            replaced = latest[HEAD_SIZE:]
            self._write(row[:-2] + TERMINATOR + latest[:TIME_SIZE], replaced)
            self.recent.replaced(row, latest[:TIME_SIZE], replaced, alone=latest[TIME_SIZE:HEAD_SIZE] == ALONE)
            indexed = latest[TIME_SIZE:VALUE_START] != _NOT_INDEXED
            following = start + OLDER + version
        elif start == latest[:TIME_SIZE]:
            indexed = version != TOMBSTONE or latest[TIME_SIZE:VALUE_START] != _NOT_INDEXED
            following = latest[:HEAD_SIZE] + version
        else:
            return self._put_older(row, latest, start, version)
        self._write(row, following)
        if not indexed:
            self.index.add(row[1:-2] + TERMINATOR, unpack_time(start))
        return following, None

    def forget(self, row: bytes, latest: bytes | None, horizon: int) -> bytes | None:
        """Remove the versions of one key that ended by ``horizon``, now and not when their time has come.

        Args:
            row: the row of the key's latest version.
            latest: the row's value.
            horizon: the beginning of the history.

        Returns:
            The value of ``row`` now.
        """
        if latest is None or latest[TIME_SIZE:VALUE_START] == _NOT_INDEXED:
            return latest
        if len(latest) <= HEAD_SIZE:
            raise damaged_latest(latest)
        self._remove_invisible(row[1:-2] + TERMINATOR, horizon)
        self.recent.forget(row)
        return self._transaction.get(row)

    def has_version(self, row: bytes, latest: bytes, first: bytes, last: bytes) -> bool:
        """Return whether a key has a version of the packed times from ``first`` to ``last``, both included."""
        if first <= latest[:TIME_SIZE] <= last:
            return True
        prefix = history_prefix(row)
        older = latest[TIME_SIZE:HEAD_SIZE] == OLDER
        return older and any(True for _ in self._transaction.scan(prefix + first, prefix + last + JUST_ABOVE))

    def _put_older(self, row: bytes, latest: bytes, start: bytes, version: bytes) -> tuple[bytes, int]:
        plain = history_prefix(row) + start
        later = next(self._transaction.scan(plain + JUST_ABOVE, row), None)
        self._write(plain, version)
        if row in self._begins:
            self._begins[row] = min(self._begins[row], plain)
        self.recent.put(row, start, version)
        self.index.add(row[1:-2] + TERMINATOR, unpack_time(start))
        if latest[TIME_SIZE:HEAD_SIZE] == ALONE:
            latest = latest[:TIME_SIZE] + OLDER + latest[HEAD_SIZE:]
            self._write(row, latest)
        return latest, unpack_time(latest) if later is None else last_time(later[0])

    def expire(self, horizon: int) -> bool:
        """Remove versions that ended by ``horizon``, if they are due; return whether latest rows may have changed."""
        due = self.index.first <= horizon + 1
        if due:
            self.index.expire(horizon, self._remove_invisible)
        return due

    def _remove_invisible(self, encoded_key: bytes, horizon: int) -> None:
        """Delete the versions of a key that ended by ``horizon``, but not the one that is still valid."""
        row = latest_row_of(encoded_key)
        latest = self._transaction.get(row)
        if latest is None:
            return
        newest = plain_entry(row, latest)
        until, later = [], None
        begin = self._begins.get(row, history_prefix(row))
        for entry in chain(self._transaction.scan(begin, row), (newest,)):
            if last_time(entry[0]) > horizon:
                later = entry
                break
            until.append(entry)
        left = [later] if later is not None else []
        if until and until[-1][1] != TOMBSTONE:
            left.append(until.pop())
        changes: dict[bytes, bytes | None] = dict.fromkeys(plain for plain, _ in until)
        if not left:
            changes[row] = None
        elif left == [newest] and latest[TIME_SIZE:HEAD_SIZE] == OLDER:
            changes[row] = latest = latest[:TIME_SIZE] + ALONE + latest[HEAD_SIZE:]
        self._transaction.put_many(changes)
        if left:
            self._begins[row] = left[-1][0]
        else:
            self._begins.pop(row, None)
        if later is not None and latest[TIME_SIZE:VALUE_START] != _NOT_INDEXED:
            self.index.add(encoded_key, last_time(later[0]))

    def remove(self, row: bytes, latest: bytes) -> None:
        """Remove all versions of the key whose latest, in the row ``row``, is ``latest``."""
        alone = latest[TIME_SIZE:HEAD_SIZE] == ALONE
        older = [] if alone else [plain for plain, _ in self._transaction.scan(history_prefix(row), row)]
        self._transaction.put_many(dict.fromkeys([*older, plain_entry(row, latest)[0], row]))
        self.recent.forget(row)
        self._begins.pop(row, None)

    def settle(self) -> None:
        """Forget all that is not in rows."""
        self.recent.clear()
        self._begins.clear()

    def set_back(self, limit: int) -> int:
        """Remove all versions of a time after ``limit``; return how many there were."""
        self.settle()
        # The index does not lead to all of them: it does not know the keys that have one version.
        rows = plain_entries(self._transaction.scan(DATA, INDEX))
        later = [row for row, _ in rows if last_time(row) > limit]
        self._transaction.put_many(changes_with_latest_apart(self._transaction, dict.fromkeys(later)))
        self.index.set_back(limit)
        return len(later)

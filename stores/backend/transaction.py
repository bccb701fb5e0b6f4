"""The uncommitted changes of one micro-batch over a backend.

Reads see the changes; ``commit`` writes them in one atomic ``write``; dropping the transaction is the rollback. What it
collected *is* the changelog of the batch, compacted by key. So every backend gets read-your-writes, atomicity and
change capture from this one class.

Many changes that come together may stay in the form in which they come, such as columns, until somebody reads single
keys among them; other changes lie over them.
"""

import warnings
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from sortedcontainers import SortedList

from millpond.stores.backend.contract import Backend, Changes, Entries
from millpond.stores.backend.engine import Closed, Cursor, OpenCursors
from millpond.stores.backend.sorted_changes import SortedChanges

_FEW: Final = 8
"""The number of changes up to which a copy costs less than a scan that may be read later."""


class _Bounds(NamedTuple):
    """The least and the greatest key of the first so many single changes."""

    changes: int
    least: bytes
    greatest: bytes


_NO_BOUNDS: Final = _Bounds(0, b"", b"")


class Transaction:
    """A view on ``backend`` with changes that only this object sees until ``commit``.

    After ``commit`` or ``rollback`` the same object carries on with an empty set of changes. Closing it drops what was
    not committed; the backend stays open. One that is dropped with changes in it causes a ``ResourceWarning``.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._read = backend.get
        self._find_last = backend.last
        self._changes: dict[bytes, bytes | None] = {}
        self._order: SortedList[bytes] | None = None
        self._sorted: SortedChanges | None = None
        self._bounds = _NO_BOUNDS
        self._scans = OpenCursors()

    @property
    def backend(self) -> Backend:
        return self._backend

    @property
    def changes(self) -> Changes:
        """The changes that ``commit`` would write: the last value of each changed key, None where it was deleted."""
        pending = self.sorted_changes
        if pending is None:
            return self._changes
        return pending.beside(self._changes) if self._changes else pending

    @property
    def changed_keys(self) -> int:
        """The number of keys that ``commit`` would write."""
        pending = self.sorted_changes
        return len(self._changes) + (0 if pending is None else len(pending))

    @property
    def sorted_changes(self) -> SortedChanges | None:
        """The changes given to ``put_sorted``, as long as no key in their span has been changed since; else None."""
        if self._sorted is not None and self._touched_by(self._sorted):
            self._dissolve()
        return self._sorted

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key`` as this transaction sees it, or None."""
        changes = self._changes
        if key in changes:
            return changes[key]
        if self._sorted is not None and self._sorted.spans(key):
            self._dissolve()
            return self.get(key)
        return self._read(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key as this transaction sees it, in the order of ``keys``."""
        self._dissolve()
        return self.get_many_beside(keys)

    def get_many_beside(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what ``get_many`` returns, for keys that are not among ``sorted_changes``."""
        changes = self._changes
        if changes.keys().isdisjoint(keys):
            return self._backend.get_many(keys)
        theirs = iter(self._backend.get_many([key for key in keys if key not in changes]))
        return [changes[key] if key in changes else next(theirs) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set ``key`` to ``value``; None deletes it."""
        if self._order is not None:
            self._scans.detach()
            if key not in self._changes:
                self._order.add(key)
        self._changes[key] = value

    def put_many(self, changes: Changes) -> None:
        """Set many keys at once; None deletes."""
        if self._order is not None:
            self._scans.detach()
            self._order.update(key for key in changes if key not in self._changes)
        self._changes.update(changes)

    def put_sorted(self, changes: SortedChanges) -> None:
        """Do as ``put_many``, for changes that need not be objects until somebody reads single keys among them."""
        before = self.sorted_changes
        pending = changes if before is None else before.overlaid(changes)
        if pending is None or self._order is not None or self._touched_by(pending):
            self._dissolve()
            self.put_many(dict(changes.items()))
        else:
            self._sorted = pending

    def delete(self, key: bytes) -> None:
        self.put(key, None)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the entries with ``start <= key < stop``."""
        self.put_many(dict.fromkeys(key for key, _ in self.scan(start, stop)))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        """Return the entries with ``start <= key < stop`` in key order, as they are now, whatever is put meanwhile.

        A scan that is dropped after a few entries has read few, however many the range has.
        """
        mine = self._changed_between(start, stop, reverse)
        theirs = self._backend.scan(start, stop, reverse=reverse)
        return theirs if mine is None else _overlaid(mine, theirs, reverse)

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the entry with the greatest key in ``start <= key < stop``, or None."""
        self._dissolve()
        changes = self._changes
        theirs = self._find_last(start, stop)
        if not changes:
            return theirs
        mine = self._last_changed(start, stop)
        if mine is None or (theirs is not None and theirs[0] > mine[0]):
            if theirs is None or theirs[0] not in changes:
                return theirs
            theirs = self._last_unchanged(start if mine is None else mine[0], theirs[0])
            return mine if theirs is None else theirs
        return mine

    def commit(self) -> None:
        """Write all changes to the backend in one atomic write. If that fails, the changes are kept."""
        changes = self.changes
        if changes:
            self._backend.write(changes)
        self.rollback()

    def rollback(self) -> None:
        """Forget all changes since the last commit."""
        self._sorted = None
        if self._changes:
            self._changes, self._order, self._bounds = {}, None, _NO_BOUNDS

    def close(self) -> None:
        """Drop what was not committed. Closing twice is no error; using the transaction afterwards is one."""
        closed: Any = Closed("the transaction is closed; begin a new one on the backend")
        self._changes = closed
        self._order = self._sorted = None

    def __del__(self) -> None:
        changes = getattr(self, "_changes", None)
        count = (len(changes) if type(changes) is dict else 0) + len(getattr(self, "_sorted", None) or ())
        if count:
            message = f"a transaction with {count} uncommitted changes was dropped: commit it or close it"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last_changed(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key in the range that was put and not deleted."""
        order, changes = self._ordered(), self._changes
        place = order.bisect_left(stop)
        while place:
            place -= 1
            key = order[place]
            if key < start:
                return None
            value = changes[key]
            if value is not None:
                return key, value
        return None

    def _last_unchanged(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the backend's last entry in the range that this transaction has not touched."""
        changes = self._changes
        entries = self._backend.scan(start, stop, reverse=True)
        return next((entry for entry in entries if entry[0] not in changes), None)

    def _changed_between(
        self, start: bytes | None, stop: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes | None]] | None:
        """Return the changes in the range as they are now, in the order of a scan; None if there are none."""
        self._dissolve()
        changes = self._changes
        if not changes:
            return None
        if stop is not None and (start or b"") >= stop:
            return None
        keys = self._ordered().irange(start, stop, (True, False), reverse)
        entries: Iterator[Any] = ((key, changes[key]) for key in keys)
        first = list(islice(entries, _FEW))
        if len(first) < _FEW:
            return iter(first) if first else None
        return self._scans.walk(Cursor(chain(first, entries), None, reverse, _none))

    def _touched_by(self, pending: SortedChanges) -> bool:
        """Return whether any key that ``pending`` spans has been changed by other means."""
        if not self._changes:
            return False
        _, least, greatest = self._bounds = self._bounds_now()
        first, last = pending.bounds
        return least <= last and first <= greatest and any(map(pending.spans, self._changes))

    def _bounds_now(self) -> _Bounds:
        """Return the bounds of all single changes, found by the changes since the last call."""
        known, least, greatest = self._bounds
        new = list(islice(reversed(self._changes), len(self._changes) - known))
        if known:
            new += [least, greatest]
        return _Bounds(len(self._changes), min(new), max(new))

    def _dissolve(self) -> None:
        """Turn all changes into one dictionary."""
        pending, self._sorted = self._sorted, None
        if pending is not None:
            changes = dict(pending.items())
            changes.update(self._changes)
            self._changes, self._bounds = changes, _NO_BOUNDS

    def _ordered(self) -> "SortedList[bytes]":
        """Return the changed keys in order; the order is maintained only from the first time that it is needed."""
        order = self._order
        if order is None:
            order = self._order = SortedList(self._changes)
        return order


def _none(error: BaseException) -> None:
    """Return None: no exception is an engine's, because changes have no engine."""


def _overlaid(
    pending: Iterator[tuple[bytes, bytes | None]], theirs: Entries, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield these changes laid over other entries, both in the same order; where both have a key, the change wins."""
    own = next(pending, None)
    for entry in theirs:
        key = entry[0]
        while own is not None and ((own[0] > key) if reverse else (own[0] < key)):
            if own[1] is not None:
                yield own[0], own[1]
            own = next(pending, None)
        if own is not None and own[0] == key:
            if own[1] is not None:
                yield own[0], own[1]
            own = next(pending, None)
        else:
            yield entry
    while own is not None:
        if own[1] is not None:
            yield own[0], own[1]
        own = next(pending, None)

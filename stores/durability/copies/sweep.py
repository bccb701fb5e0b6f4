"""The work in a directory in a new format: rows to be copied, and commits that wait to be written to it.

Rule of this module: it works in bounded steps, each of which is one atomic write, and knows no time. The directory
stands at a commit, as a local copy does. Beyond that it has rows of its own, above all rows of stores::

    0x03 "ahead"  -> the last commit of which rows may be here although the directory does not stand there yet
    0x03 "next"   -> the first row that has not been copied; gone once all are there
    0x03 "part"   -> the last of the commits that are being written, a space, and the row up to which all of them are
                     here

Rows are copied as the directory in use has them, which may be some commits further on. A row that is here already
stays, because it may have what the old format cannot hold, and all changes since then wait to be written over it.
So once the commits that wait are written, all rows are as the last of them left them.

Several commits that wait are merged into one: in key order, each row as the last of them left it. A row that many of
them have changed is given once, and neighbors are given together, which costs an engine that keeps rows in pages far
less than writing one commit after the other.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from pyarrow import compute

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend
from millpond.stores.durability.copies.catchup_log import BYTES_TOGETHER, CatchupLog, Commit
from millpond.stores.durability.copies.position import position_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.encoding.keys import BEYOND, COMMIT_ROW

pc: Any = compute

AHEAD_ROW: Final = BEYOND + b"ahead"
NEXT_ROW: Final = BEYOND + b"next"
PART_ROW: Final = BEYOND + b"part"

_ROWS_PER_STEP: Final = 500
_BYTES_PER_STEP: Final = 1 << 20
_LEAST_READ: Final = 8
"""The rows of a commit that are read at once, however many commits there are."""


class Step(NamedTuple):
    """The next rows, in key order, with None for deletions; and the number of each commit's rows among them."""

    rows: dict[bytes, bytes | None]
    counts: Sequence[int]

    @property
    def last(self) -> bytes:
        """The greatest of the rows."""
        return next(reversed(self.rows))


class Merge:
    """The merge of the changes of commits, of which few rows at a time are read; ``take`` skips what is dealt with.

    Args:
        commits: the keys of each commit, in order, and their values, as Arrow arrays; the oldest commit first.
        beyond: only rows after that one; None for all.
    """

    def __init__(self, commits: Sequence[tuple[Any, Any]], beyond: bytes | None = None) -> None:
        self._commits = commits
        self._places = [0 if beyond is None else _place_after(keys, beyond) for keys, _ in commits]

    @property
    def left(self) -> int:
        """The number of rows left, where a row that several commits have changed counts for each of them."""
        return sum(len(keys) - place for (keys, _), place in zip(self._commits, self._places, strict=True))

    def step(self) -> Step:
        """Return the next rows, at least one if any are left, and at most a bounded size beyond that one."""
        found = self._next_keys()
        ends = [keys[-1] for keys, whole in found if not whole]
        end = min(ends, default=None)
        rows: dict[bytes, bytes | None] = {}
        for (_, values), place, (keys, _) in zip(self._commits, self._places, found, strict=True):
            count = len(keys) if end is None else bisect_right(keys, end)
            rows.update(zip(keys[:count], values.slice(place, count).to_pylist(), strict=True))
        bounded = _bounded(rows)
        if not bounded:
            return Step({}, [0] * len(found))
        last = next(reversed(bounded))
        return Step(bounded, [bisect_right(keys, last) for keys, _ in found])

    def take(self, step: Step) -> None:
        """Skip the rows of ``step``, which are dealt with."""
        self._places = [place + count for place, count in zip(self._places, step.counts, strict=True)]

    def _next_keys(self) -> list[tuple[list[bytes], bool]]:
        """Return the next keys of each commit, and whether these are all that it has left."""
        going = sum(place < len(keys) for (keys, _), place in zip(self._commits, self._places, strict=True))
        share = min(_ROWS_PER_STEP, max(_LEAST_READ, 3 * _ROWS_PER_STEP // max(1, going)))
        found = []
        for (keys, values), place in zip(self._commits, self._places, strict=True):
            most = min(share, max(1, _BYTES_PER_STEP * len(keys) // max(1, keys.nbytes + values.nbytes)))
            found.append((keys.slice(place, most).to_pylist(), place + most >= len(keys)))
        return found


def _bounded(rows: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """Return the first of the rows, in order, as many as fit into a step."""
    bounded: dict[bytes, bytes | None] = {}
    size = 0
    for key in sorted(rows):
        if len(bounded) == _ROWS_PER_STEP or size > _BYTES_PER_STEP:
            break
        value = bounded[key] = rows[key]
        size += len(key) + len(value or b"")
    return bounded


def _place_after(keys: Any, key: bytes) -> int:
    """Return how many of sorted keys are not greater than ``key``."""
    return bisect_right(range(len(keys)), key, key=lambda place: keys[place].as_py())


class Piece(NamedTuple):
    """Some rows to be copied, and the first one after them, if there is one."""

    rows: Mapping[bytes, bytes]
    following: bytes | None


class _Part(NamedTuple):
    """A pass that goes on: the last of its commits, and the row up to which all of them are there."""

    commit: Commit
    beyond: bytes


class _Pass(NamedTuple):
    """The commits being written: their changes, the last of them, and the position that it leads to."""

    merge: Merge
    commit: Commit
    position: bytes


class Sweep:
    """The work to be done on ``backend``, the directory in the new format.

    Args:
        backend: the directory, which has been begun.
        backlog: the commits that wait to be written to it; it is told which need not wait any more.

    Raises:
        CorruptStoreError: the directory is at no commit that can be trusted, or its own rows make no sense.

    Attributes:
        at: the commit at which the directory stands.
    """

    def __init__(self, backend: Backend, backlog: CatchupLog) -> None:
        self._backend = backend
        self._backlog = backlog
        position = position_of(backend)
        at = None if position is None else Commit.of(position)
        if at is None:
            raise CorruptStoreError("what is prepared of a new format is at no commit that can be trusted")
        self.at = at
        self._next = backend.get(NEXT_ROW)
        try:
            self._ahead = _commit(backend.get(AHEAD_ROW))
            self._part = _part(backend.get(PART_ROW))
        except ValueError as error:
            raise CorruptStoreError(f"what is prepared of a new format does not tell what it has: {error}") from error
        self._pass: _Pass | None = None
        if at in backlog.waiting:
            backlog.reach(at)  # the process that wrote it could not note this any more

    @property
    def copied_all(self) -> bool:
        """True if no row is left to be copied."""
        return self._next is None

    def check(self, manifest: Manifest | None = None) -> None:
        """Check that the commits that wait lead on from the directory's position, and that all of its rows count.

        Args:
            manifest: the version whose commits count, besides those that wait.

        Raises:
            CorruptStoreError: they do not.
        """
        if self._backlog.reached not in (self.at, None):
            raise CorruptStoreError("what waits to be written to a new format does not lead on from where that stands")
        ahead = self._ahead
        if ahead is None or ahead == self.at or ahead.sequence < self.at.sequence or ahead in self._backlog.waiting:
            return
        if manifest is None or not manifest.includes(ahead.id):
            raise CorruptStoreError("what is prepared of a new format has rows of a commit that does not count")

    @property
    def left(self) -> int:
        """The number of rows left of the commits that are being written, which are the first of those that wait.

        Raises:
            CorruptStoreError: a commit that waits is damaged.
        """
        return self._passing().merge.left

    def write_further(self) -> int:
        """Write the next rows of the first commits that wait; return by how many ``left`` is less.

        Raises:
            CorruptStoreError: a commit that waits is damaged.
        """
        passing = self._passing()
        step = passing.merge.step()
        rows = {row: value for row, value in step.rows.items() if row != COMMIT_ROW}
        count = sum(step.counts)
        if count < passing.merge.left:
            self._write({**rows, PART_ROW: bytes(passing.commit) + b" " + step.last}, passing.commit)
            passing.merge.take(step)
        else:
            self._arrive(rows, passing)
        return count

    def piece(self, source: Backend, most: int) -> Piece:
        """Return the next rows of ``source`` to be copied, at most so many."""
        rows: dict[bytes, bytes] = {}
        size = 0
        for row, value in source.scan(self._next or None):
            if len(rows) == min(most, _ROWS_PER_STEP) or size > _BYTES_PER_STEP:
                return Piece(rows, row)
            if row != COMMIT_ROW:
                rows[row] = value
                size += len(row) + len(value)
        return Piece(rows, None)

    def copy(self, piece: Piece) -> None:
        """Copy the rows of the last ``piece``, from a source that is at the end of the backlog."""
        rows: dict[bytes, bytes | None] = dict(piece.rows)
        # A scan, because most rows are not there yet: each would cost a search of its own.
        for row, _ in self._backend.scan(self._next or None, piece.following):
            rows.pop(row, None)
        rows[NEXT_ROW] = piece.following
        self._write(rows, self._backlog.end or self.at)
        self._next = piece.following

    def _write(self, rows: dict[bytes, bytes | None], commit: Commit) -> None:
        """Write rows of ``commit``, at which the directory need not stand yet."""
        ahead = self._ahead
        if commit != self.at and (ahead is None or ahead.sequence < commit.sequence):
            ahead, rows[AHEAD_ROW] = commit, bytes(commit)
        self._backend.write(rows)
        self._ahead = ahead

    def _arrive(self, rows: dict[bytes, bytes | None], passing: _Pass) -> None:
        """Write the last rows of commits, and the position that they lead to."""
        rows |= {PART_ROW: None, COMMIT_ROW: passing.position}
        ahead = self._ahead
        if ahead is not None and ahead.sequence <= passing.commit.sequence:
            ahead, rows[AHEAD_ROW] = None, None
        self._backend.write(rows)
        self.at, self._ahead, self._part, self._pass = passing.commit, ahead, None, None
        self._backlog.reach(passing.commit)

    def _passing(self) -> _Pass:
        """Return the pass that goes on, or one over the commits that wait now."""
        waiting = self._backlog.waiting
        if self._pass is None or self._pass.commit not in waiting:
            part = self._part if self._part is not None and self._part.commit in waiting else None
            commits = self._together() if part is None else waiting[: waiting.index(part.commit) + 1]
            changes = [self._backlog.changes(commit) for commit in commits]
            self._pass = _Pass(
                Merge(changes, None if part is None else part.beyond), commits[-1], _position(commits[-1], *changes[-1])
            )
        return self._pass

    def _together(self) -> list[Commit]:
        """Return the first commits that wait, as many as fit into memory; the last, which may yet fail, alone."""
        waiting = self._backlog.waiting
        sizes = accumulate(self._backlog.size(commit) for commit in waiting[:-1])
        return waiting[: max(1, bisect_right(list(sizes), BYTES_TOGETHER))]


def _position(commit: Commit, keys: Any, values: Any) -> bytes:
    """Return the position that a commit leads to.

    Raises:
        CorruptStoreError: its changes do not tell.
    """
    place = pc.index(keys, COMMIT_ROW).as_py()
    if place < 0:
        raise CorruptStoreError(f"what commit {commit.sequence} has changed does not tell where it leads")
    position: bytes = values[place].as_py()
    return position


def _commit(row: bytes | None) -> Commit | None:
    return None if row is None else Commit.parse(row)


def _part(row: bytes | None) -> _Part | None:
    if row is None:
        return None
    commit, _, beyond = row.partition(b" ")
    return _Part(Commit.parse(commit), beyond)

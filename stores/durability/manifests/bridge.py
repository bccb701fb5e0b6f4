"""``Bridge``: the way across a snapshot, for a local copy that stands before it.

Rule of this module: nothing needs a bridge. The state is complete without it, and its files may be gone.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, durable_file, read_id

BRIDGED: Final = 16
"""The most commits that a bridge spans."""


class Bridge(NamedTuple):
    """The deltas that lead from an earlier commit to a snapshot."""

    start: str
    deltas: tuple[DurableFile, ...]

    @property
    def commits(self) -> list[str]:
        """The commits, from the one where it starts to the snapshot's."""
        return [self.start, *(delta.commit for delta in self.deltas)]

    @classmethod
    def to(cls, snapshot: DurableFile, commits: Sequence[str], deltas: Sequence[DurableFile]) -> Self:
        """Return as much of the way to a snapshot as brings a copy there no slower than the snapshot itself.

        Args:
            snapshot: the snapshot.
            commits: the commits that lead to it, its own as the last one.
            deltas: the changes of each of them but the first.
        """
        rows, count = deltas[-1].own_rows, 1
        while count < min(len(deltas), BRIDGED) and rows + deltas[-1 - count].own_rows <= snapshot.rows:
            rows += deltas[-1 - count].own_rows
            count += 1
        return cls(commits[-1 - count], tuple(deltas[-count:]))

    def after(self, commit: str) -> tuple[DurableFile, ...] | None:
        """Return the deltas that lead from the state at ``commit`` to the snapshot; None if none do."""
        commits = self.commits
        return self.deltas[commits.index(commit) :] if commit in commits else None

    def content(self) -> list[Any]:
        """Return the content for JSON."""
        return [self.start, [delta.fields for delta in self.deltas]]

    @classmethod
    def of(cls, content: Any) -> Self:
        """Return the bridge with that ``content``.

        Raises:
            TypeError, ValueError: the content is of another form.
        """
        start, deltas = content
        return cls(read_id(start), tuple(durable_file(FileKind.DELTA, delta) for delta in deltas))

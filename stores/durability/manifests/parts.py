"""``Parts`` and ``Unfinished``: a snapshot that is written in steps, each a part in the file of a later commit.

Rule of this module: it knows which files have the parts and how far the snapshot is, and nothing of rows. It is the
snapshot of one commit, however many steps it takes: the changes of later commits are in their deltas. Nothing reads its
parts before the last one is written.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self

from millpond.stores.durability.storage.checked_text import read_count
from millpond.stores.durability.storage.durable_file import DurableFile, read_id, read_sequence

_FILES_AT_ONCE: Final = 32
"""The most deltas that a step gathers."""

_WORTH_GATHERING: Final = 4
"""The least number of deltas that are gathered; fewer are runs of their own."""


class Parts(NamedTuple):
    """A whole snapshot: the commit that had the last step, by its sequence, and the parts in the order of their rows.

    Each part is in the file of a delta that the same manifest names.
    """

    since: int
    files: tuple[DurableFile, ...]

    def content(self) -> list[Any]:
        """Return the content for JSON: its parts by the sequences of their files."""
        return [self.since, _sequences(self.files)]

    @classmethod
    def of(cls, content: Any, deltas: Sequence[DurableFile]) -> Self:
        """Return the parts with that ``content``, for the deltas of the manifest.

        Raises:
            TypeError, ValueError, KeyError: the content is of another form.
        """
        since, sequences = content
        parts = cls(read_sequence(since), _parts(sequences, deltas))
        if any(part.sequence > since for part in parts.files):
            raise ValueError(f"a snapshot that commit {since} has finished has later parts")
        return parts


class Run(NamedTuple):
    """A source of a snapshot beside the one before: a delta, or the part of a file that has several, gathered.

    Attributes:
        file: a delta, or the part.
        taken: the number of its rows that are in parts of the snapshot already.
    """

    file: DurableFile
    taken: int = 0


class Unfinished(NamedTuple):
    """A snapshot that is being written.

    First the many small deltas up to its commit are gathered into few runs, some in each step, so that no file is read
    over and over. Then it is merged from the snapshot before and these.

    Attributes:
        commit: the commit whose snapshot it is.
        gathered: the number of deltas up to that commit that are among the runs.
        taken: the number of rows of the snapshot before that are in parts already.
        runs: the changes since that, in the order in which they apply.
        parts: the parts that are written, in the order of their rows.
    """

    commit: str
    gathered: int = 0
    taken: int = 0
    runs: tuple[Run, ...] = ()
    parts: tuple[DurableFile, ...] = ()

    def next_group(self, deltas: Sequence[DurableFile], rows: int, size: int) -> tuple[Self, tuple[DurableFile, ...]]:
        """Return the deltas to gather next, once large ones before them are runs of their own; none if all are done.

        Args:
            deltas: all deltas up to its commit.
            rows: the most rows to gather at once.
            size: the most bytes.
        """
        runs, place = list(self.runs), self.gathered
        while place < len(deltas):
            group = _fitting(deltas[place : place + _FILES_AT_ONCE], rows, size)
            if len(group) >= _WORTH_GATHERING:
                return self._replace(gathered=place, runs=tuple(runs)), group
            runs.append(Run(deltas[place]))
            place += 1
        return self._replace(gathered=place, runs=tuple(runs)), ()

    def with_gathered(self, file: DurableFile, count: int) -> Self:
        """Return the same with the next so many deltas gathered in the part of ``file``, unless that has no rows."""
        runs = (*self.runs, Run(file.part)) if file.part_rows else self.runs
        return self._replace(gathered=self.gathered + count, runs=runs)

    def with_part(self, file: DurableFile, taken: Sequence[int]) -> Self:
        """Return the same with one more part, in ``file``, unless that has no rows.

        Args:
            file: a delta.
            taken: the number of rows taken now of the snapshot before, and of each run.
        """
        of_snapshot, *of_runs = taken
        runs = tuple(run._replace(taken=rows) for run, rows in zip(self.runs, of_runs, strict=True))
        parts = (*self.parts, file.part) if file.part_rows else self.parts
        return self._replace(taken=of_snapshot, runs=runs, parts=parts)

    def content(self) -> list[Any]:
        """Return the content for JSON: files by their sequences."""
        runs = [(run.file.sequence, run.taken) for run in self.runs]
        return [self.commit, self.gathered, self.taken, runs, _sequences(self.parts)]

    @classmethod
    def of(cls, content: Any, deltas: Sequence[DurableFile]) -> Self:
        """Return the unfinished snapshot with that ``content``, for the deltas of the manifest.

        Raises:
            TypeError, ValueError, KeyError: the content is of another form.
        """
        commit, gathered, taken, runs, sequences = content
        count = [delta.commit for delta in deltas].index(read_id(commit)) + 1
        before, since = deltas[:count], deltas[count:]
        files = {delta.sequence: delta for delta in before}
        files |= {delta.sequence: delta.part for delta in since if delta.part_rows}
        return cls(
            commit,
            read_count(gathered, count),
            read_count(taken),
            tuple(Run(files[read_sequence(sequence)], read_count(rows)) for sequence, rows in runs),
            _parts(sequences, since),
        )


def _fitting(deltas: Sequence[DurableFile], rows: int, size: int) -> tuple[DurableFile, ...]:
    """Return as many of the first deltas as have together no more than these rows and bytes."""
    all_rows, all_sizes = accumulate(one.own_rows for one in deltas), accumulate(one.own_size for one in deltas)
    fits = [one <= rows and other <= size for one, other in zip(all_rows, all_sizes, strict=True)]
    return tuple(deltas[: sum(fits)])


def _sequences(parts: Sequence[DurableFile]) -> list[int]:
    return [part.sequence for part in parts]


def _parts(sequences: Any, deltas: Sequence[DurableFile]) -> tuple[DurableFile, ...]:
    """Return the parts of a snapshot that are in the files of deltas.

    Raises:
        TypeError, ValueError, KeyError: the sequences are not of such files, in order.
    """
    files = {delta.sequence: delta.part for delta in deltas if delta.part_rows}
    wanted = list(map(read_sequence, sequences))
    if wanted != sorted(set(wanted)):
        raise ValueError(f"the parts of a snapshot are not in order: {wanted}")
    return tuple(files[sequence] for sequence in wanted)

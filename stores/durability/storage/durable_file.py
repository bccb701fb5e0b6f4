"""Durable files as manifests name them.

Rule of this module: it knows names, no bytes. A file's name is unique, because the id of its commit is. A delta's file
may have, behind the changes of its commit, a part of a snapshot that is written in steps; a reader asks for the one or
the other by the kind.
"""

import re
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import uuid4

from millpond.stores.durability.storage.checked_text import read_count, read_text

_ID: Final = re.compile(r"[0-9a-f]{32}")
_LAST: Final = 10**12 - 1
"""The last sequence that a name has digits for."""
_GREATEST_CHECKSUM: Final = 2**32 - 1
_FILE_NAME: Final = re.compile(r"(\d{12})-([0-9a-f]{32})\.(snapshot|delta)\.parquet")


class FileKind(StrEnum):
    """The kind of a durable file, by its content."""

    SNAPSHOT = "snapshot"
    DELTA = "delta"
    PART = "part"
    """The part of a snapshot that is in a delta's file."""


class DurableFile(NamedTuple):
    """A file of a manifest: the commit that wrote it, the numbers of its rows and bytes, the CRC-32 of its footer.

    ``part_rows`` and ``part_size`` are the rows and bytes among them that are a part of a snapshot.
    """

    kind: FileKind
    sequence: int
    commit: str
    rows: int
    size: int
    checksum: int
    part_rows: int = 0
    part_size: int = 0

    @property
    def name(self) -> str:
        return file_name(FileKind.DELTA if self.kind is FileKind.PART else self.kind, self.sequence, self.commit)

    @property
    def own_rows(self) -> int:
        """The number of rows of its kind alone."""
        return self.part_rows if self.kind is FileKind.PART else self.rows - self.part_rows

    @property
    def own_size(self) -> int:
        """The bytes of its kind alone; those of the footer count for the delta."""
        return self.part_size if self.kind is FileKind.PART else self.size - self.part_size

    @property
    def part(self) -> "DurableFile":
        """The part of a snapshot that a delta's file has."""
        return self._replace(kind=FileKind.PART)

    @property
    def fields(self) -> tuple[int | str, ...]:
        """The fields for JSON: all but the kind, and none of a part where there is none."""
        return self[1:] if self.part_rows else self[1:6]


def file_name(kind: FileKind, sequence: int, commit: str) -> str:
    """Return the name of the file that commit number ``sequence`` writes: unique, because the commit id is."""
    return f"{sequence:012d}-{commit}.{kind}.parquet"


def sequence_of(name: str) -> int | None:
    """Return the sequence in a durable file's name; None for a file that durability did not write."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def new_commit_id() -> str:
    """Return an id that no other commit has."""
    return uuid4().hex


def durable_file(kind: FileKind, fields: Any) -> DurableFile:
    """Return the file whose fields JSON has, but for the kind.

    Raises:
        TypeError, ValueError: the fields are others.
    """
    sequence, commit, rows, size, checksum, *part = fields
    checked = read_count(checksum, _GREATEST_CHECKSUM)
    part_rows, part_size = part or (0, 0)
    return DurableFile(
        kind,
        read_sequence(sequence),
        read_id(commit),
        read_count(rows),
        read_count(size),
        checked,
        read_count(part_rows, rows),
        read_count(part_size, size),
    )


def read_sequence(value: Any) -> int:
    """Return the number of a commit.

    Raises:
        TypeError: it is something else, or one that no name has room for.
    """
    return read_count(value, _LAST)


def read_id(value: Any) -> str:
    """Return an id as ``new_commit_id`` makes them: part of a path, so nothing else may stand there.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if not _ID.fullmatch(read_text(value)):
        raise ValueError(f"{value!r} is no id")
    return read_text(value)

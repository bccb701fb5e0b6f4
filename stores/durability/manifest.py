"""Manifests: which durable files make one version of a task's state.

A manifest is all that the caller has to keep (in Spark: in the task's state value), so it is small. Rule of this
module: a manifest's JSON carries a version number, and a version never changes its meaning.

Version 2::

    {"millpond":2,"application":"flights","task":"0_3","fingerprint":"9f…","lineage":"4c…",
     "snapshot":[sequence,"commit id",rows,bytes,checksum] or null,
     "deltas":[[sequence,"commit id",rows,bytes,checksum],…],
     "bases":[sequence,…],"written_by":"release","oldest_reader":"release",
     "crc32":checksum of the text up to here and "}"}

Version 3 has ``"prepared":["store",…]`` after the bases: the stores whose local copies are prepared in a new format
(``millpond.stores.durability.copies.preparation``). It is written only if there are any. Version 1 has no checksum; it
is written where release 0.1.0 has to read it, and may have ``prepared``, which that passes over, as it does the two
releases. Readers pass over what they do not know as long as they know the number, and a release before the oldest
reader refuses the manifest. Manifests of version 2 that name no releases are read.

The state is the snapshot and then each delta over it, in order; its commit id and sequence are those of the last file.
``bases`` are the sequences of earlier snapshots, for the garbage collection (``millpond.stores.durability.gc``).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

from millpond.errors import FormatError
from millpond.stores.directory import check_plain_name
from millpond.stores.durability.checked_text import check_text, checked_text, read_count, read_text
from millpond.stores.releases import RELEASE, Numbered, Release, check_reader, oldest_reader

MANIFEST_VERSION: Final = 2
"""What is written as long as nothing needs more."""

PREPARED_VERSION: Final = 3

_UNCHECKED: Final = 1
"""The version without a checksum."""

_USUAL_READER: Final = oldest_reader(Numbered.MANIFEST, MANIFEST_VERSION)

NO_COMMIT: Final = ""
"""The commit id of the empty state, before the first commit."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_FILE_NAME: Final = re.compile(r"(\d{12})-([0-9a-f]{32})\.(snapshot|delta)\.parquet")


class FileKind(StrEnum):
    """What a durable file holds."""

    SNAPSHOT = "snapshot"
    DELTA = "delta"


class DurableFile(NamedTuple):
    """One file of a manifest: the commit that wrote it, how many rows and bytes it has, the CRC-32 of its footer."""

    kind: FileKind
    sequence: int
    commit: str
    rows: int
    size: int
    checksum: int

    @property
    def name(self) -> str:
        return file_name(self.kind, self.sequence, self.commit)


def file_name(kind: FileKind, sequence: int, commit: str) -> str:
    """The file that commit number ``sequence`` writes: unique, because the commit id is."""
    return f"{sequence:012d}-{commit}.{kind}.parquet"


def sequence_of(name: str) -> int | None:
    """The sequence in a durable file's name; None for a file that durability did not write."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def new_commit_id() -> str:
    """An id that no other commit has."""
    return uuid4().hex


@dataclass(frozen=True)
class Manifest:
    """One version of one task's state.

    ``lineage`` is an id drawn at the task's first commit and handed on from manifest to manifest. It keeps the files of
    two queries apart that use the same application and state directory by mistake, and those of a query that starts
    anew.

    ``oldest_reader`` is the oldest release that reads it and all its files; it is no part of what the version is.
    """

    application_id: str
    task_id: str
    fingerprint: str
    lineage: str
    snapshot: DurableFile | None = None
    deltas: tuple[DurableFile, ...] = ()
    bases: tuple[int, ...] = ()
    prepared: tuple[str, ...] = ()
    oldest_reader: Release = field(default=_USUAL_READER, compare=False)

    @classmethod
    def empty(cls, application_id: str, task_id: str, fingerprint: str) -> Self:
        """The manifest of a task that has no state yet."""
        return cls(application_id, task_id, fingerprint, new_commit_id())

    @property
    def files(self) -> tuple[DurableFile, ...]:
        """All files, in the order in which they apply."""
        return self.deltas if self.snapshot is None else (self.snapshot, *self.deltas)

    @property
    def commit(self) -> str:
        """The id of the commit that made this version; ``NO_COMMIT`` for the empty state."""
        return self.files[-1].commit if self.files else NO_COMMIT

    @property
    def sequence(self) -> int:
        """How many commits led here; 0 for the empty state."""
        return self.files[-1].sequence if self.files else 0

    @property
    def delta_bytes(self) -> int:
        return sum(file.size for file in self.deltas)

    @property
    def directory(self) -> str:
        """Where the files are, below the storage's root."""
        return f"{self.application_id}/{self.task_id}/{self.lineage}"

    def path(self, file: DurableFile) -> str:
        return f"{self.directory}/{file.name}"

    def with_delta(self, file: DurableFile, reader: Release = _USUAL_READER) -> "Manifest":
        """The next version: this one and a delta over it, which ``reader`` is the oldest release to read."""
        return replace(self, deltas=(*self.deltas, file), oldest_reader=max(self.oldest_reader, reader))

    def with_snapshot(self, file: DurableFile, bases: tuple[int, ...], reader: Release = _USUAL_READER) -> "Manifest":
        """The next version: a snapshot alone, which ``reader`` is the oldest release to read."""
        return replace(self, snapshot=file, deltas=(), bases=bases, oldest_reader=reader)

    def after(self, commit: str) -> tuple[DurableFile, ...] | None:
        """The deltas that lead from the state at ``commit`` to this one; None if this manifest does not include it."""
        chain = [NO_COMMIT] if self.snapshot is None else [self.snapshot.commit]
        chain += [delta.commit for delta in self.deltas]
        return self.deltas[chain.index(commit) :] if commit in chain else None

    def up_to(self, commit: str) -> "Manifest":
        """The version as of ``commit``, which is one of its files' that can be undone or replayed."""
        wanted = [file.commit for file in self.deltas]
        count = wanted.index(commit) + 1 if commit in wanted else 0
        return replace(self, deltas=self.deltas[:count])

    @property
    def _version(self) -> int:
        """The version in which it is written."""
        if self.oldest_reader < _USUAL_READER:
            return _UNCHECKED
        return PREPARED_VERSION if self.prepared else MANIFEST_VERSION

    def to_json(self) -> str:
        version = self._version
        content: dict[str, Any] = {
            "millpond": version,
            "application": self.application_id,
            "task": self.task_id,
            "fingerprint": self.fingerprint,
            "lineage": self.lineage,
            "snapshot": None if self.snapshot is None else self.snapshot[1:],
            "deltas": [delta[1:] for delta in self.deltas],
            "bases": self.bases,
        }
        if self.prepared:
            content["prepared"] = self.prepared
        content |= {"written_by": RELEASE, "oldest_reader": str(self.oldest_reader)}
        return json.dumps(content, separators=(",", ":")) if version == _UNCHECKED else checked_text(content)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The manifest that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, is older than those that may read it, or the text is
                not a manifest.
        """
        content = _parsed(text)
        version = content.get("millpond")
        if type(version) is not int or version not in (_UNCHECKED, MANIFEST_VERSION, PREPARED_VERSION):
            raise FormatError(
                f"a manifest has version {version!r}, but this release of Millpond knows versions {_UNCHECKED} to "
                f"{PREPARED_VERSION}; run {_able(content)}"
            )
        try:
            if version != _UNCHECKED:
                check_text(text)
            oldest = _oldest_reader(content, version)
            snapshot = content["snapshot"]
            manifest = cls(
                application_id=_name(content["application"]),
                task_id=_name(content["task"]),
                fingerprint=read_text(content["fingerprint"]),
                lineage=read_id(content["lineage"]),
                snapshot=None if snapshot is None else durable_file(FileKind.SNAPSHOT, snapshot),
                deltas=tuple(durable_file(FileKind.DELTA, delta) for delta in content["deltas"]),
                bases=tuple(map(read_count, content["bases"])),
                prepared=tuple(map(_name, content.get("prepared", ()))),
                oldest_reader=oldest,
            )
            manifest._check_chain()
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a manifest of version {version} is damaged ({error!r}): {text[:200]!r}") from error
        return manifest

    def _check_chain(self) -> None:
        """Each file is that of the commit after the one before."""
        for before, after in pairwise(self.files):
            if after.sequence != before.sequence + 1:
                raise ValueError(f"commit {after.sequence} follows commit {before.sequence}")


def _able(content: Mapping[str, Any]) -> str:
    """Which release can read a manifest of a later version, as far as that says so."""
    oldest, writer = content.get("oldest_reader"), content.get("written_by")
    if isinstance(oldest, str) and isinstance(writer, str):
        return f"release {oldest} or a newer one (it was written by {writer})"
    return "the release that wrote it, or a newer one"


def _oldest_reader(content: Mapping[str, Any], version: int) -> Release:
    """The oldest release that reads a manifest of a known version.

    Raises:
        FormatError: that is a later one than this.
        TypeError, ValueError: it names no release.
    """
    known = oldest_reader(Numbered.MANIFEST, version)
    if "oldest_reader" not in content:
        return known
    oldest = read_text(content["oldest_reader"])
    check_reader(f"the manifest of task {content['task']!r}", oldest, read_text(content["written_by"]))
    return max(known, Release.of(oldest))


def durable_file(kind: FileKind, fields: Any) -> DurableFile:
    """The file of which JSON has all but the kind.

    Raises:
        TypeError, ValueError: it has something else.
    """
    sequence, commit, rows, size, checksum = fields
    return DurableFile(
        kind, read_count(sequence), read_id(commit), read_count(rows), read_count(size), read_count(checksum)
    )


def read_id(value: Any) -> str:
    """An id as ``new_commit_id`` makes them: part of a path, so nothing else may stand there.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if not _ID.fullmatch(read_text(value)):
        raise ValueError(f"{value!r} is no id")
    return read_text(value)


def _name(value: Any) -> str:
    """A name of which a directory is made, so it must not lead out of the state directory."""
    check_plain_name("the name", value)
    return read_text(value)


def _parsed(text: str) -> dict[str, Any]:
    refusal = f"this is not a manifest: {text[:200]!r}; was the state value written by Millpond?"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(refusal) from error
    if not isinstance(content, dict):
        raise FormatError(refusal)
    return content

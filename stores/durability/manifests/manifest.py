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
is written where release 0.1.0 has to read it, and may have ``prepared``, which that release passes over, as it does the
two names of releases. Readers pass over entries that they do not know as long as they know the number, and a release
before the oldest reader refuses the manifest. Manifests of version 2 that name no releases are read.

``"bridge":["commit id",[[sequence,"commit id",rows,bytes,checksum],…]]`` follows the bases where there is a way across
the snapshot: the deltas that lead from an earlier commit to it, the last of which has the changes of the snapshot's own
commit. It is for local copies that stand before the snapshot. The state is complete without it, and so is the manifest
for a release that passes over it.

Version 4 has snapshots that are written in steps (``millpond.stores.durability.manifests.parts``):

- ``"parts":[since,[sequence,…]]`` follows the bases where the snapshot was written in steps. It has no file, and its
  checksum is 0: its rows are the parts in the files of these deltas, since the commit with the number ``since``.
- ``"unfinished":["commit id",deltas,rows,[[sequence,rows],…],[sequence,…]]`` follows where a snapshot is being written:
  its commit; the number of deltas gathered, and of rows taken of the snapshot before; the runs that deltas were
  gathered into, with the rows taken of each; and the parts.
- A delta whose file has a part has two numbers more, ``[…,checksum,rows of the part,bytes of the part]``.
- A base that was written in steps is ``[sequence,since]``.

It is written only if there is any of these, and may have ``prepared``.

The state is the snapshot and then each delta over it, in order; its commit id and sequence are those of the last file.
``bases`` are the sequences of earlier snapshots, for the garbage collection
(``millpond.stores.durability.manifests.garbage``).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, Final, Self

from millpond.errors import DamagedRecordError, FormatError
from millpond.releases import RELEASE, Numbered, Release, check_reader, oldest_reader
from millpond.stores.durability.manifests.base import Base
from millpond.stores.durability.manifests.bridge import Bridge
from millpond.stores.durability.manifests.parts import Parts, Unfinished
from millpond.stores.durability.storage.checked_text import check_text, checked_text, read_text
from millpond.stores.durability.storage.durable_file import (
    DurableFile,
    FileKind,
    durable_file,
    new_commit_id,
    read_id,
)
from millpond.stores.specs.directory import check_plain_name

MANIFEST_VERSION: Final = 2
"""The version that is written as long as nothing needs a later one."""

PREPARED_VERSION: Final = 3

PARTS_VERSION: Final = 4

_UNCHECKED: Final = 1
"""The version without a checksum."""

_USUAL_READER: Final = oldest_reader(Numbered.MANIFEST, MANIFEST_VERSION)

_READER_OF_PARTS: Final = oldest_reader(Numbered.MANIFEST, PARTS_VERSION)

TASK_ID: Final = re.compile(r"\d+_\d+")
"""The form of the id of a task, and of its directory: the numbers of its sub-topology and its partition."""

NO_COMMIT: Final = ""
"""The commit id of the empty state, before the first commit."""


@dataclass(frozen=True)
class Manifest:
    """One version of one task's state.

    ``lineage`` is an id drawn at the task's first commit and handed on from manifest to manifest. It keeps apart the
    files of two queries that use the same application and state directory by mistake, and the files of a query that
    starts anew.

    ``bridge`` is the way from earlier commits to the snapshot, if there is one; its files may be gone.

    With ``parts``, ``snapshot`` is no file, but stands for all of them. ``unfinished`` is the
    next snapshot, as far as it is written.

    ``oldest_reader`` is the oldest release that reads it and all its files; it is no part of the version's identity.
    """

    application_id: str
    task_id: str
    fingerprint: str
    lineage: str
    snapshot: DurableFile | None = None
    deltas: tuple[DurableFile, ...] = ()
    bases: tuple[Base, ...] = ()
    prepared: tuple[str, ...] = ()
    bridge: Bridge | None = None
    parts: Parts | None = None
    unfinished: Unfinished | None = None
    oldest_reader: Release = field(default=_USUAL_READER, compare=False)

    @classmethod
    def empty(cls, application_id: str, task_id: str, fingerprint: str) -> Self:
        """Return the manifest of a task that has no state yet."""
        return cls(application_id, task_id, fingerprint, new_commit_id())

    @property
    def base(self) -> tuple[DurableFile, ...]:
        """The file of the snapshot, or its parts in the order of their rows, which are one run."""
        if self.snapshot is None:
            return ()
        return (self.snapshot,) if self.parts is None else self.parts.files

    @property
    def files(self) -> tuple[DurableFile, ...]:
        """All files, in the order in which they apply; one that has a part of the snapshot is there twice."""
        return (*self.base, *self.deltas)

    @property
    def stored(self) -> tuple[DurableFile, ...]:
        """The files as a storage has them, each once."""
        return tuple({file.name: file for file in self.files}.values())

    @property
    def named(self) -> tuple[DurableFile, ...]:
        """All files that it names: those of the version, and those of the bridge."""
        return self.files if self.bridge is None else (*self.bridge.deltas, *self.files)

    @property
    def _last(self) -> DurableFile | None:
        return self.deltas[-1] if self.deltas else self.snapshot

    @property
    def commit(self) -> str:
        """The id of the commit that made this version; ``NO_COMMIT`` for the empty state."""
        return NO_COMMIT if self._last is None else self._last.commit

    @property
    def sequence(self) -> int:
        """The number of commits that led here; 0 for the empty state."""
        return 0 if self._last is None else self._last.sequence

    @property
    def delta_bytes(self) -> int:
        return sum(file.own_size for file in self.deltas)

    @property
    def directory(self) -> str:
        """The directory of the files, below the storage's root."""
        return f"{self.application_id}/{self.task_id}/{self.lineage}"

    def path(self, file: DurableFile) -> str:
        return f"{self.directory}/{file.name}"

    def with_delta(self, file: DurableFile, reader: Release = _USUAL_READER) -> "Manifest":
        """Return the next version: this one and a delta over it, with ``reader`` as its oldest reader."""
        return replace(self, deltas=(*self.deltas, file), oldest_reader=max(self.oldest_reader, reader))

    def with_step(self, file: DurableFile, unfinished: Unfinished) -> "Manifest":
        """Return the next version: this one and a delta over it, whose file has one more part of a snapshot."""
        return replace(self.with_delta(file, _READER_OF_PARTS), unfinished=unfinished)

    def with_snapshot(
        self,
        file: DurableFile,
        bases: tuple[Base, ...],
        reader: Release = _USUAL_READER,
        delta: DurableFile | None = None,
    ) -> "Manifest":
        """Return the next version: a snapshot alone, with ``reader`` as its oldest reader.

        Args:
            file: the snapshot.
            bases: the sequences of earlier snapshots to remember.
            reader: the oldest release to read it.
            delta: the changes of the same commit, if they were written, too.
        """
        bridge = None if delta is None else self._bridge_to(file, (*self.deltas, delta))
        return replace(
            self,
            snapshot=file,
            deltas=(),
            bases=bases,
            bridge=bridge,
            parts=None,
            unfinished=None,
            oldest_reader=reader,
        )

    def with_finished(self, bases: tuple[Base, ...]) -> "Manifest":
        """Return this version with the unfinished snapshot, whose last part is written, and the deltas after it.

        Args:
            bases: the sequences of earlier snapshots to remember.
        """
        assert self.unfinished is not None, "there is none"
        parts = self.unfinished.parts
        before = self.up_to(self.unfinished.commit)
        rows, size = (sum(sizes) for sizes in ([one.own_rows for one in parts], [one.own_size for one in parts]))
        snapshot = DurableFile(FileKind.SNAPSHOT, before.sequence, before.commit, rows, size, 0)
        return replace(
            self,
            snapshot=snapshot,
            deltas=self.deltas[len(before.deltas) :],
            bases=bases,
            bridge=self._bridge_to(snapshot, before.deltas),
            parts=Parts(self.sequence, parts),
            unfinished=None,
        )

    def _bridge_to(self, snapshot: DurableFile, deltas: tuple[DurableFile, ...]) -> Bridge:
        assert self.snapshot is not None, "the first commit is a snapshot, and has nothing before it"
        before = self.bridge or Bridge(self.snapshot.commit, ())
        commits = [*before.commits, *(file.commit for file in deltas)]
        return Bridge.to(snapshot, commits, (*before.deltas, *deltas))

    def after(self, commit: str) -> tuple[DurableFile, ...] | None:
        """Return the deltas from the state at ``commit`` to this one; None if that commit is not in this manifest."""
        commits = [NO_COMMIT] if self.snapshot is None else [self.snapshot.commit]
        commits += [delta.commit for delta in self.deltas]
        return self.deltas[commits.index(commit) :] if commit in commits else None

    def across(self, commit: str) -> tuple[DurableFile, ...] | None:
        """Return the deltas of the bridge that lead from the state at ``commit`` to the snapshot; None if none do."""
        return None if self.bridge is None else self.bridge.after(commit)

    def includes(self, commit: str) -> bool:
        """Return whether ``commit`` is known to be this version or one that it comes from."""
        return self.after(commit) is not None or self.across(commit) is not None

    def up_to(self, commit: str) -> "Manifest":
        """Return the version as of ``commit``, which wrote one of its files and can be undone or replayed."""
        wanted = [file.commit for file in self.deltas]
        count = wanted.index(commit) + 1 if commit in wanted else 0
        return replace(self, deltas=self.deltas[:count], unfinished=None)

    @property
    def _version(self) -> int:
        """The version of the format in which it is written."""
        if self.oldest_reader < _USUAL_READER:
            return _UNCHECKED
        if self._has_steps:
            return PARTS_VERSION
        return PREPARED_VERSION if self.prepared else MANIFEST_VERSION

    @property
    def _has_steps(self) -> bool:
        """True if it names any part of a snapshot that is or was written in steps."""
        files = (*(() if self.bridge is None else self.bridge.deltas), *self.deltas)
        in_steps = self.parts is not None or self.unfinished is not None
        return in_steps or any(file.part_rows for file in files) or any(base.in_steps for base in self.bases)

    def to_json(self) -> str:
        version = self._version
        known = oldest_reader(Numbered.MANIFEST, version)
        content: dict[str, Any] = {
            "millpond": version,
            "application": self.application_id,
            "task": self.task_id,
            "fingerprint": self.fingerprint,
            "lineage": self.lineage,
            "snapshot": None if self.snapshot is None else self.snapshot.fields,
            "deltas": [delta.fields for delta in self.deltas],
            "bases": [base.content() for base in self.bases],
        }
        if self.parts is not None:
            content["parts"] = self.parts.content()
        if self.unfinished is not None:
            content["unfinished"] = self.unfinished.content()
        if self.prepared:
            content["prepared"] = self.prepared
        if self.bridge is not None:
            content["bridge"] = self.bridge.content()
        content |= {"written_by": RELEASE, "oldest_reader": str(max(self.oldest_reader, known))}
        return json.dumps(content, separators=(",", ":")) if version == _UNCHECKED else checked_text(content)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the manifest that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, is older than those that may read it, or the text is
                not a manifest.
        """
        content = _parsed(text)
        version = content.get("millpond")
        if type(version) is not int or version not in range(_UNCHECKED, PARTS_VERSION + 1):
            raise FormatError(
                f"a manifest has version {version!r}, but this release of Millpond knows versions {_UNCHECKED} to "
                f"{PARTS_VERSION}; run {_able(content)}"
            )
        try:
            if version != _UNCHECKED:
                check_text(text)
            oldest = _oldest_reader(content, version)
            snapshot = content["snapshot"]
            deltas = tuple(durable_file(FileKind.DELTA, delta) for delta in content["deltas"])
            manifest = cls(
                application_id=_name(content["application"]),
                task_id=_name(content["task"]),
                fingerprint=read_text(content["fingerprint"]),
                lineage=read_id(content["lineage"]),
                snapshot=None if snapshot is None else durable_file(FileKind.SNAPSHOT, snapshot),
                deltas=deltas,
                bases=tuple(map(Base.of, content["bases"])),
                prepared=tuple(map(_name, content.get("prepared", ()))),
                bridge=None if "bridge" not in content else Bridge.of(content["bridge"]),
                parts=Parts.of(content["parts"], deltas) if "parts" in content else None,
                unfinished=Unfinished.of(content["unfinished"], deltas) if "unfinished" in content else None,
                oldest_reader=oldest,
            )
            manifest._check_chain()
            if manifest._has_steps and version != PARTS_VERSION:
                raise ValueError("it has a snapshot in steps")
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedRecordError(
                f"a manifest of version {version} is damaged ({error!r}): {_told(text)}"
            ) from error
        return manifest

    def _check_chain(self) -> None:
        """Check that each file belongs to the commit after the one before, and that a bridge ends at the snapshot."""
        bridge = () if self.bridge is None else self.bridge.deltas
        own = self.deltas if self.snapshot is None else (self.snapshot, *self.deltas)
        for before, after in chain(pairwise(own), pairwise(bridge)):
            if after.sequence != before.sequence + 1:
                raise ValueError(f"commit {after.sequence} follows commit {before.sequence}")
        ends = None if self.snapshot is None else self.snapshot[1:3]
        if self.bridge is not None and (not bridge or bridge[-1][1:3] != ends):
            raise ValueError("the bridge does not end at the snapshot")


def _able(content: Mapping[str, Any]) -> str:
    """Return words for the release that can read a manifest of a later version, as far as it tells."""
    oldest, writer = content.get("oldest_reader"), content.get("written_by")
    if isinstance(oldest, str) and isinstance(writer, str):
        return f"release {oldest} or a newer one (it was written by {writer})"
    return "the release that wrote it, or a newer one"


def _oldest_reader(content: Mapping[str, Any], version: int) -> Release:
    """Return the oldest release that reads a manifest of a known version.

    Raises:
        FormatError: it is later than this release.
        TypeError, ValueError: it names no release.
    """
    known = oldest_reader(Numbered.MANIFEST, version)
    if "oldest_reader" not in content:
        return known
    oldest = read_text(content["oldest_reader"])
    check_reader(f"the manifest of task {content['task']!r}", oldest, read_text(content["written_by"]))
    return max(known, Release.of(oldest))


def _name(value: Any) -> str:
    """Return a name that becomes a directory's, so it must not lead out of the state directory."""
    check_plain_name("the name", value)
    return read_text(value)


def _parsed(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_manifest(text) from error
    if not isinstance(content, dict):
        raise _no_manifest(text)
    return content


def _no_manifest(text: str) -> FormatError:
    return DamagedRecordError(f"this is not a manifest: {_told(text)}")


def _told(text: str) -> str:
    return f"{text[:200]!r}; put an undamaged copy of the checkpoint back"

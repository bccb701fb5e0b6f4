"""Verification of local copies: the seal holds, and the rows are those of the durable files.

Rule of this module: a copy stays as it is, and is held only while its files are duplicated, under the lease of its
task. Engines open only the duplicate: opening changes files, and damaged files may end the process. No configuration is
needed, because the paths of a copy tell backend, store and format version.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    ConfigurationError,
    DurabilityError,
    FormatError,
    LocalDirectoryError,
    StoreFullError,
)
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.own_files import FOLLOWED_NOT, first_link
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.checking.findings import Finding, Severity, Subject
from millpond.stores.durability.copies.clean_shutdown import DIED, CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.durability.copies.position import NOWHERE, Position, position_of
from millpond.stores.durability.copies.restore import entries
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import open_version

_DIRECTORY: Final = re.compile(r"(.+?)(?:-v(\d+))?")
_NEVER_SEALED: Final = 0
_PATIENCE: Final = 60.0
"""The seconds to wait for a micro-batch to release a copy that is to be deleted."""

_SHOWN: Final = 3
_SHOWN_BYTES: Final = 32

_Row: TypeAlias = tuple[bytes, bytes]
_Verdict: TypeAlias = tuple[Severity, Subject, str]
_Look: TypeAlias = Callable[[str, FormatVersion, Backend], _Verdict | None]


@dataclass(frozen=True)
class CopyPlace:
    """The local copy of one store of one task, as its path tells.

    Attributes:
        directory: ``<local_dir>/<application_id>/<task_id>/<backend>/<store>``, with the suffix of its format version.
    """

    directory: Path

    @property
    def task(self) -> Path:
        """The directory of the task, which has the lease."""
        return self.directory.parents[1]

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self.directory.parent.name

    @property
    def store(self) -> str:
        """The store's name."""
        return self._parts[0]

    @property
    def version(self) -> FormatVersion:
        """The format version.

        Raises:
            ValueError: this release does not know it.
        """
        return FormatVersion(int(self._parts[1] or FormatVersion.PLAIN))

    @property
    def _parts(self) -> Sequence[str]:
        match = _DIRECTORY.fullmatch(self.directory.name)
        assert match is not None, "no directory has an empty name"
        return match.groups()


def copies_of(local_dir: Path, manifest: Manifest) -> list[CopyPlace]:
    """Return the local copies of the stores of a manifest's task below ``local_dir``."""
    found = (local_dir / manifest.application_id / manifest.task_id).glob("[!.]*/[!.]*")
    return [CopyPlace(directory) for directory in sorted(found) if directory.is_dir()]


def verify_copies(
    storage: Storage, manifest: Manifest, places: Iterable[CopyPlace], newest: Callable[[], Manifest | None]
) -> list[Finding]:
    """Return what is wrong with the local copies of one task's stores, which may be in use.

    Args:
        storage: the place of the durable files.
        manifest: the newest manifest of the task.
        places: the copies.
        newest: returns the manifest that is newest by now, for a copy that a job has moved on meanwhile.

    Raises:
        StoreError: a local directory cannot be used, or has no room for a duplicate of a copy.
    """
    findings = []
    for place in places:  # one after the other: there is one lease for all of them
        verdict = _verdict(place, partial(_content_verdict, storage, manifest, newest))
        if verdict is not None:
            where = str(place.directory)
            findings.append(Finding(*verdict[:2], manifest.application_id, manifest.task_id, where, verdict[2]))
    return findings


def _verdict(place: CopyPlace, look: _Look) -> _Verdict | None:
    try:
        opener, version = supplier(place.backend), place.version
    except (ConfigurationError, ValueError) as error:
        return _unchecked(f"this installation cannot open it: {error}")
    link = first_link(place.task, place.directory.relative_to(place.task).as_posix())
    if link is not None:
        return _unchecked(f"{link} is {FOLLOWED_NOT}")
    try:
        with _duplicated(place) as duplicate:
            if not duplicate.exists():
                return None
            reason = CleanShutdownMarker(duplicate, checked_by_engine=opener.checksums, limit=_NEVER_SEALED).fault()
            if reason is not None:
                return _untrusted(reason) if reason == DIED else _broken(reason)
            return _opened_verdict(opener, duplicate, place.store, version, look)
    except (BackendInUseError, BackendUnavailableError) as error:
        return _unchecked(str(error))


@contextmanager
def _duplicated(place: CopyPlace) -> Iterator[Path]:
    """The copy's files and its seal as they are while nobody writes them; nothing where the copy has gone."""
    lease = Lease(place.task, timeout=0.0)
    lease.acquire()
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(TemporaryDirectory(prefix=".verifying-", dir=place.task.parent))
            duplicate = Path(temporary, place.directory.name)
            with suppress(FileNotFoundError):
                copytree(place.directory, duplicate, symlinks=True)
                copyfile(seal_path(place.directory), seal_path(duplicate), follow_symlinks=False)
        except OSError as error:
            raise LocalDirectoryError(
                f"the local copy {place.directory} cannot be duplicated for reading: {error}; check room and access"
            ) from error
        finally:
            lease.release()
        yield duplicate


def _opened_verdict(
    opener: BackendSupplier, directory: Path, store: str, version: FormatVersion, look: _Look
) -> _Verdict | None:
    try:
        with open_version(opener, directory, version, store) as backend:
            return look(store, version.content, backend)
    except (BackendUnavailableError, StoreFullError):
        raise
    except BackendError as error:
        return _broken(str(error))


def _content_verdict(
    storage: Storage,
    manifest: Manifest,
    newest: Callable[[], Manifest | None],
    store: str,
    version: FormatVersion,
    backend: Backend,
) -> _Verdict | None:
    position = position_of(backend)
    if position == NOWHERE:
        return None
    if position is None:
        return _untrusted("it is of another boot of the machine, or has no position")
    wanted = _version_at(manifest, position) or _version_at(newest() or manifest, position)
    if wanted is None:
        return _untrusted(f"it is at no commit of the manifest ({manifest.commit}), but at {position.commit}")
    held = (row for row in backend.scan() if row[0] != COMMIT_ROW)
    try:
        count, first = _differences(held, iter(entries(storage, wanted, store, version)))
    except (DurabilityError, FormatError) as error:
        return _unchecked(f"its files are as they were sealed, but there is nothing to compare its rows with: {error}")
    if not count:
        return None
    return _broken(f"{count} rows are not those of the durable files at commit {wanted.sequence}: {'; '.join(first)}")


def _version_at(manifest: Manifest, position: Position) -> Manifest | None:
    """Return the version that a copy at ``position`` holds; None if ``manifest`` does not lead there."""
    if manifest.after(position.commit) is not None:
        return manifest.up_to(position.commit)
    before = position.branched_from(manifest)
    return None if before is None or position.file is None else before.with_delta(position.file)


def _differences(held: Iterator[_Row], durable: Iterator[_Row]) -> tuple[int, list[str]]:
    """Return how many keys have other values in two streams of rows in key order, and the first of them, as text."""
    count = 0
    first: list[str] = []
    mine, theirs = next(held, None), next(durable, None)
    while mine is not None or theirs is not None:
        if mine == theirs:
            mine, theirs = next(held, None), next(durable, None)
            continue
        count += 1
        left = mine if theirs is None or (mine is not None and mine[0] <= theirs[0]) else None
        right = theirs if mine is None or (theirs is not None and theirs[0] <= mine[0]) else None
        if len(first) < _SHOWN:
            first.append(_told(left, right))
        mine = next(held, None) if left is not None else mine
        theirs = next(durable, None) if right is not None else theirs
    return count, first


def _told(held: _Row | None, durable: _Row | None) -> str:
    if held is None:
        return f"row {_hex(durable[0])} is missing" if durable is not None else ""
    if durable is None:
        return f"row {_hex(held[0])} should not be there"
    return f"row {_hex(held[0])} is {_hex(held[1])} instead of {_hex(durable[1])}"


def _hex(data: bytes) -> str:
    return data[:_SHOWN_BYTES].hex() + ("…" if len(data) > _SHOWN_BYTES else "")


def _broken(what: str) -> _Verdict:
    return Severity.HEALABLE, Subject.COPY, what


def _untrusted(what: str) -> _Verdict:
    return Severity.HARMLESS, Subject.UNTRUSTED_COPY, what


def _unchecked(what: str) -> _Verdict:
    return Severity.HARMLESS, Subject.UNCHECKED_COPY, what


def discard_copy(directory: Path) -> None:
    """Delete a local copy, and its seal; the next start restores it.

    Args:
        directory: its path, as a finding names it.

    Raises:
        ConfigurationError: this installation has no such backend.
        BackendInUseError: a job has it open.
        StoreError: it cannot be deleted.
    """
    place = CopyPlace(directory)
    lease = Lease(place.task, _PATIENCE)
    lease.acquire()
    try:
        delete_local_copy(supplier(place.backend), directory)
        seal_path(directory).unlink(missing_ok=True)
    finally:
        lease.release()

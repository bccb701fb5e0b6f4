"""The seal of a local copy at rest: its files as they were when its engine closed them.

Rule of this module: it knows files, no rows and no engine. A copy without a seal is thrown away instead of opened,
which covers three ways for a copy to be wrong:

- Bytes that have changed on the disk: the seal has checksums of all files, and is broken before the engine sees them.
  An engine with checksums of its own vouches for its large files, but not for the small ones that describe them: one
  bit in a manifest of RocksDB makes it read the same record for ever.
- A copy that kills the process that opens it: the seal is taken off before the engine opens the copy, so the next
  process finds none.
- A process that died with the copy open. An engine with checksums gets a new seal as soon as it is open, because it
  tells by itself what it has lost; the files of any other engine cannot be told from damaged ones.

For an engine with checksums, a death while it opens a copy proves nothing against the copy, as most processes that die
there were killed. So a note that the copy is being opened takes the place of the seal, and one more attempt is made.
That attempt compares nothing: the first one did, and since then the engine may have written files, as in a copy that is
open.

The seal is the file ``.<directory>.seal`` beside the directory. While an engine with checksums opens the copy, the seal
says ``opening``, and while the copy is open, nothing. For a copy at rest it says::

    {"data.mdb":[bytes,"XXH3 of 64 bits"],…}

Digests are null where the files together have more bytes than the limit, and for files that an engine with checksums
vouches for; of such files only names and sizes are compared. A seal that is made often has a low limit. If no engine
vouches for the files, it has stamps in place of such digests, an @ and what every write changes according to the
system: ``{"data.mdb":[bytes,"@inode-ctime"]}``.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from xxhash import xxh3_64

from millpond.stores.backend.own_files import link_refused, no_link, refuse_links
from millpond.stores.durability.storage.checked_text import read_count

_Files: TypeAlias = dict[str, tuple[int, str | None]]

_SMALL: Final = 1 << 20
"""The bytes above which an engine with checksums vouches for a file."""

_OPEN: Final = ""
_OPENING: Final = "opening"

_STAMP: Final = "@"

_CHUNK: Final = 1 << 20

DIED: Final = "whoever opened it last died with it open"
"""The only reason that is no damage: there is no seal."""


def seal_path(directory: Path) -> Path:
    """Return the path of the seal of ``directory``."""
    return directory.with_name(f".{directory.name}.seal")


class CleanShutdownMarker:
    """The seal of ``directory``.

    Args:
        directory: the directory of an engine's files.
        checked_by_engine: whether the engine finds damaged bytes by itself.
        limit: the most bytes of a directory whose content is compared.
        stamped: whether to notice, beyond that limit, that another process has written a file.

    Attributes:
        proven: whether the directory is known to hold what its engine wrote; the engine's own checksums count.
        size: the bytes of its files when the engine last closed them; None while it is open, or if there is none.
    """

    def __init__(self, directory: Path, *, checked_by_engine: bool, limit: int, stamped: bool = False) -> None:
        self._directory = directory
        self._path = seal_path(directory)
        self._checked_by_engine = checked_by_engine
        self._limit = limit
        self._stamped = stamped and not checked_by_engine
        self.proven = True
        self.size: int | None = None

    def take_off(self) -> str | None:
        """Take the seal off, before the engine opens the directory.

        Returns:
            The reason not to open the directory; None if it may be opened: it is as it was sealed, or there is none.
        """
        again = False
        try:
            try:
                seal = self._read()
                reason = self._broken(seal)
                again = reason is None and self._checked_by_engine and seal != _OPENING and self._directory.exists()
            finally:
                self._begin_opening(again)
            return reason
        except OSError as error:
            return f"its files cannot be read: {error}"

    def _begin_opening(self, again: bool) -> None:
        """Note that the engine is about to open the directory; ``again`` allows another attempt after a death."""
        try:
            if again:
                self._put(_OPENING)
        except OSError:
            again = False
        finally:
            if not again:
                self._path.unlink(missing_ok=True)

    def strangers(self) -> list[str]:
        """Return the files that are new since the directory was closed; none if no seal tells.

        Raises:
            OSError: they cannot be listed.
        """
        sealed = _parsed(self._read())
        return [] if sealed is None else sorted(_sizes(str(self._directory)).keys() - sealed.keys())

    def fault(self) -> str | None:
        """Return what ``take_off`` would return, and change nothing."""
        try:
            return self._broken(self._read())
        except OSError as error:
            return f"its files cannot be read: {error}"

    def _broken(self, seal: str | None) -> str | None:
        self.proven = True
        if not self._directory.exists():
            return None
        if self._checked_by_engine and seal in (_OPEN, _OPENING):
            return None
        sealed = _parsed(seal)
        if sealed is None:
            return DIED
        compared = {
            name for name, (_, digest) in sealed.items() if digest is not None and not str(digest).startswith(_STAMP)
        }
        self.proven = self._checked_by_engine or len(compared) == len(sealed)
        return _difference(sealed, self._files(_sizes(str(self._directory)), compared.__contains__))

    def tidy(self) -> None:
        """Delete the rest of the seal of a directory that has gone."""
        with suppress(OSError):
            if not self._directory.exists():
                self._path.unlink(missing_ok=True)

    def opened(self) -> None:
        """Note that the engine has opened the directory without harm."""
        self.size = None
        if self._checked_by_engine and self._directory.exists():
            self._write(_OPEN)

    def closed(self) -> None:
        """Seal the directory, which the engine has closed. One that cannot be read gets no seal, so it is restored."""
        with suppress(OSError):
            self._seal_files()

    def _seal_files(self) -> None:
        if not self._directory.exists():
            return
        sizes = _sizes(str(self._directory))
        self.size = sum(sizes.values())
        whole = self.size <= self._limit
        digested = (lambda name: sizes[name] <= _SMALL) if self._checked_by_engine else (lambda _: whole)
        self._write(json.dumps(self._files(sizes, digested)))

    def _files(self, sizes: Mapping[str, int], digested: Callable[[str], bool]) -> _Files:
        """Return the entries of the seal for files of these sizes."""
        return {name: (size, self._mark(name, size, digested(name))) for name, size in sizes.items()}

    def _mark(self, name: str, size: int, digested: bool) -> str | None:
        path = os.path.join(self._directory, name)
        if digested:
            return _digest(path, size)
        return _stamp(path) if self._stamped else None

    def _write(self, seal: str) -> None:
        # Without its seal the copy is restored, so a full disk is no reason to fail a commit that is done.
        with suppress(OSError):
            self._put(seal)

    def _put(self, seal: str) -> None:
        with open(self._path, "w", opener=no_link) as file:
            file.write(seal)

    def _read(self) -> str | None:
        try:
            with open(self._path, errors="replace", opener=no_link) as file:
                return file.read()
        except FileNotFoundError:
            return None


def _parsed(seal: str | None) -> _Files | None:
    """Return the content of a seal; None if it makes no sense."""
    try:
        return {str(name): (read_count(size), digest) for name, (size, digest) in json.loads(seal or "").items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _sizes(directory: str, below: str = "") -> dict[str, int]:
    """Return the sizes of all files in a directory, by their paths from there; a link is refused."""
    sizes: dict[str, int] = {}
    if not below:
        refuse_links(Path(directory))
    with os.scandir(os.path.join(directory, below)) as entries:
        for entry in entries:
            name = os.path.join(below, entry.name)
            if entry.is_symlink():
                raise link_refused(entry.path)
            if entry.is_dir(follow_symlinks=False):
                sizes |= _sizes(directory, name)
            elif entry.is_file():
                sizes[name] = entry.stat().st_size
    return sizes


def _digest(path: str, size: int) -> str:
    digest, chunk = xxh3_64(), memoryview(bytearray(min(size, _CHUNK)))
    # Not mapped: an unreadable page of a map ends the process.
    with open(path, "rb", buffering=0, opener=no_link) as file:
        while read := file.readinto(chunk):
            digest.update(chunk[:read])
    return digest.hexdigest()


def _stamp(path: str) -> str:
    status = os.stat(path)
    return f"{_STAMP}{status.st_ino}-{status.st_ctime_ns}"


def _difference(sealed: _Files, found: _Files) -> str | None:
    """Return the first difference between two lists of files, in words; None if they are equal."""
    for name in sorted(sealed.keys() | found.keys()):
        before, now = sealed.get(name), found.get(name)
        if before == now:
            continue
        if before is None or now is None:
            return f"its file {name} has {'gone' if now is None else 'come'} since it was closed"
        if before[0] != now[0]:
            return f"its file {name} has {now[0]} bytes, but had {before[0]} when it was closed"
        return f"its file {name} has changed since it was closed"
    return None

"""Millpond's own files on a local disk, made and opened through no link, and readable by nobody else.

Rule of this module: it knows paths, no stores. A user who can write where our files are can put a symbolic link in the
place of one, to a file that only we may write. So below the directories that a user names (which may be links
themselves) no link is followed: a file is opened with ``O_NOFOLLOW``, the directories above it are looked at before,
and the cleaning of directories asks the same functions. Looking first does not help against somebody who changes
directories at the same moment; the modes of the directories prevent that.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLLOWED_NOT: Final = "a symbolic link, which is not followed"
NOT_OURS: Final = f"is {FOLLOWED_NOT}; delete it, it is none of Millpond's"

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_CLOSED_IN_CHILDREN: Final = getattr(os, "O_CLOEXEC", 0)
_IS_LINK: Final = {errno.ELOOP, errno.EMLINK}
"""The error numbers of systems for a link that is not to be followed."""

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


def is_link(path: str | Path) -> bool:
    """Return whether there is a symbolic link of that name, wherever it leads."""
    return os.path.islink(path)


def first_link(root: str | Path, below: str) -> str | None:
    """Return the first link on the way from a directory, which may be one itself, to a path below it; None if none is.

    Args:
        root: the directory.
        below: the path from there, with ``/``.
    """
    place = os.fspath(root)
    for part in below.split("/"):
        place = os.path.join(place, part)
        if is_link(place):
            return place
    return None


def refuse_links(path: Path, levels: int = 1) -> None:
    """Refuse a path whose last ``levels`` parts have a link among them.

    Raises:
        OSError: it has.
    """
    place = os.fspath(path)
    for _ in range(levels):
        if is_link(place):
            raise link_refused(place)
        place = os.path.dirname(place)


def link_refused(path: str | Path) -> OSError:
    """Return the error for a link that is to be opened."""
    return OSError(errno.ELOOP, FOLLOWED_NOT, os.fspath(path))


def links_below(directory: str | Path) -> Iterator[str]:
    """Yield the paths of all links below a directory; none if it is not there.

    Raises:
        OSError: it cannot be listed.
    """
    try:
        with os.scandir(directory) as entries:
            found = list(entries)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_symlink():
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from links_below(entry.path)


def no_link(path: str, flags: int) -> int:
    """Return a descriptor of a file that is no link, for ``opener=`` of ``open``; a new one is for this user alone.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    if not _NO_FOLLOW and is_link(path):
        raise link_refused(path)
    try:
        return os.open(path, flags | _NO_FOLLOW | _CLOSED_IN_CHILDREN, _FILE_MODE)
    except OSError as error:
        if error.errno in _IS_LINK and is_link(path):
            raise link_refused(path) from error
        raise


def make_private(directory: Path) -> None:
    """Make a directory unless it is there, and those above it that are missing, each for this user alone.

    One that is there keeps its mode.

    Raises:
        OSError: it cannot be made.
    """
    try:
        directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
    except FileNotFoundError:
        if directory.parent == directory:
            raise
        make_private(directory.parent)
        directory.mkdir(_DIRECTORY_MODE, exist_ok=True)

"""The syncing that makes a file on a local file system survive a loss of power.

Rule of this module: it knows directories, but no storages. A file is safe once its bytes are synced, its entry in its
directory, and the entry of each directory in the one above. The process that made a directory may have ended before it
could sync it, so a process takes a directory for safe only after it has synced it, up to the root, itself.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath

from millpond.stores.backend.own_files import no_link

_safe: set[str] = set()
"""Directories whose own entries this process has synced, all the way up."""


def sync_file(path: str, root: str) -> None:
    """Sync a finished file below ``root``, and every directory on the way to it.

    Raises:
        OSError: the file system failed, or cannot sync.
    """
    _sync(path, no_link)
    directory = PurePath(path).parent
    _sync(str(directory))
    if str(directory) not in _safe:
        _sync_above(directory, PurePath(root))
        _safe.add(str(directory))


def directory_is_new(path: str) -> None:
    """Note that the directory of ``path`` did not exist, whatever was known of it."""
    _safe.discard(str(PurePath(path).parent))


def _sync_above(directory: PurePath, root: PurePath) -> None:
    for above in directory.parents:
        if above.is_relative_to(root):
            _sync(str(above))
        else:
            # Above the root most directories are somebody else's, and need not let themselves be opened.
            with suppress(OSError):
                _sync(str(above))


def _sync(path: str, opener: Callable[[str, int], int] = os.open) -> None:
    descriptor = opener(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The content of a directory after a kill of its process, or after a loss of power.

A kill leaves the files as they are. A loss of power leaves each file as it was when it was last synced. It leaves the
names that are there now, or the names that were there when the directory, or the file itself under that name, was last
synced: a file system may write either first.
"""

import os
from pathlib import Path
from shutil import copytree, ignore_patterns

from millpond.stores.testing.watching.system_calls import SYNCS, WRITES, Announced


class Disk:
    """The directory ``root``, whose files change only by calls that are shown here before they are done."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, int] = {}
        self._held: dict[int, int] = {}
        self._due: set[Path] = set()

    def has(self, call: Announced) -> bool:
        """Return whether a call may change or sync a file here."""
        path = call.path()
        return path is None or path.is_relative_to(self._root)

    def shown(self, call: Announced) -> None:
        """Note a call."""
        self._settle()
        path = call.path()
        if call.name in SYNCS:
            for synced in (path,) if path is not None and call.name != "syncfs" else self._all():
                self._keep(synced)
        elif call.name in WRITES and path is not None and call.syncs_what_it_writes():
            self._due.add(path)

    def copy(self, target: Path) -> None:
        """Copy what a kill would leave."""
        copytree(self._root, target, copy_function=_copy_file, ignore=ignore_patterns("*.sock"))

    def after_power_cut(self, target: Path, *, names_of_now: bool) -> None:
        """Write what a loss of power would leave, with the names of now or with those that are safe."""
        self._settle()
        now = {path: path.stat().st_ino for path in self._all() if path.is_file()}
        for directory in [self._root, *(path for path in self._all() if path.is_dir())]:
            (target / directory.relative_to(self._root)).mkdir(parents=True, exist_ok=True)
        for path, inode in (now if names_of_now else self._names).items():
            left = target / path.relative_to(self._root)
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_bytes(self._contents.get(inode, b""))

    def _all(self) -> list[Path]:
        return sorted(self._root.glob("**/*"))

    def _settle(self) -> None:
        """Keep the files that were written by a descriptor that syncs: they are safe once the next call comes."""
        for path in self._due:
            self._keep(path)
        self._due.clear()

    def _keep(self, path: Path) -> None:
        """Note that a file, or a directory, is safe as it is now."""
        if not path.is_relative_to(self._root) or not path.exists():
            return
        if path.is_dir():
            there = {entry: entry.stat().st_ino for entry in path.iterdir() if entry.is_file()}
            self._names = {name: inode for name, inode in self._names.items() if name.parent != path} | there
            return
        inode = path.stat().st_ino
        self._names[path] = inode
        self._contents[inode] = path.read_bytes()
        if inode not in self._held:  # a file that is open is there, so that no other gets its number
            self._held[inode] = os.open(path, os.O_RDONLY)

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)


def _copy_file(source: str, target: str) -> None:
    """Copy a file, unless it was renamed or deleted meanwhile."""
    try:
        Path(target).write_bytes(Path(source).read_bytes())
    except FileNotFoundError:
        return

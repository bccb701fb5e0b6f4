"""The remains of a directory after a loss of power: what was synced, and of the rest whatever is worst.

Only ``os.fsync`` is watched, and at each call the directory is looked at. What a file held when it was last synced is
safe, and so are the names that a directory held when it was last synced; all else may be there, in part, or not at all,
each thing independently of the others, because a file system may write in any order.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

Outcome: TypeAlias = Callable[[str], bool]
"""Whether something that was not synced survives: a ``name``, the ``data``, its ``length``, its ``front``."""


@dataclass
class Disk:
    """The directory ``root``, which is there and safe itself, and what of it is safe."""

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    """What each file held when it was last synced, by its inode."""
    names: dict[Path, dict[str, int]] = field(default_factory=dict)
    """What was in each directory when it was last synced: inodes by name."""

    @contextmanager
    def watched(self, before_sync: Callable[[], None]) -> Iterator[None]:
        """Learn from each sync below the root. ``before_sync`` is called first, when the most is at stake."""
        busy = False

        def fsync(descriptor: int) -> None:
            nonlocal busy
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if busy or not path.is_relative_to(self.root):
                return
            busy = True
            before_sync()
            busy = False
            if path.is_dir():
                self.names[path] = _names(path)
            else:
                self.contents[path.stat().st_ino] = path.read_bytes()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            yield

    def after_power_cut(self, target: Path, survives: Outcome) -> None:
        """Write to ``target`` what is left of the directory."""
        self._rebuild(self.root, target, survives)

    def _rebuild(self, source: Path, target: Path, survives: Outcome) -> None:
        target.mkdir(parents=True)
        safe, there = self.names.get(source, {}), _names(source)
        for name in sorted(safe | there):
            inode = (there if survives("name") else safe).get(name)
            if inode is None:
                continue
            if (source / name).is_dir() or source / name in self.names:
                self._rebuild(source / name, target / name, survives)
            else:
                now = (source / name).read_bytes() if there.get(name) == inode else None
                (target / name).write_bytes(self._left_of(inode, now, survives))

    def _left_of(self, inode: int, now: bytes | None, survives: Outcome) -> bytes:
        safe = self.contents.get(inode, b"")
        if now is None or now == safe:
            return safe
        if survives("data"):
            return now
        if survives("length"):
            return safe + bytes(len(now) - len(safe))
        return now[: len(now) // 2] if survives("front") else safe


def _names(directory: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(directory)} if directory.is_dir() else {}


def _by_chance(seed: int) -> Outcome:
    chance = random.Random(seed)
    return lambda _: chance.random() < 0.5


OUTCOMES: dict[str, Outcome] = {
    "nothing but what was synced": lambda _: False,
    "names without data": lambda what: what == "name",
    "names and zeros": lambda what: what in ("name", "length"),
    "any of it": _by_chance(1),
    "all of it": lambda _: True,
}

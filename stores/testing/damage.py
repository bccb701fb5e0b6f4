"""The part of the suite about bytes that have changed on the disk, wherever in a file they are.

Rule of this module: a damaged store is a copy, because an engine that opens one may change its files. Only files that
Millpond does not hash are damaged: of an engine with checksums, those of more than 1 MiB.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Final

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend, get_many
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.features import Feature
from millpond.stores.testing.sentences import CHANGED_ANYWHERE
from millpond.stores.testing.suite import Suite

_HASHED: Final = 2**20
"""Bytes of the largest file that Millpond hashes although its engine has checksums."""
_WRITES: Final = 30
_ROWS: Final = 40
"""Rows of each write."""
_PARTS: Final = 10
"""In each of so many parts of a file one byte is changed, and beside these the last one."""


class DamageSuite(Suite):
    """Damaged files."""

    def test_a_byte_that_has_changed_anywhere_in_a_large_file_is_found_or_changes_no_row(self, directory: Path) -> None:
        if not (self.supplier().checksums and self.has(Feature.FILES)):
            return
        chance = random.Random(0)
        rows = {b"%06d" % number: chance.randbytes(1_000 + number % 500) for number in range(_WRITES * _ROWS)}
        keys = list(rows)
        with self.open(directory) as backend:
            for first in range(0, len(keys), _ROWS):
                backend.write({key: rows[key] for key in keys[first : first + _ROWS]})
        large = [path for path in sorted(directory.glob("**/*")) if path.is_file() and path.stat().st_size > _HASHED]
        places = [(path, place) for path in large for place in _places(path, chance)]
        for number, (path, place) in enumerate(places):
            damaged = copytree(directory, directory.with_name(f"damaged-{number}"))
            _change(damaged / path.relative_to(directory), place)
            with CHANGED_ANYWHERE:
                self._check(damaged, rows, f"byte {place} of {path.name} has changed")

    def _check(self, damaged: Path, rows: dict[bytes, bytes], where: str) -> None:
        """Whoever reads ``rows`` in a damaged directory gets them, or is told that it is damaged."""
        reads: list[Callable[[Backend], Iterable[object]]] = [
            lambda backend: ((key, backend.get(key)) for key in rows),
            lambda backend: zip(rows, get_many(backend, list(rows)), strict=True),
            lambda backend: backend.scan(),
            lambda backend: reversed(list(backend.scan(reverse=True))),
        ]
        try:
            with self.supplier().open(damaged) as backend:
                for read in reads:
                    _whole_or_refused(lambda: check_same(read(backend), rows.items()))  # noqa: B023 (called at once)
        except CorruptStoreError:
            return
        except Exception as error:
            raise AssertionError(f"{where}; {type(error).__name__}: {error}") from error


def _whole_or_refused(check: Callable[[], None]) -> None:
    """``check`` passes, or what it reads is refused."""
    try:
        check()
    except CorruptStoreError:
        return


def _places(path: Path, chance: random.Random) -> Iterator[int]:
    """Places all over a file, in each part of it one, and its last byte."""
    size = path.stat().st_size
    for part in range(_PARTS):
        yield chance.randrange(size * part // _PARTS, size * (part + 1) // _PARTS)
    yield size - 1


def _change(path: Path, place: int) -> None:
    """Change one bit."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes((byte ^ 0x10,)))

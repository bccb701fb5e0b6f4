"""The part of the suite about bytes that have changed on the disk, wherever in a file they are.

Rule of this module: for an engine with checksums, the files that Millpond does not hash are damaged byte by byte: those
of more than 1 MiB. An engine without them may read wrong values from damaged files, but its errors are Millpond's.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from typing import Final

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend
from millpond.stores.testing.child import Child
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.features import Feature
from millpond.stores.testing.programs import garble, read_while_files_fail, rows_to_read, take_descriptors_away
from millpond.stores.testing.sentences import CHANGED_ANYWHERE, TRANSLATED
from millpond.stores.testing.suite import Suite

_HASHED: Final = 2**20
"""Bytes of the largest file that Millpond hashes although its engine has checksums."""
_WRITES: Final = 30
_ROWS: Final = 40
"""Rows of each write."""
_PARTS: Final = 10
"""The number of parts of a file in each of which one byte is changed; the last byte is changed besides."""


class DamageSuite(Suite):
    """Damaged files."""

    @CHANGED_ANYWHERE
    def test_a_byte_that_has_changed_anywhere_in_a_large_file_is_found_or_changes_no_row(self, directory: Path) -> None:
        if not (self.supplier().checksums and self.has(Feature.FILES)):
            return
        chance = random.Random(0)
        rows = {b"%06d" % number: chance.randbytes(1_000 + number % 500) for number in range(_WRITES * _ROWS)}
        self._fill(directory, rows)
        places = [(path, place) for path in _large(directory) for place in _places(path, chance)]
        for number, (path, place) in enumerate(places):
            damaged = copytree(directory, directory.with_name(f"damaged-{number}"))
            _change(damaged / path.relative_to(directory), place)
            with (
                CHANGED_ANYWHERE,
                _found_or_unseen(f"byte {place} of {path.name} has changed"),
                self.supplier().open(damaged) as backend,
            ):
                self._read(backend, rows)

    @CHANGED_ANYWHERE
    def test_a_byte_that_changes_in_a_large_file_while_it_is_open_is_found_or_changes_no_row(
        self, directory: Path
    ) -> None:
        if not (self.supplier().checksums and self.has(Feature.FILES)):
            return
        rows = rows_to_read()
        self._fill(directory, rows)
        self.open(directory).close()  # after which files that an opening tidies up are as they stay
        chance = random.Random(1)
        for path in _large(directory):
            for place in _places(path, chance):
                with CHANGED_ANYWHERE:
                    self._change_while_open(directory, path, place, rows)

    def _change_while_open(self, directory: Path, path: Path, place: int, rows: dict[bytes, bytes]) -> None:
        with (
            _found_or_unseen(f"byte {place} of {path.name} has changed while it was open"),
            self.supplier().open(directory) as backend,
        ):
            if not path.exists():
                return
            _change(path, place)
            try:
                self._read(backend, rows)
            finally:
                if path.exists():
                    _change(path, place)

    @TRANSLATED
    def test_whoever_reads_from_a_disk_that_is_gone_is_told_so_or_reads_what_was_written(self, directory: Path) -> None:
        verdicts = self._read_while(directory, take_descriptors_away)
        wrong = [line for line in verdicts if not line.endswith((" right", " refused"))]
        assert wrong == [], "where files cannot be read or written any more"

    @TRANSLATED
    def test_whoever_reads_files_that_are_overwritten_while_they_are_open_meets_no_other_errors(
        self, directory: Path
    ) -> None:
        verdicts = self._read_while(directory, garble)
        allowed = (" right", " refused") if self.supplier().checksums else (" right", " refused", " wrong")
        wrong = [line for line in verdicts if not line.endswith(allowed)]
        assert wrong == [], "where files have been overwritten"

    def _read_while(self, directory: Path, fail: Callable[[Path], None]) -> list[str]:
        """Return the output of a process that reads while files fail; an engine without checksums may die of it."""
        if not self.has(Feature.FILES):
            return []
        self._fill(directory, rows_to_read())
        with Child(read_while_files_fail, self.supplier(), directory, fail) as child:
            said = child.read_rest()
            status = child.wait()
        if said[-1:] != ["done"]:
            assert status < 0, f"the process has ended with {status}"
            assert not self.supplier().checksums, f"the process was killed by signal {-status}"
            return said
        return said[:-1]

    def _fill(self, directory: Path, rows: dict[bytes, bytes]) -> None:
        keys = list(rows)
        with self.open(directory) as backend:
            for first in range(0, len(keys), _ROWS):
                backend.write({key: rows[key] for key in keys[first : first + _ROWS]})

    def _read(self, backend: Backend, rows: dict[bytes, bytes]) -> None:
        """Check that all ways to read give ``rows``, or are refused."""
        reads: list[Callable[[], Iterable[object]]] = [
            lambda: ((key, backend.get(key)) for key in rows),
            lambda: zip(rows, backend.get_many(list(rows)), strict=True),
            lambda: (backend.last(key, key + b"\0") for key in rows),
            backend.scan,
            lambda: reversed(list(backend.scan(reverse=True))),
        ]
        for read in reads:
            with suppress(CorruptStoreError):
                check_same(read(), rows.items())


@contextmanager
def _found_or_unseen(where: str) -> Iterator[None]:
    """Accept work that finds damage or does without it; any other error becomes an ``AssertionError`` at ``where``."""
    try:
        yield
    except CorruptStoreError:
        return
    except Exception as error:
        raise AssertionError(f"{where}; {type(error).__name__}: {error}") from error


def _large(directory: Path) -> list[Path]:
    """Return the files that Millpond does not hash if their engine has checksums."""
    return [path for path in sorted(directory.glob("**/*")) if path.is_file() and path.stat().st_size > _HASHED]


def _places(path: Path, chance: random.Random) -> Iterator[int]:
    """Return places all over a file, one in each part of it, and its last byte."""
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

"""The parts that adapters are built of: walks over an engine's own iterator, errors, closed handles, directories."""

import errno
import gc
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import BackendError, StoreClosedError, StoreFullError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.engine import (
    Closed,
    ClosedEngine,
    Cursor,
    Entry,
    ErrorTranslator,
    OpenCursors,
    make_directory,
)
from tests.contract.test_example_backend import SUPPLIER

ENTRIES: list[Entry] = [(b"%04d" % number, b"") for number in range(3000)]


def _translate(error: BaseException) -> Exception | None:
    return BackendError("the engine failed") if isinstance(error, OverflowError) else None


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 23, 24, 25, 1000, 3000])
def test_a_walk_gives_each_entry_once_in_order(length: int) -> None:
    assert list(OpenCursors().walk(Cursor(iter(ENTRIES[:length]), None, False, _translate))) == ENTRIES[:length]


@pytest.mark.parametrize("place", [0, 1, 7, 8, 9, 100, 2999])
def test_a_bound_ends_the_walk_in_both_directions(place: int) -> None:
    bound = ENTRIES[place][0]
    assert list(OpenCursors().walk(Cursor(iter(ENTRIES), bound, False, _translate))) == ENTRIES[:place]
    backwards = ENTRIES[::-1]
    assert list(OpenCursors().walk(Cursor(iter(backwards), bound, True, _translate))) == backwards[: 3000 - place]


@pytest.mark.parametrize("wanted", [1, 9, 25, 100, 1000])
def test_a_walk_that_is_left_has_read_at_most_three_times_as_much(wanted: int) -> None:
    source = iter(ENTRIES)
    walk = OpenCursors().walk(Cursor(source, b"~", False, _translate))
    for _ in range(wanted):
        next(walk)
    read = len(ENTRIES) - len(list(source))
    assert wanted <= read <= max(8, 3 * wanted)


def proven(bound: bytes | None, reverse: bool, end: int) -> tuple[int, list[bytes | None]]:
    """Return how many entries a walk gives over an iterator that ends after ``end``, and what it has had proven."""
    asked: list[bytes | None] = []
    source = (ENTRIES[::-1] if reverse else ENTRIES)[:end]
    cursor = Cursor(iter(source), bound, reverse, _translate, prove=asked.append)
    return len(list(OpenCursors().walk(cursor))), asked


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("end", [0, 1, 7, 8, 9, 23, 24, 25, 2000])
def test_the_end_of_the_engines_iterator_is_proven_once_by_its_last_key(end: int, reverse: bool) -> None:
    last = ENTRIES[-end if reverse else end - 1][0] if end else None
    for bound in (None, b"" if reverse else b"~"):
        assert proven(bound, reverse, end) == (end, [last])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 7, 8, 9, 23, 24, 25, 2000])
def test_a_walk_that_ends_at_its_bound_needs_no_proof(taken: int, reverse: bool) -> None:
    bound = ENTRIES[-taken][0] if reverse and taken else b"~" if reverse else ENTRIES[taken][0]
    assert proven(bound, reverse, len(ENTRIES)) == (taken, [])


def test_a_walk_whose_end_is_not_proven_raises_also_when_it_is_detached() -> None:
    def refuse(last: bytes | None) -> None:
        raise OverflowError(last)

    def cursor(count: int) -> Cursor:
        return Cursor(iter(ENTRIES[:count]), None, False, _translate, prove=refuse)

    for count in (0, 5, 8, 500):
        with pytest.raises(BackendError, match="the engine failed"):
            list(OpenCursors().walk(cursor(count)))
        with pytest.raises(BackendError, match="the engine failed"):
            cursor(count).detach()


def test_a_detached_walk_is_proven_when_it_is_detached() -> None:
    asked: list[bytes | None] = []
    cursors = OpenCursors()
    scan = cursors.walk(Cursor(iter(ENTRIES), None, False, _translate, prove=asked.append))
    next(scan)
    cursors.detach()
    assert asked == [ENTRIES[-1][0]]
    assert len(list(scan)) == len(ENTRIES) - 1
    assert asked == [ENTRIES[-1][0]]


def test_a_detached_walk_goes_on_without_the_engine() -> None:
    source = iter(ENTRIES)
    cursors = OpenCursors()
    scan = cursors.walk(Cursor(source, b"2000", False, _translate))
    begun = [next(scan) for _ in range(10)]
    cursors.detach()
    assert next(source, None) is None
    assert begun + list(scan) == ENTRIES[:2000]


@pytest.mark.parametrize("read", [0, 1, 2, 5, 6])
def test_all_walks_that_are_held_are_detached_wherever_they_are(read: int) -> None:
    cursors = OpenCursors()
    sources = [iter(ENTRIES[:100]) for _ in range(3)]
    scans = [cursors.walk(Cursor(source, None, False, _translate)) for source in sources]
    begun = [[next(scan) for _ in range(read)] for scan in scans]
    cursors.detach()
    assert [next(source, None) for source in sources] == [None] * 3
    assert [entries + list(scan) for entries, scan in zip(begun, scans, strict=True)] == [ENTRIES[:100]] * 3


@pytest.mark.parametrize("bound", [None, b"~"])
def test_a_walk_for_one_entry_reads_one_from_the_engine(bound: bytes | None) -> None:
    source = iter(ENTRIES)
    walk = OpenCursors().walk(Cursor(source, bound, False, _translate))
    assert next(walk) == ENTRIES[0]
    assert next(source) == ENTRIES[1]


def test_a_walk_that_is_ended_raises_store_closed_error() -> None:
    cursors = OpenCursors()
    begun, untouched = (cursors.walk(Cursor(iter(ENTRIES), None, False, _translate)) for _ in range(2))
    next(begun)
    cursors.end("the engine is gone")
    for scan in (begun, untouched):
        with pytest.raises(StoreClosedError, match="the engine is gone"):
            list(scan)


def test_walks_that_nobody_holds_are_forgotten() -> None:
    cursors = OpenCursors()
    source = iter(ENTRIES)
    next(cursors.walk(Cursor(source, None, False, _translate)))
    gc.collect()
    cursors.detach()
    assert next(source) == ENTRIES[1]


def test_the_engines_own_errors_are_translated_and_others_are_not() -> None:
    def broken(error: Exception):  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield ENTRIES[0]
        raise error

    with pytest.raises(BackendError, match="the engine failed"):
        list(OpenCursors().walk(Cursor(broken(OverflowError()), None, False, _translate)))
    with pytest.raises(KeyError):
        list(OpenCursors().walk(Cursor(broken(KeyError()), None, False, _translate)))


def test_a_closed_engine_answers_every_call_with_store_closed_error() -> None:
    with pytest.raises(StoreClosedError, match="ENGINE in /x is closed; open a new backend"):
        ClosedEngine("ENGINE in /x").get(b"a")


ASKED: dict[str, Callable[[Any], object]] = {
    "a method": lambda closed: closed.get(b"a"),
    "a call": lambda closed: closed(1, key=2),
    "its truth": bool,
    "its length": len,
    "its items": list,
    "an item": lambda closed: closed[b"a"],
    "whether it holds a key": lambda closed: b"a" in closed,
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_closed_raises_store_closed_error_whatever_it_is_asked(asked: str) -> None:
    with pytest.raises(StoreClosedError, match="the shop is closed"):
        ASKED[asked](Closed("the shop is closed"))


def test_what_is_closed_takes_no_item() -> None:
    closed = Closed("the shop is closed")
    with pytest.raises(StoreClosedError, match="the shop is closed"):
        closed[b"a"] = b"1"


class Translator(ErrorTranslator):
    def translated(self, error: BaseException) -> BackendError | None:
        return BackendError(f"ENGINE in {self._directory} failed") if isinstance(error, OverflowError) else None


def test_within_a_translator_the_engines_errors_become_millponds_and_others_pass(tmp_path: Path) -> None:
    errors, engines_own = Translator(tmp_path), OverflowError()
    with pytest.raises(BackendError, match=f"ENGINE in {tmp_path} failed") as raised, errors:
        raise engines_own
    assert raised.value.__cause__ is engines_own
    with pytest.raises(KeyError), errors:
        raise KeyError("x")
    with errors:
        pass


@pytest.mark.parametrize("supplier", [LmdbSupplier(), RocksDbSupplier(), SUPPLIER()], ids=lambda found: found.name)
def test_a_file_that_has_the_name_of_a_directory_is_left_alone_and_told(
    supplier: BackendSupplier, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's")
    (tmp_path / "gone").symlink_to("nowhere")
    for place in (file, file / "below", tmp_path / "gone"):
        with pytest.raises(BackendError, match=f"{re.escape(str(place))} .*: a file has its name.*move the file away"):
            supplier.open(place)
    assert file.read_text() == "somebody's"
    file.rename(tmp_path / "away")
    supplier.open(file).close()


@pytest.mark.parametrize(
    ("code", "kind", "what_to_do"),
    [
        (errno.ENOSPC, StoreFullError, "free some space"),
        (errno.EDQUOT, StoreFullError, "free some space"),
        (errno.EACCES, BackendError, "see that those above it may be written"),
        (errno.EROFS, BackendError, "see that those above it may be written"),
        (errno.ENAMETOOLONG, BackendError, "choose another place"),
    ],
)
def test_a_directory_that_the_system_refuses_says_what_to_do(
    code: int, kind: type[BackendError], what_to_do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(BackendError, match=rf"{re.escape(str(tmp_path))}/store .*{what_to_do}") as refused:
            make_directory(tmp_path / "store")
    assert type(refused.value) is kind
    make_directory(tmp_path / "store")
    assert (tmp_path / "store").is_dir()

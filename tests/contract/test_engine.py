"""The walk of a scan over an engine's own iterator."""

import gc

import pytest

from millpond.errors import BackendError, StoreClosedError
from millpond.stores.engine import ClosedEngine, Cursor, Entry, OpenCursors

ENTRIES: list[Entry] = [(b"%04d" % number, b"") for number in range(3000)]


def _translate(error: BaseException) -> Exception | None:
    return BackendError("the engine failed") if isinstance(error, OverflowError) else None


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 40, 41, 1000, 3000])
def test_a_walk_gives_each_entry_once_in_order(length: int) -> None:
    assert list(OpenCursors().walk(Cursor(iter(ENTRIES[:length]), None, False, _translate))) == ENTRIES[:length]


@pytest.mark.parametrize("place", [0, 1, 7, 8, 9, 100, 2999])
def test_a_bound_ends_the_walk_in_both_directions(place: int) -> None:
    bound = ENTRIES[place][0]
    assert list(OpenCursors().walk(Cursor(iter(ENTRIES), bound, False, _translate))) == ENTRIES[:place]
    backwards = ENTRIES[::-1]
    assert list(OpenCursors().walk(Cursor(iter(backwards), bound, True, _translate))) == backwards[: 3000 - place]


def test_a_detached_walk_goes_on_without_the_engine() -> None:
    source = iter(ENTRIES)
    cursors = OpenCursors()
    scan = cursors.walk(Cursor(source, b"2000", False, _translate))
    begun = [next(scan) for _ in range(10)]
    cursors.detach()
    assert next(source, None) is None
    assert begun + list(scan) == ENTRIES[:2000]


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
    assert next(source) == ENTRIES[8]


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

"""The part of the suite about ``scan``."""

from itertools import product
from pathlib import Path

from millpond.stores.backend.contract import Backend, Changes
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.oracle import Oracle
from millpond.stores.testing.sentences import (
    CLOSE_SCAN,
    EMPTY_RANGE,
    OPEN_RANGE,
    RANGE,
    RELEASE,
    REVERSE,
    SEVERAL_SCANS,
    SNAPSHOT,
)
from millpond.stores.testing.suite import EDGE_KEYS, Suite


def _numbered(count: int, value: bytes = b"old") -> dict[bytes, bytes | None]:
    return {b"%06d" % number: value for number in range(count)}


class ScanSuite(Suite):
    """``scan``."""

    @RANGE
    def test_scan_gives_each_range_with_its_start_and_without_its_stop(self, filled: Backend) -> None:
        oracle = Oracle(dict(filled.scan()))
        assert len(oracle.content) == len(EDGE_KEYS)
        bounds = [*EDGE_KEYS, b"a\0a", b"zz"]
        for start, stop in product(bounds, bounds):
            assert list(filled.scan(start, stop)) == oracle.entries(start, stop)

    @OPEN_RANGE
    def test_scan_without_a_bound_is_open_on_that_side(self, filled: Backend) -> None:
        oracle = Oracle(dict(filled.scan(None, None)))
        assert sorted(oracle.content) == EDGE_KEYS
        for bound in [*EDGE_KEYS, b"a\0a"]:
            assert list(filled.scan(bound, None)) == oracle.entries(bound, None)
            assert list(filled.scan(None, bound)) == oracle.entries(None, bound)

    @REVERSE
    def test_scan_in_reverse_gives_the_same_entries_backwards(self, filled: Backend) -> None:
        bounds = [None, *EDGE_KEYS, b"a\0a", b"zz"]
        for start, stop in product(bounds, bounds):
            assert list(filled.scan(start, stop, reverse=True)) == list(filled.scan(start, stop))[::-1]

    @EMPTY_RANGE
    def test_a_range_whose_start_is_not_below_its_stop_is_empty(self, filled: Backend) -> None:
        for reverse in (False, True):
            assert list(filled.scan(b"b", b"a", reverse=reverse)) == []
            assert list(filled.scan(b"b", b"b", reverse=reverse)) == []
            assert list(filled.scan(None, b"", reverse=reverse)) == []

    @RANGE
    def test_an_empty_backend_has_no_entries(self, backend: Backend) -> None:
        for reverse in (False, True):
            assert list(backend.scan(reverse=reverse)) == []
            assert list(backend.scan(b"a", b"b", reverse=reverse)) == []

    @SNAPSHOT
    def test_a_scan_shows_the_content_as_it_was_when_it_was_called(self, backend: Backend) -> None:
        backend.write(_numbered(5000))
        changes: list[Changes] = [_numbered(5000, b"new"), dict.fromkeys(_numbered(4000)), {b"000000x": b"", b"x": b""}]
        for change in changes:
            for reverse in (False, True):
                before = list(backend.scan(reverse=reverse))
                untouched, begun = backend.scan(reverse=reverse), backend.scan(reverse=reverse)
                with SNAPSHOT:
                    check_same((next(begun) for _ in range(10)), before[:10])
                    backend.write(change)
                    check_same(begun, before[10:])
                    check_same(untouched, before)

    @SEVERAL_SCANS
    def test_scans_that_are_open_together_do_not_disturb_each_other(self, backend: Backend) -> None:
        backend.write(_numbered(300))
        keys = sorted(_numbered(300))
        up, down, middle = backend.scan(), backend.scan(reverse=True), backend.scan(keys[100], keys[250])
        for step in range(150):
            assert [next(up)[0], next(down)[0], next(middle)[0]] == [keys[step], keys[299 - step], keys[100 + step]]
            assert backend.get(keys[step]) == b"old"
        assert next(middle, None) is None

    @CLOSE_SCAN
    def test_a_scan_has_a_close_method_that_frees_what_it_holds(self, directory: Path) -> None:
        for release in ("close", "exhaust", "drop"):
            with self.open(directory) as backend:
                backend.write(_numbered(100))
                for scan in (backend.scan(), backend.scan(reverse=True), backend.scan(b"x", b"x"), backend.scan(b"x")):
                    next(scan, None)
                    with CLOSE_SCAN:
                        if release == "close":
                            scan.close()  # type: ignore[attr-defined]
                            scan.close()  # type: ignore[attr-defined]
                            assert next(scan, None) is None
                        elif release == "exhaust":
                            list(scan)
                del scan
            with RELEASE:
                self.open(directory).close()

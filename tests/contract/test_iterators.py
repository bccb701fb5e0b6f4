"""Scans that are counted while they are open."""

import gc
import logging
import warnings
from collections.abc import Iterator

import pytest

from millpond.errors import StoreClosedError
from millpond.stores.typed.scans import OpenScans


def test_a_scan_is_an_iterator_and_a_context_manager() -> None:
    scans = OpenScans("store 'counts'")
    with scans.begin(iter("abc")) as scan:
        assert next(scan) == "a"
        assert iter(scan) is scan
        assert scans.count() == 1
    assert scans.count() == 0
    assert list(scan) == []


def test_an_exhausted_scan_is_open_no_more() -> None:
    scans = OpenScans("store 'counts'")
    scan = scans.begin(iter("ab"))
    assert list(scan) == ["a", "b"]
    assert scan.finished
    assert scans.count() == 0


def test_closing_a_scan_frees_what_it_holds() -> None:
    freed = []

    def entries() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            freed.append(True)

    scan = OpenScans("store 'counts'").begin(entries())
    next(scan)
    scan.close()
    scan.close()
    gc.collect()
    assert freed == [True]


def test_scans_that_are_dropped_are_not_leaked(recwarn: pytest.WarningsRecorder) -> None:
    scans = OpenScans("store 'counts'")
    next(scans.begin(iter("abc")))
    gc.collect()
    assert scans.close() == 0
    assert not recwarn.list


def test_leaked_scans_are_counted_reported_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    scans = OpenScans("store 'counts'")
    leaked = [scans.begin(iter("abc")) for _ in range(3)]
    closed = scans.begin(iter("abc"))
    closed.close()
    next(leaked[0])
    with caplog.at_level(logging.WARNING), pytest.warns(ResourceWarning, match=r"store 'counts' .* 3 open scan\(s\)"):
        assert scans.close() == 3
    assert "store 'counts' was closed with 3 open scan(s)" in caplog.text
    for scan in leaked:
        with pytest.raises(StoreClosedError, match="store 'counts' was closed while this scan was open"):
            next(scan)
    assert list(closed) == []


def test_an_owner_that_is_closed_twice_reports_once() -> None:
    scans = OpenScans("store 'counts'")
    kept = scans.begin(iter("abc"))
    with pytest.warns(ResourceWarning):
        scans.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scans.close() == 0
    assert not kept.finished

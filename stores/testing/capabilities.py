"""The part of the suite about methods that an engine may have of its own.

Rule of this module: a backend that claims nothing passes by the fallbacks, so that no test here is skipped.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from os import urandom
from pathlib import Path
from typing import Final

import pytest

from millpond.stores.backend.contract import OVERRIDABLE, Backend, overrides
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.oracle import Oracle
from millpond.stores.testing.sentences import (
    DELETE_RANGE,
    ENTRY_COUNT,
    GET_MANY,
    LAST,
    LOAD,
    MEMORY_USE,
    METHODS,
    REPEATED_KEYS,
    SEEN,
)
from millpond.stores.testing.suite import EDGE_KEYS, Suite

_REQUIRED: Final = ("get", "scan", "write", "flush", "close")


class CapabilitySuite(Suite):
    """Optional capabilities."""

    @METHODS
    def test_every_public_method_is_used(self, backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
        public = {name for name in dir(backend) if not name.startswith("_") and callable(getattr(backend, name))}
        own = [name for name in OVERRIDABLE if overrides(type(backend), name)]
        with capsys.disabled():
            print(f"\n{self.told(type(backend).__name__, own)}")
        for name in sorted(public.difference(OVERRIDABLE, _REQUIRED)):
            close = get_close_matches(name, OVERRIDABLE, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; a name that begins with _ says that it is its own"
            raise AssertionError(f"nobody calls the public method {name} of {type(backend).__name__}{hint}")

    def told(self, backend: str, seen: Sequence[str]) -> str:
        """Return the line that the kit prints of a backend."""
        opted_out = "".join(f"; opted out of {feature}: {reason}" for feature, reason in self.opt_outs.items())
        return f"{backend} has {', '.join(seen) or 'no optional methods'}{opted_out}"

    def test_get_many_gives_the_values_in_the_order_of_the_keys(self, filled: Backend) -> None:
        keys = [b"nothing", *reversed(EDGE_KEYS), b"a\0a"]
        with GET_MANY:
            assert filled.get_many(keys) == [None, *(b"<" + key + b">" for key in reversed(EDGE_KEYS)), None]
            assert filled.get_many([]) == []
        with REPEATED_KEYS:
            assert filled.get_many([b"a", b"x", b"a", b"x", b"a"]) == [b"<a>", None, b"<a>", None, b"<a>"]

    def test_get_many_shows_what_was_just_written(self, filled: Backend) -> None:
        with GET_MANY:
            assert filled.get_many([b"a", b"b"]) == [b"<a>", b"<b>"]
            filled.write({b"a": None, b"b": b""})
            assert filled.get_many((b"a", b"b")) == [None, b""]

    @LAST
    def test_last_gives_the_last_entry_of_each_range(self, filled: Backend) -> None:
        oracle = Oracle(dict(filled.scan()))
        last = filled.last
        bounds = [*EDGE_KEYS, b"a\0a", b"zz"]
        for start in bounds:
            for stop in bounds:
                assert last(start, stop) == oracle.last(start, stop)
        filled.write({b"a": None, b"b": b"new", b"azz": b"newer"})
        assert last(b"a\xff\xff", b"c") == (b"b", b"new")
        assert last(b"aaa", b"a\xff") == (b"azz", b"newer")
        filled.write(dict.fromkeys(EDGE_KEYS))
        assert last(b"\0", b"\xff\xff\xff") == (b"azz", b"newer")

    @DELETE_RANGE
    def test_delete_range_deletes_each_range_and_nothing_else(self, backend: Backend) -> None:
        bounds = [*EDGE_KEYS, b"a\0a", b"zz"]
        for start in bounds:
            for stop in bounds:
                backend.write(dict.fromkeys(EDGE_KEYS, b"1"))
                backend.delete_range(start, stop)
                kept = [key for key in EDGE_KEYS if not start <= key < stop]
                assert [key for key, _ in backend.scan()] == kept
                assert [backend.get(key) for key in EDGE_KEYS] == [b"1" if key in kept else None for key in EDGE_KEYS]

    @DELETE_RANGE
    def test_delete_range_of_many_entries_leaves_open_scans_alone(self, backend: Backend) -> None:
        entries = {b"%06d" % number: b"x" * 50 for number in range(10_000)}
        backend.write(entries)
        scan = backend.scan()
        next(scan)
        backend.delete_range(b"000010", b"009990")
        assert len(list(backend.scan())) == 20
        assert len(list(scan)) == 9_999
        backend.write(entries)
        check_same(backend.scan(), entries.items())

    @LOAD
    def test_load_brings_all_entries_and_the_backend_goes_on(self, backend: Backend) -> None:
        entries = sorted((b"%d" % (number * 31), b"%d" % number * 10) for number in range(60_000))
        backend.load(iter(entries))
        check_same(backend.scan(), entries)
        backend.write({entries[0][0]: None, entries[1][0]: b"new", b"z": b"z"})
        assert next(backend.scan()) == (entries[1][0], b"new")
        assert next(backend.scan(reverse=True)) == (b"z", b"z")

    @LOAD
    def test_what_was_loaded_and_flushed_is_there_after_a_reopen(self, directory: Path) -> None:
        entries = [(b"%04d" % number, b"") for number in range(1000)]
        for content in ([], entries):
            with self.open(directory) as backend:
                backend.load(content)
                backend.flush()
        with self.open(directory) as backend:
            check_same(backend.scan(), entries if self.supplier().persistent else [])

    @ENTRY_COUNT
    def test_the_count_follows_the_content(self, backend: Backend) -> None:
        assert backend.entry_count() == 0
        with SEEN:
            backend.write({b"%04d" % number: bytes(1000) for number in range(2000)})
            backend.flush()
        assert 0 < backend.entry_count() <= 4000

    @MEMORY_USE
    def test_the_memory_use_follows_the_rows_of_a_backend_that_has_them_nowhere_else(self, backend: Backend) -> None:
        rows = {b"%04d" % number: urandom(1_000) for number in range(2_000)}
        uses = []
        for changes in ({}, rows, rows, dict.fromkeys(rows)):
            backend.write(changes)
            uses.append(backend.memory_use())
        empty, full, again, deleted = uses
        assert min(uses) >= 0
        if overrides(type(backend), "memory_use") and not self.supplier().persistent:
            assert 2_000_000 < full - empty < 8_000_000
            assert full == pytest.approx(again, rel=0.2)
            assert deleted <= again

    @MEMORY_USE
    def test_loaded_rows_use_as_much_memory_as_written_ones(self, backend: Backend, directory: Path) -> None:
        entries = [(b"%05d" % number, urandom(number % 500)) for number in range(10_000)]
        backend.load(iter(entries))
        with self.open(directory.with_name("written")) as written:
            written.write(dict(entries))
            assert self.supplier().persistent or backend.memory_use() == pytest.approx(written.memory_use(), rel=0.2)

"""The part of the suite that needs other processes: kills, full disks, sharing and locks.

Rule of this module: backends are opened as all callers open them, with keys of any length.
"""

import random
import signal
import time
from pathlib import Path

from millpond.errors import BackendInUseError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.child import Child
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.features import Feature
from millpond.stores.testing.oracle import Oracle
from millpond.stores.testing.programs import (
    batch,
    content_after,
    fill_up,
    fork_and_open,
    hold,
    pair,
    try_to_open,
    write_beside,
    write_for_ever,
    write_on_after_a_full_disk,
    write_until_cut,
)
from millpond.stores.testing.sentences import (
    ATOMIC,
    FAILED,
    FLUSHED,
    IN_USE,
    KEPT,
    OPT_OUT,
    PREFIX,
    RELEASE,
    SHARED,
    TRANSLATED,
)
from millpond.stores.testing.suite import Suite, open_or_refusal

_PAYLOADS = (20, 2_000, 200)
_CUT_PAYLOAD = 2_000
_WRITES = 100


class ProcessSuite(Suite):
    """The tests that need a second process."""

    @PREFIX
    def test_a_kill_in_the_middle_of_writes_leaves_a_prefix_of_whole_writes(self, directory: Path) -> None:
        chance = random.Random(directory.name)
        for kill in range(self.kills):
            payload = _PAYLOADS[kill % len(_PAYLOADS)]
            place = directory / str(kill)
            for _ in range(2):
                written, flushed = self._write_and_kill(place, payload, chance)
                with PREFIX, open_backend(self.supplier(), place) as backend:
                    content = dict(backend.scan())
                count = sum(key.startswith(b"log") for key in content)
                with ATOMIC:
                    rows = {value for key, value in content.items() if key.startswith(b"row")}
                    assert len(rows) <= 1, f"rows of {len(rows)} writes are mixed"
                with PREFIX:
                    check_same(content.items(), sorted(content_after(count, payload).items()))
                    assert count <= written + 1
                with FLUSHED:
                    assert count >= flushed or not self.supplier().persistent

    @PREFIX
    def test_a_write_that_is_cut_off_at_any_byte_leaves_a_prefix_of_whole_writes(self, directory: Path) -> None:
        for cut in range(self.cuts):
            place, limit = directory / str(cut), 100_000 + cut * 34_567 % 140_000
            with Child(write_until_cut, self.supplier(), place, _CUT_PAYLOAD, limit) as child:
                written = max(map(int, child.read_rest()), default=0)
                was_cut = child.wait() == -signal.SIGXFSZ
            with PREFIX, open_backend(self.supplier(), place) as backend:
                content = dict(backend.scan())
            count = sum(key.startswith(b"log") for key in content)
            with ATOMIC:
                check_same(content.items(), sorted(content_after(count, _CUT_PAYLOAD).items()))
            with PREFIX:
                assert count <= written + 1
            with OPT_OUT:
                told = (
                    f"no file grew to {limit} bytes; a suite whose writes make none grow opts out of Feature.ONE_FILE"
                )
                assert was_cut or not self.has(Feature.FILES, Feature.ONE_FILE), told
            with KEPT:
                self._write_on(place, count)

    def _write_on(self, place: Path, count: int) -> None:
        """Check that after ``count`` writes of a process that was cut off, more writes stay and change no others."""
        for number in (count + 1, count + 2):
            with open_backend(self.supplier(), place) as backend:
                backend.write(batch(number, _CUT_PAYLOAD))
        with open_backend(self.supplier(), place) as backend:
            expected = content_after(number, _CUT_PAYLOAD) if self.supplier().persistent else {}
            check_same(backend.scan(), sorted(expected.items()))

    def _write_and_kill(self, directory: Path, payload: int, chance: random.Random) -> tuple[int, int]:
        """Return the numbers of the last write and the last flush that a killed process has reported."""
        reports: list[str] = []
        with Child(write_for_ever, self.supplier(), directory, payload, 7) as child:
            reports += [child.read() for _ in range(chance.randrange(1, 60))]
            time.sleep(chance.random() * 0.01)
            child.kill()
            reports += child.read_rest()
        numbers = [int(report) for report in reports if report.isdigit()]
        flushes = [int(report.split()[1]) for report in reports if report.startswith("flushed ")]
        return max(numbers), max(flushes, default=0)

    @IN_USE
    def test_a_second_process_shares_the_directory_or_is_refused_by_name(self, directory: Path) -> None:
        supplier = self.supplier()
        with Child(hold, supplier, directory) as child:
            assert child.read() == "open"
            with IN_USE:
                backend = open_or_refusal(supplier, directory)
            if isinstance(backend, BackendInUseError):
                with IN_USE:
                    assert str(directory) in str(backend)
                child.let_go_on()
                assert child.read() == "None"
            else:
                with backend:
                    self._share(backend, child)
            child.let_go_on()
            assert child.wait() == 0
        with (
            RELEASE,
            open_backend(supplier, directory) as backend,
        ):
            assert backend.get(b"child") == (b"2" if supplier.persistent else None)

    @IN_USE
    def test_a_second_handle_of_this_process_leaves_the_first_one_as_locked_as_it_was(self, directory: Path) -> None:
        supplier = self.supplier()
        with open_backend(supplier, directory) as first:
            first.write({b"a": b"1"})
            told = [self._told_by_another(directory)]
            second = open_or_refusal(supplier, directory)
            if isinstance(second, Backend):
                second.close()
            del second  # its traceback may hold the opened backend
            told.append(self._told_by_another(directory))
        assert told[0] == told[1], f"another process is told {told[0] or 'nothing'} before, {told[1] or 'nothing'} then"

    def _refuses_others(self, directory: Path) -> bool:
        """Return whether a process that has a directory open keeps others out of it."""
        other = directory.with_name("another")
        with open_backend(self.supplier(), other):
            return bool(self._told_by_another(other))

    def _told_by_another(self, directory: Path) -> str:
        """Return the errors of another process that opens the directory."""
        with Child(try_to_open, self.supplier(), directory) as child:
            return child.read()

    @IN_USE
    def test_a_fork_shares_the_directory_or_is_refused(self, directory: Path) -> None:
        """A process that forks leaves its open files in both, locks and all."""
        supplier = self.supplier()
        with Child(fork_and_open, supplier, directory) as child:
            met = child.read()
            with IN_USE:
                allowed = ("refused", "shared b'1'" if supplier.persistent else "shared None")
                assert met in allowed, f"a fork meets {met}"
            seen = child.read()
            shared = supplier.persistent and met != "refused"
            with SHARED:
                assert seen == ("b'1'" if shared else "None"), f"a fork has written b'1', and {seen} is seen"
            with IN_USE:
                told = self._told_by_another(directory)
                assert bool(told) == self._refuses_others(directory), "a fork has taken the lock with it"
            child.let_go_on()
            child.wait()
        with SHARED, open_backend(supplier, directory) as backend:
            expected = {b"parent": b"2"} | ({b"fork": b"1"} if shared else {})
            check_same(dict(backend.scan()).items(), sorted(expected.items()) if supplier.persistent else [])

    def _share(self, backend: Backend, child: Child) -> None:
        if not self.supplier().persistent:
            assert backend.get(b"child") is None
            child.let_go_on()
            assert child.read() == "None"
            return
        with SHARED:
            assert backend.get(b"child") == b"1"
            backend.write({b"parent": b"1"})
            child.let_go_on()
            assert child.read() == "b'1'"
            backend.flush()
            assert backend.get(b"child") == b"2"
            assert dict(backend.scan()) == {b"child": b"2", b"parent": b"1"}

    @SHARED
    def test_two_processes_that_write_at_once_lose_nothing(self, directory: Path) -> None:
        supplier = self.supplier()
        with (
            Child(write_beside, supplier, directory, b"a", _WRITES) as first,
            Child(write_beside, supplier, directory, b"b", _WRITES) as second,
        ):
            for child in (first, second):
                child.let_go_on()
            reports = [child.read_rest() for child in (first, second)]
        done = [name for name, lines in zip((b"a", b"b"), reports, strict=True) if lines[-1:] == ["done"]]
        assert done, "neither of two processes could open the directory"
        with SHARED, open_backend(supplier, directory) as backend:
            counts = [sum(1 for _ in backend.scan(name, name + b"\xff")) for name in done]
        with SHARED:
            assert counts == ([_WRITES * 20] * len(done) if supplier.persistent else [0] * len(done))

    @ATOMIC
    def test_a_full_disk_raises_store_full_error_and_leaves_whole_writes(self, directory: Path) -> None:
        with Child(fill_up, self.supplier(), directory, 2_000_000) as child:
            kinds = child.read()
        with TRANSLATED:
            assert "StoreFullError" in kinds or not self.has(Feature.FILES, Feature.ONE_FILE)
        with ATOMIC, open_backend(self.supplier(), directory) as backend:
            content = dict(backend.scan())
        with ATOMIC:
            assert len(content) % 2 == 0
            whole = Oracle()
            for number in range(len(content) // 2):
                whole.write(pair(number))
            check_same(content.items(), whole.entries())

    @FAILED
    def test_what_is_shown_after_a_full_disk_is_kept_and_so_is_what_is_written_then(self, directory: Path) -> None:
        with Child(write_on_after_a_full_disk, self.supplier(), directory, 1_000_000) as child:
            scanned, got, shown = [report.encode().split() for report in child.read_rest()]
        with ATOMIC:
            check_same(scanned, sorted(key for number in range(len(scanned) // 2) for key in pair(number)))
        with FAILED:
            check_same(got, scanned)
            with open_backend(self.supplier(), directory) as backend:
                check_same((key for key, _ in backend.scan()), shown if self.supplier().persistent else [])
                check_same((value for _, value in backend.scan()), (bytes(2_000) for _ in shown if self.has()))

"""The part of the suite about opening, flushing and closing."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from gc import collect
from itertools import cycle
from os import truncate
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, Final

from millpond.errors import (
    BackendInUseError,
    BackendUnavailableError,
    CorruptStoreError,
    StoreClosedError,
    StoreError,
)
from millpond.stores.backend.contract import Backend, BackendSupplier, overrides
from millpond.stores.testing.child import Child
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.features import Feature
from millpond.stores.testing.programs import hold
from millpond.stores.testing.sentences import (
    CLOSE_ENDS_SCANS,
    CLOSE_TWICE,
    CLOSED,
    DAMAGED,
    ENTRY_COUNT,
    FLUSH_IN_MEMORY,
    HAND_OVER,
    IN_USE,
    KEPT,
    NEW_IS_EMPTY,
    NOTHING_OPEN,
    OPEN,
    RELEASE,
    RENAMED,
    SEEN,
    SHARED,
    TRANSLATED,
    UNAVAILABLE,
    WHOLE,
)
from millpond.stores.testing.suite import EDGE_KEYS, Suite, error_of, open_or_refusal, raised

_MANY: Final = 70_000
"""The number of changes of one write, more than 16 bits count."""
_LARGE: Final = 2_500_000
"""The bytes of a value."""
_LARGEST: Final = 2**24 + 5
"""The bytes of a value, more than 24 bits count."""
_ROUNDS: Final = 60
"""The number of times that rows are written over, so that an engine tidies its files up meanwhile."""

_CALLS: dict[str, Callable[[Any], object]] = {
    "get": lambda backend: backend.get(b"a"),
    "scan": lambda backend: backend.scan(),
    "scan of a range": lambda backend: backend.scan(b"a", b"b", reverse=True),
    "scan of an empty range": lambda backend: backend.scan(b"b", b"a"),
    "write": lambda backend: backend.write({b"a": b"1"}),
    "write of nothing": lambda backend: backend.write({}),
    "flush": lambda backend: backend.flush(),
}
_OVERRIDDEN_CALLS: dict[str, Callable[[Any], object]] = {
    "get_many": lambda backend: backend.get_many([b"a"]),
    "get_many of nothing": lambda backend: backend.get_many([]),
    "last": lambda backend: backend.last(b"a", b"b"),
    "delete_range": lambda backend: backend.delete_range(b"a", b"b"),
    "delete_range of nothing": lambda backend: backend.delete_range(b"b", b"a"),
    "load": lambda backend: backend.load([(b"a", b"1")]),
    "load of nothing": lambda backend: backend.load([]),
    "entry_count": lambda backend: backend.entry_count(),
}


def _calls(backend: Backend) -> dict[str, Callable[[Any], object]]:
    """Return every method that the backend has of its own, called."""
    own = {name: call for name, call in _OVERRIDDEN_CALLS.items() if overrides(type(backend), name.split()[0])}
    return _CALLS | own


def open_below(directory: Path) -> list[str]:
    """Return the files below a directory that this process has open or mapped, if the system tells."""
    collect(1)  # objects that only a cycle holds, such as a traceback
    opened = []
    for descriptor in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the listing's own descriptor is closed by now
            opened.append(str(descriptor.readlink()))
    with suppress(OSError):
        opened += [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [path for path in opened if path.startswith(f"{directory.resolve()}/")]


class LifecycleSuite(Suite):
    """Opening, flushing and closing."""

    @OPEN
    def test_open_makes_a_directory_that_does_not_exist(self, directory: Path) -> None:
        with self.open(directory) as backend:
            backend.write({b"a": b"1"})
            assert directory.is_dir() or not self.supplier().persistent

    @KEPT
    def test_what_was_written_is_there_after_a_reopen(self, directory: Path) -> None:
        supplier = self.supplier()
        with self.open(directory) as backend:
            backend.write({key: key for key in EDGE_KEYS})
        for _ in range(2):
            with self.open(directory) as backend:
                expected = [(key, key) for key in EDGE_KEYS] if supplier.persistent else []
                with KEPT:
                    assert list(backend.scan()) == expected

    @WHOLE
    def test_what_is_long_and_what_is_many_is_there_after_a_reopen(self, directory: Path) -> None:
        if not self.supplier().persistent:
            return
        many = {b"%06d" % number: b"" for number in range(_MANY)}
        with self.open(directory) as backend:
            length = backend.max_key_size or 100_000
            beside, longest = b"k" * (length - 1) + b"j", b"k" * length
            backend.write(many)
            backend.write({beside: b"beside"})
            for number in range(4):
                backend.write({longest: bytes([number]) * _LARGE, b"%06d" % number: None})
            backend.write({b"a": bytes([97]) * _LARGEST})
        expected = [(b"%06d" % number, b"") for number in range(4, _MANY)]
        expected += [(b"a", bytes([97]) * _LARGEST), (beside, b"beside"), (longest, bytes([3]) * _LARGE)]
        for _ in range(2):
            with self.open(directory) as backend:
                with WHOLE:
                    check_same(backend.scan(), expected)
                with ENTRY_COUNT:
                    assert backend.entry_count() > 0, "entries of before the opening are not counted"

    @NEW_IS_EMPTY
    def test_a_directory_in_the_place_of_another_is_empty(self, directory: Path) -> None:
        supplier = self.supplier()
        for number in range(3):
            with self.open(directory) as backend:
                assert list(backend.scan()) == [], "what was kept in the directory that was here before is shown"
                backend.write(dict.fromkeys(EDGE_KEYS, b"%d" % number))
            if supplier.persistent:
                directory.rename(directory.with_name(f"before-{number}"))

    @RENAMED
    def test_a_directory_that_was_renamed_shows_what_it_held(self, directory: Path) -> None:
        supplier = self.supplier()
        first, second, third = (directory.with_name(name) for name in ("first", "second", "third"))
        for place in (first, second):
            with self.open(place) as backend:
                backend.write({b"place": place.name.encode()})
                backend.flush()
        if supplier.persistent:
            first.rename(third)
            second.rename(first)
            for place, held in ((third, b"first"), (first, b"second")):
                with self.open(place) as backend:
                    assert list(backend.scan()) == [(b"place", held)]

    @FLUSH_IN_MEMORY
    def test_flush_changes_nothing_that_is_seen(self, filled: Backend) -> None:
        before = list(filled.scan())
        scan = filled.scan()
        filled.flush()
        filled.flush()
        assert list(filled.scan()) == list(scan) == before

    @HAND_OVER
    def test_a_backend_is_handed_from_thread_to_thread(self, directory: Path) -> None:
        entries = {b"%05d" % number: b"%d" % number for number in range(5000)}
        with _threads() as in_another:
            backend = in_another(lambda: self.open(directory))
            in_another(lambda: backend.load(iter(entries.items())))
            up, down = in_another(lambda: (backend.scan(), backend.scan(reverse=True)))
            begun = in_another(lambda: [next(up), next(down)])
            assert begun == [(b"00000", b"0"), (b"04999", b"4999")]
            assert in_another(lambda: (len(list(up)), len(list(down)))) == (4999, 4999)
            for name, call in _calls(backend).items():
                if name.startswith("load"):
                    continue  # that takes an empty backend
                error = in_another(partial(raised, partial(call, backend)))
                assert error is None, f"{name} raises {type(error).__name__}: {error}"
            left_open = in_another(backend.scan)
            in_another(backend.close)
            assert in_another(lambda: error_of(partial(list, left_open))) is StoreClosedError

    @CLOSE_TWICE
    def test_closing_twice_is_no_error(self, directory: Path) -> None:
        backend = self.open(directory)
        backend.close()
        backend.close()

    @CLOSED
    def test_every_method_of_a_closed_backend_raises_store_closed_error(self, directory: Path) -> None:
        backend = self.open(directory)
        bound_before: dict[str, Callable[[], object]] = {
            "get, bound before": partial(backend.get, b"a"),
            "scan, bound before": backend.scan,
            "write, bound before": partial(backend.write, {b"a": b"2"}),
            "flush, bound before": backend.flush,
        }
        backend.write({b"a": b"1"})
        backend.get(b"a")
        backend.close()
        bound_now = {name: partial(call, backend) for name, call in _calls(backend).items()}
        for name, call in (bound_now | bound_before).items():
            with CLOSED:
                assert error_of(call) is StoreClosedError, f"{name} does not"

    @CLOSE_ENDS_SCANS
    def test_scans_that_are_open_at_close_end_with_store_closed_error(self, directory: Path) -> None:
        backend = self.open(directory)
        backend.write({b"%05d" % number: b"" for number in range(5000)})
        untouched, begun, backwards = backend.scan(), backend.scan(), backend.scan(b"00100", reverse=True)
        next(begun)
        next(backwards)
        backend.close()
        for scan in (untouched, begun, backwards):
            assert error_of(partial(list, scan)) is StoreClosedError

    @RELEASE
    def test_no_file_stays_open(self, directory: Path) -> None:
        for _ in range(2):
            with self.open(directory) as backend:
                backend.write({b"a": b"1", b"b": b"2"})
                assert backend.get(b"a") == b"1"
                next(backend.scan())
                backend.flush()
            assert open_below(directory) == []

    @RELEASE
    def test_no_file_stays_open_after_many_writes_over_the_same_rows(self, directory: Path) -> None:
        with self.open(directory) as backend:
            for number in range(_ROUNDS):
                backend.write({b"%03d" % row: b"%d" % number * 200 for row in range(500)})
                scan = backend.scan()
                next(scan)
                if number % 10 == 0:
                    backend.flush()
                    backend.delete_range(b"100", b"200")
            del scan
        assert open_below(directory) == []

    @NOTHING_OPEN
    def test_an_opening_that_is_refused_because_of_another_leaves_nothing_open(self, directory: Path) -> None:
        supplier = self.supplier()
        with Child(hold, supplier, directory) as child:
            assert child.read() == "open"
            for _ in range(3):
                _open_and_close(supplier, directory)
            assert open_below(directory) == [], "while another process has it open"
            child.let_go_on()
            child.read()
            child.let_go_on()
            child.wait()
        with self.open(directory):
            counts = []
            for _ in range(3):  # an engine may keep a descriptor of a file for the next opening
                for _ in range(3):
                    _open_and_close(supplier, directory)
                counts.append(len(open_below(directory)))
            assert counts[1] == counts[2], "while this process has it open, with each opening more is open"
        assert open_below(directory) == []

    @NOTHING_OPEN
    def test_an_opening_that_is_refused_because_of_its_files_leaves_nothing_open(self, directory: Path) -> None:
        supplier = self.supplier()
        if not self.has(Feature.FILES):
            return
        with self.open(directory) as backend:
            backend.write({b"%05d" % number: b"x" * 100 for number in range(2000)})
        whole = directory.with_name("whole")
        copytree(directory, whole)
        for path in [path for path in directory.glob("**/*") if path.is_file()]:
            for spoil in _SPOILERS:
                spoil(path)
                _open_and_close(supplier, directory)
                assert open_below(directory) == [], f"after {spoil.__name__} of {path.name}"
                rmtree(directory)
                copytree(whole, directory)

    @RELEASE
    def test_a_directory_can_be_opened_again_at_once_after_close(self, directory: Path) -> None:
        for number in range(3):
            backend = self.open(directory)
            backend.write({b"%d" % number: b""})
            scan = backend.scan()
            next(scan)
            backend.close()
        self.open(directory).close()

    @IN_USE
    def test_a_second_handle_in_this_process_shares_or_is_refused(self, directory: Path) -> None:
        supplier = self.supplier()
        with self.open(directory) as first:
            first.write({b"a": b"1"})
            with IN_USE:
                second = open_or_refusal(supplier, directory)
                if isinstance(second, BackendInUseError):
                    assert str(directory) in str(second)
                else:
                    assert second.get(b"a") == (b"1" if supplier.persistent else None)
                    with SHARED, second:
                        second.write({b"b": b"1"})
                        first.flush()
                        assert first.get(b"b") == (b"1" if supplier.persistent else None)
            with SEEN:
                assert first.get(b"a") == b"1"
                first.write({b"a": b"2"})
                assert first.get(b"a") == b"2"

    @DAMAGED
    def test_damaged_files_raise_corrupt_store_error(self, directory: Path) -> None:
        supplier = self.supplier()
        with self.open(directory) as backend:
            backend.write({b"%05d" % number: b"x" * 100 for number in range(2000)})
            backend.flush()
        has_files = self.has(Feature.FILES)
        for path in [path for path in directory.glob("**/*") if path.is_file()] if has_files else []:
            size = path.stat().st_size
            path.write_bytes(b"\xa5" * min(size, 8192) + path.read_bytes()[8192:])
        assert error_of(lambda: _read_all(supplier, directory)) is (CorruptStoreError if has_files else None)

    @UNAVAILABLE
    def test_an_engine_that_cannot_be_reached_says_so_and_loses_nothing(self, directory: Path) -> None:
        with self.open(directory) as backend:
            backend.write({b"a": b"1"})
            backend.flush()
        away = self.unreachable()
        if away is not None:
            with away:
                error = raised(lambda: self.supplier().open(directory).close())
                assert isinstance(error, BackendUnavailableError), f"open raises {error!r}"
        with self.open(directory) as backend:
            assert list(backend.scan()) == ([(b"a", b"1")] if self.supplier().persistent else [])

    @TRANSLATED
    def test_a_directory_that_cannot_be_made_raises_no_exception_of_the_engine(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a directory")
        kind = error_of(lambda: self.supplier().open(tmp_path / "file").close()) or StoreError
        assert issubclass(kind, StoreError), f"open raises {kind.__name__}"


@contextmanager
def _threads() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """A function that calls each given function in another thread than the one before."""
    with ExitStack() as stack:
        # All of them live until the end, because the system gives a thread the number of one that has ended.
        threads = cycle([stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3)])
        yield lambda call: next(threads).submit(call).result()


def _open_and_close(supplier: BackendSupplier, directory: Path) -> None:
    """Open a backend, which may be refused, and close it if it is not."""
    with suppress(StoreError):
        supplier.open(directory).close()


def spoiling(path: Path) -> None:
    """Replace the bytes of a file by others."""
    path.write_bytes(b"\xa5" * path.stat().st_size)


def cutting(path: Path) -> None:
    """Cut a file down to its first half."""
    truncate(path, path.stat().st_size // 2)


def replacing(path: Path) -> None:
    """Replace a file by a directory."""
    path.unlink()
    path.mkdir()


_SPOILERS: Final = (spoiling, cutting, replacing)


def _read_all(supplier: BackendSupplier, directory: Path) -> None:
    with supplier.open(directory) as backend:
        list(backend.scan())

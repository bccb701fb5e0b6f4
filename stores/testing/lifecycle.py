"""The part of the suite about suppliers, opening, flushing and closing."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import BackendInUseError, ConfigurationError, CorruptStoreError, StoreClosedError, StoreError
from millpond.stores.backend import (
    Backend,
    BackendSupplier,
    SupportsCheckpoint,
    SupportsDeleteRange,
    SupportsGetMany,
    SupportsLast,
    SupportsLoad,
    SupportsSize,
)
from millpond.stores.testing.sentences import (
    BAD_OPTION,
    BAD_OPTION_NAMED,
    CLOSE_ENDS_SCANS,
    CLOSE_TWICE,
    CLOSED,
    DAMAGED,
    FLUSH_IN_MEMORY,
    FROM_OPTIONS,
    IN_USE,
    OPEN,
    PICKLABLE,
    PREFIX,
    RELEASE,
    TRANSLATED,
)
from millpond.stores.testing.suite import EDGE_KEYS, Suite, open_or_refusal

_CALLS: dict[str, Callable[[Any, Path], object]] = {
    "get": lambda backend, _: backend.get(b"a"),
    "scan": lambda backend, _: backend.scan(),
    "scan of a range": lambda backend, _: backend.scan(b"a", b"b", reverse=True),
    "scan of an empty range": lambda backend, _: backend.scan(b"b", b"a"),
    "write": lambda backend, _: backend.write({b"a": b"1"}),
    "write of nothing": lambda backend, _: backend.write({}),
    "flush": lambda backend, _: backend.flush(),
}
_CAPABILITY_CALLS: list[tuple[type, str, Callable[[Any, Path], object]]] = [
    (SupportsGetMany, "get_many", lambda backend, _: backend.get_many([b"a"])),
    (SupportsGetMany, "get_many of nothing", lambda backend, _: backend.get_many([])),
    (SupportsLast, "last", lambda backend, _: backend.last(b"a", b"b")),
    (SupportsDeleteRange, "delete_range", lambda backend, _: backend.delete_range(b"a", b"b")),
    (SupportsDeleteRange, "delete_range of nothing", lambda backend, _: backend.delete_range(b"b", b"a")),
    (SupportsLoad, "load", lambda backend, _: backend.load([(b"a", b"1")])),
    (SupportsLoad, "load of nothing", lambda backend, _: backend.load([])),
    (SupportsCheckpoint, "checkpoint", lambda backend, directory: backend.checkpoint(directory / "copy")),
    (SupportsSize, "entry_count", lambda backend, _: backend.entry_count()),
    (SupportsSize, "size_on_disk", lambda backend, _: backend.size_on_disk()),
]


def _calls(backend: Backend) -> dict[str, Callable[[Any, Path], object]]:
    """Every method that the backend has, called."""
    claimed = {name: call for protocol, name, call in _CAPABILITY_CALLS if isinstance(backend, protocol)}
    return _CALLS | claimed


class LifecycleSuite(Suite):
    """Suppliers, opening, flushing and closing."""

    @OPEN
    def test_open_makes_a_directory_that_does_not_exist(self, directory: Path) -> None:
        with self.supplier().open(directory) as backend:
            backend.write({b"a": b"1"})
            assert directory.is_dir() or not self.supplier().persistent

    @PICKLABLE
    def test_a_supplier_survives_a_pickle(self, directory: Path) -> None:
        supplier = pickle.loads(pickle.dumps(self.supplier()))
        assert type(supplier) is type(self.supplier())
        assert supplier.name == self.supplier().name
        with supplier.open(directory) as backend:
            backend.write({b"a": b"1"})
            assert backend.get(b"a") == b"1"

    @FROM_OPTIONS
    def test_from_options_without_options_gives_a_supplier_that_opens(self, directory: Path) -> None:
        with type(self.supplier()).from_options({}).open(directory) as backend:
            assert list(backend.scan()) == []

    def test_an_unknown_option_is_refused_by_name(self) -> None:
        with BAD_OPTION, pytest.raises(ConfigurationError) as refused:
            type(self.supplier()).from_options({"no_such_option": "1"})
        with BAD_OPTION_NAMED:
            assert "no_such_option" in str(refused.value)

    def test_what_was_written_is_there_after_a_reopen(self, directory: Path) -> None:
        supplier = self.supplier()
        with supplier.open(directory) as backend:
            backend.write({key: key for key in EDGE_KEYS})
        for _ in range(2):
            with supplier.open(directory) as backend:
                expected = [(key, key) for key in EDGE_KEYS] if supplier.persistent else []
                with PREFIX:
                    assert list(backend.scan()) == expected

    @FLUSH_IN_MEMORY
    def test_flush_changes_nothing_that_is_seen(self, filled: Backend) -> None:
        before = list(filled.scan())
        scan = filled.scan()
        filled.flush()
        filled.flush()
        assert list(filled.scan()) == list(scan) == before

    @CLOSE_TWICE
    def test_closing_twice_is_no_error(self, directory: Path) -> None:
        backend = self.supplier().open(directory)
        backend.close()
        backend.close()

    def test_every_method_of_a_closed_backend_raises_store_closed_error(self, directory: Path) -> None:
        backend = self.supplier().open(directory)
        bound_before: dict[str, Callable[[], object]] = {
            "get, bound before": partial(backend.get, b"a"),
            "scan, bound before": backend.scan,
            "write, bound before": partial(backend.write, {b"a": b"2"}),
            "flush, bound before": backend.flush,
        }
        backend.write({b"a": b"1"})
        backend.get(b"a")
        backend.close()
        bound_now = {name: partial(call, backend, directory) for name, call in _calls(backend).items()}
        for name, call in (bound_now | bound_before).items():
            with CLOSED:
                assert _error_of(call) is StoreClosedError, f"{name} does not"

    @CLOSE_ENDS_SCANS
    def test_scans_that_are_open_at_close_end_with_store_closed_error(self, directory: Path) -> None:
        backend = self.supplier().open(directory)
        backend.write({b"%05d" % number: b"" for number in range(5000)})
        untouched, begun, backwards = backend.scan(), backend.scan(), backend.scan(b"00100", reverse=True)
        next(begun)
        next(backwards)
        backend.close()
        for scan in (untouched, begun, backwards):
            assert _error_of(partial(list, scan)) is StoreClosedError

    @RELEASE
    def test_a_directory_can_be_opened_again_at_once_after_close(self, directory: Path) -> None:
        for number in range(3):
            backend = self.supplier().open(directory)
            backend.write({b"%d" % number: b""})
            scan = backend.scan()
            next(scan)
            backend.close()
        self.supplier().open(directory).close()

    def test_a_second_handle_in_this_process_shares_or_is_refused(self, directory: Path) -> None:
        supplier = self.supplier()
        with supplier.open(directory) as first:
            first.write({b"a": b"1"})
            second = open_or_refusal(supplier, directory)
            with IN_USE:
                if isinstance(second, BackendInUseError):
                    assert str(directory) in str(second)
                else:
                    assert second.get(b"a") == (b"1" if supplier.persistent else None)
                    second.close()
            assert first.get(b"a") == b"1"
            first.write({b"a": b"2"})
            assert first.get(b"a") == b"2"

    @DAMAGED
    def test_damaged_files_raise_corrupt_store_error(self, directory: Path) -> None:
        supplier = self.supplier()
        with supplier.open(directory) as backend:
            backend.write({b"%05d" % number: b"x" * 100 for number in range(2000)})
            backend.flush()
        for path in [path for path in directory.glob("**/*") if path.is_file()] if supplier.persistent else []:
            size = path.stat().st_size
            path.write_bytes(b"\xa5" * min(size, 8192) + path.read_bytes()[8192:])
        assert _error_of(lambda: _read_all(supplier, directory)) is (CorruptStoreError if supplier.persistent else None)

    @TRANSLATED
    def test_a_directory_that_cannot_be_made_raises_no_exception_of_the_engine(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a directory")
        kind = _error_of(lambda: self.supplier().open(tmp_path / "file").close()) or StoreError
        assert issubclass(kind, StoreError | OSError)


def _error_of(call: Callable[[], object]) -> type[BaseException] | None:
    """The type of what ``call`` raises."""
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def _read_all(supplier: BackendSupplier, directory: Path) -> None:
    with supplier.open(directory) as backend:
        list(backend.scan())

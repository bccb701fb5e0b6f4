"""The base of all parts of the conformance suite: the supplier under test and a directory of its own.

Rule of this module: it tests nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from millpond.errors import BackendInUseError
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.features import Feature
from millpond.stores.testing.sentences import DESTROY, OPEN, RELEASE, SEEN

EDGE_KEYS = sorted(
    (
        b"\0",
        b"\0\0",
        b"\0\xff",
        b"\x01",
        b"a",
        b"a\0",
        b"a\0b",
        b"a\xff",
        b"aa",
        b"b",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff\xff",
        b"A",
        b"a ",
        b"a\n",
    )
)
"""Keys that a backend sorts wrongly if it compares them as text, as signed bytes, or only up to a zero byte."""

TEXT_KEYS = sorted(
    (
        *(b"Apple", b"apple", b"APPLE", b"aPPLE"),
        *(b" ", b"  ", b"apple ", b"apple  ", b" apple", b"app le", b"apple\t", b"apple\0", b"apple\0\0"),
        *(b"\n", b"\r", b"\r\n", b"apple\n", b"apple\r", b"apple\r\n", b"app\nle", b"app\r\nle", b"app\\nle"),
        *("é".encode(), "e\u0301".encode(), "É".encode(), "ß".encode(), b"ss", "\u017f".encode(), "\ufeff".encode()),
        *(b"\xe9", b"\xc9", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"?", "\ufffd".encode()),
        *(b"1", b"01", b"1.0", b"+1", b"1e0", b"0x1", b"10", b"9"),
        *(b"%", b"%25", b"%00", b"a%", b"a_", b"*", b"?*", b"[a]"),
        *(b"'", b"''", b'"', b"\\", b"\\\\", b"--", b"/", b".."),
    )
)
"""Keys of which two become one in a backend that takes them for text, numbers, patterns or names."""


def open_or_refusal(supplier: BackendSupplier, directory: Path) -> Backend | BackendInUseError:
    """Return the backend, or the error that says that somebody else has it open."""
    try:
        return open_backend(supplier, directory)
    except BackendInUseError as refusal:
        return refusal


class Suite(ABC):
    """One part of the conformance suite."""

    examples: ClassVar[int] = 40
    """The number of histories that each state machine tries."""

    kills: ClassVar[int] = 3
    """The number of times that a writing process is killed."""

    cuts: ClassVar[int] = 4
    """The number of sizes of a file at which the system cuts a writing process off."""

    opt_outs: ClassVar[Mapping[Feature, str]] = {}
    """The features that the backend does not have, each with the reason why it cannot."""

    def has(self, *features: Feature) -> bool:
        """Return whether the backend keeps its content beyond its process, and has all of ``features``."""
        return self.supplier().persistent and not any(feature in self.opt_outs for feature in features)

    @abstractmethod
    def supplier(self) -> BackendSupplier:
        """Return the supplier under test. Child processes unpickle it: its class must be importable from its module."""

    def outside(self) -> Collection[object]:
        """Return the engine's objects outside of directories, such as all its keys in a service; none for most.

        With them, the suite finds out whether ``destroy`` leaves any.
        """
        return ()

    def unreachable(self) -> AbstractContextManager[object] | None:
        """Return a context that makes the engine unreachable while it lasts; None if it always can be reached."""
        return None

    @pytest.fixture(autouse=True)
    def nothing_stays_outside(self, tmp_path: Path) -> Iterator[None]:
        """Destroy all stores of a test, and check that nothing of them is left where ``outside`` looks."""
        before = sorted(map(repr, self.outside()))
        yield
        with DESTROY:
            for path in [path for path in tmp_path.glob("**/*") if path.is_dir()]:
                self.supplier().destroy(path)
            assert sorted(map(repr, self.outside())) == before, "stores are left outside of their directories"

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """A directory that does not exist yet, below one that does not exist either."""
        return tmp_path / "task" / "store"

    def open(self, directory: Path) -> Backend:
        """Return the backend under test on a directory."""
        with OPEN:
            opened = self.supplier().open(directory)
            assert isinstance(opened, Backend), f"open gives {opened!r}"
        return opened

    @pytest.fixture
    def backend(self, directory: Path) -> Iterator[Backend]:
        """The backend under test, empty."""
        backend = self.open(directory)
        yield backend
        with RELEASE:
            backend.close()

    @pytest.fixture
    def filled(self, backend: Backend) -> Backend:
        """The backend under test with ``EDGE_KEYS``, each with itself in brackets as its value."""
        with SEEN:
            backend.write({key: b"<" + key + b">" for key in reversed(EDGE_KEYS)})
        return backend


def raised(call: Callable[[], object]) -> Exception | None:
    """Return the exception that ``call`` raises; None if it raises none."""
    try:
        call()
    except Exception as error:
        return error
    return None


def error_of(call: Callable[[], object]) -> type[Exception] | None:
    """Return the type of the exception that ``call`` raises."""
    error = raised(call)
    return None if error is None else type(error)

"""What all parts of the conformance suite have in common: the supplier under test and a directory of its own.

Rule of this module: it tests nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from millpond.errors import BackendInUseError
from millpond.stores.backend import Backend, BackendSupplier
from millpond.stores.registry import open_backend

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
    )
)
"""Keys that a backend sorts wrongly if it compares them as text, as signed bytes, or only up to a zero byte."""


def open_or_refusal(supplier: BackendSupplier, directory: Path) -> Backend | BackendInUseError:
    """The backend, or the error that says that somebody else has it open."""
    try:
        return open_backend(supplier, directory)
    except BackendInUseError as refusal:
        return refusal


class Suite(ABC):
    """One part of the conformance suite."""

    examples: ClassVar[int] = 40
    """How many histories each state machine tries."""

    kills: ClassVar[int] = 3
    """How often a writing process is killed."""

    cuts: ClassVar[int] = 4
    """At how many sizes of a file a writing process is cut off by the system."""

    fills_one_file: ClassVar[bool] = True
    """Whether writes make one file grow, so that a limit on the size of files stops them as a full disk does."""

    @abstractmethod
    def supplier(self) -> BackendSupplier:
        """The supplier under test. Child processes unpickle it: its class must be importable from its module."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """A directory that does not exist yet, below one that does not exist either."""
        return tmp_path / "task" / "store"

    @pytest.fixture
    def backend(self, directory: Path) -> Iterator[Backend]:
        """The backend under test, empty."""
        with self.supplier().open(directory) as backend:
            yield backend

    @pytest.fixture
    def filled(self, backend: Backend) -> Backend:
        """The backend under test with ``EDGE_KEYS``, each the value of itself in brackets."""
        backend.write({key: b"<" + key + b">" for key in reversed(EDGE_KEYS)})
        return backend

"""The directories of a run's stores."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from millpond.bench.stores.pattern import Opened
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.migration import open_directory
from millpond.stores.specs.store_spec import StoreSpec

APPLICATION: Final = "bench"
TASK: Final = "0_0"
LOCAL_DIRECTORIES: Final = ("local", "origin")
"""The directories of stores, below a run's: the measured ones, and the ones that durable files come from."""


@dataclass(frozen=True)
class Place:
    """A backend, and directories for its stores and for durable files.

    Args:
        supplier: the backend, as large as its cache is to be.
        directory: everything of the run.
        checksums: whether rows have checksums.
    """

    supplier: BackendSupplier
    directory: Path
    checksums: bool = False

    @property
    def local(self) -> Path:
        """The directory of the measured stores, which are in it by application, task and backend."""
        return self.directory / LOCAL_DIRECTORIES[0]

    @property
    def origin(self) -> Path:
        """The directory of the store that wrote the durable files."""
        return self.directory / LOCAL_DIRECTORIES[1]

    @property
    def durable(self) -> Path:
        """The directory of the durable files."""
        return self.directory / "durable"

    def spec(self, plain: StoreSpec) -> StoreSpec:
        """Return the spec of a store, with checksums if the place has them."""
        return replace(plain, checksums=self.checksums)

    @contextmanager
    def opened(self, plain: StoreSpec) -> Iterator[Opened]:
        """The store, open; one of an older format is migrated."""
        spec = self.spec(plain)
        where = store_directory(self.local, APPLICATION, TASK, self.supplier.name, spec)
        backend = open_directory(self.supplier, where, spec)
        transaction = Transaction(backend)
        try:
            yield Opened(spec.open(transaction), transaction)
        finally:
            transaction.close()
            backend.close()

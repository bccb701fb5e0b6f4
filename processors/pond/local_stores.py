"""``LocalStores``: the stores of the tasks of a verb over a backend alone, which commit together.

Rule of this module: nothing outlives it, unless the backend keeps files where it is told to.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.processors.distribution.plan import Plan
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.matching.retained import Kept, kept_in
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreSpec


class LocalStores:
    """Stores over backends alone.

    Args:
        directory: the directory for the files of backends that keep some.
        backend: the name, URL or supplier of the backends.

    Raises:
        UnknownBackendError, BackendNotInstalledError: there is no such backend, or it is not installed.
    """

    def __init__(self, directory: Path, backend: str | BackendSupplier) -> None:
        self._directory = directory
        self._supplier = supplier(backend)
        self._backends: dict[str, Backend] = {}
        self._open: dict[str, Transaction] = {}

    @contextmanager
    def task(self, place: str, part: Subtopology, plan: Plan) -> Iterator[Mapping[str, Any]]:
        """The stores of a task, while it runs."""
        stores = {}
        for name, spec in part.stores.items():
            store = f"{place}/{name}"
            if store not in self._backends:
                application, _, task = place.partition("/")
                found = StoreLocation.of(
                    spec, self._supplier, local_dir=self._directory, application_id=application, task_id=task
                )
                self._backends[store] = found.open()
            self._open[store] = Transaction(self._backends[store])
            stores[name] = spec.open(self._open[store])
        yield stores
        for opened in stores.values():
            opened.flush()
            opened.close()

    def kept(self, place: str, spec: StoreSpec, key: bytes) -> Kept:
        """Return what a store of the task at that place has committed of a key."""
        backend = self._backends.get(f"{place}/{spec.name}")
        return Kept() if backend is None else kept_in(spec.open_read_only(Transaction(backend)), spec, key)

    def commit(self) -> None:
        """Let what tasks have written last."""
        for transaction in self._open.values():
            transaction.commit()
        self._open = {}

    def rollback(self) -> None:
        """Forget what tasks have written since the last commit."""
        for transaction in self._open.values():
            transaction.rollback()
        self._open = {}

    @property
    def backends(self) -> Collection[Backend]:
        """The backends of all stores so far."""
        return self._backends.values()

    def close(self) -> None:
        """Forget what is not committed, and close the backends. It may be called twice."""
        self.rollback()
        for backend in self._backends.values():
            backend.close()
        self._backends = {}

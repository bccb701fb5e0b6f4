"""The local copy of one store: a cache of its durable state in a backend.

Rule of this module: it decides whether a copy can be trusted. At the manifest's commit: use it. At an earlier commit of
the manifest: replay what is missing. Anything else (ahead, on another branch, of another boot, damaged): throw it away
and restore. The caller holds the lease on the task's directory.
"""

import logging
from shutil import rmtree

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, StoreError, StoreFullError
from millpond.stores.backend import Backend
from millpond.stores.durability.manifest import NO_COMMIT, Manifest
from millpond.stores.durability.position import encode_position, position_of
from millpond.stores.durability.restore import replay, restore
from millpond.stores.durability.storage import Storage
from millpond.stores.keys import COMMIT_ROW
from millpond.stores.place import StorePlace
from millpond.stores.transaction import Transaction

_log = logging.getLogger(__name__)


class LocalCopy:
    """The local copy of the store whose place is ``place``."""

    def __init__(self, place: StorePlace, storage: Storage) -> None:
        self.spec = place.spec
        self._place = place
        self._storage = storage
        self._backend: Backend | None = None

    def open(self, manifest: Manifest) -> Transaction:
        """A transaction over the store's content at ``manifest``.

        Raises:
            DurabilityError, FormatError: a durable file is missing, damaged, or of an unknown format.
            BackendInUseError, StoreFullError: the local directory cannot be used now.
        """
        try:
            return Transaction(self._at(manifest))
        except (BackendInUseError, StoreFullError):
            raise
        except BackendError as error:
            _log.warning("restoring store %r: its local copy failed: %s", self.spec.name, error)
            self.discard()
            return Transaction(self._at(manifest))

    def _at(self, manifest: Manifest) -> Backend:
        store, version = self.spec.name, self.spec.format_version
        backend = self._opened()
        position = position_of(backend)
        missing = None if position is None else manifest.after(position)
        if missing is not None:
            replay(backend, self._storage, manifest, missing, store, version)
            return backend
        if position != NO_COMMIT:
            self.discard()
            backend = self._opened()
        try:
            restore(backend, self._storage, manifest, store, version)
        except BaseException:
            self.discard()
            raise
        return backend

    def commit(self, transaction: Transaction, commit: str) -> None:
        """Write the transaction's changes and the position that they lead to, in one atomic write."""
        transaction.put(COMMIT_ROW, encode_position(commit))
        transaction.commit()

    def _opened(self) -> Backend:
        if self._backend is None:
            self._backend = self._place.open()
        return self._backend

    def release(self) -> None:
        """Let go of the directory, for another process to use. A copy in memory stays: nobody else could use it."""
        if self._place.supplier.persistent:
            self.close()

    def close(self) -> None:
        """Close the backend. Doing so twice is no error."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def discard(self) -> None:
        """Throw the copy away."""
        try:
            self.close()
        except CorruptStoreError as error:
            _log.warning("a damaged local copy of store %r did not close: %s", self.spec.name, error)
        if not self._place.supplier.persistent or not self._place.directory.exists():
            return
        try:
            rmtree(self._place.directory)
        except OSError as error:
            raise StoreError(
                f"the local copy in {self._place.directory} cannot be deleted: {error}; delete it by hand"
            ) from error

"""Reading a store's content at any manifest whose files are retained, without a task and without its local copy."""

from typing import Any

from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.restore import restore
from millpond.stores.durability.storage import Storage
from millpond.stores.memory import MemoryBackend
from millpond.stores.specs import StoreSpec
from millpond.stores.store import Store
from millpond.stores.transaction import Transaction


def read_store(storage: Storage, manifest: Manifest, spec: StoreSpec) -> Store[Any, Any]:
    """The store's content at ``manifest``, in memory. Changes to it go nowhere.

    Raises:
        MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
    """
    backend = MemoryBackend()
    restore(backend, storage, manifest, spec.name, spec.format_version)
    return spec.open(Transaction(backend))

"""Durable state: deltas and snapshots in a storage that every worker reaches, manifests that name them, local copies.

What callers need is here; the modules are the parts.
"""

from millpond.stores.durability.claim import claim
from millpond.stores.durability.gc import collect_garbage
from millpond.stores.durability.inspection import read_rows, read_store
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.policy import DurabilityPolicy
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage import Storage

__all__ = [
    "DurabilityPolicy",
    "Manifest",
    "Storage",
    "TaskState",
    "claim",
    "collect_garbage",
    "read_rows",
    "read_store",
]

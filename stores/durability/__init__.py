"""Durable state: deltas and snapshots in storage that every worker can reach, manifests that name them, local copies.

Callers need only the names in this package; the modules are its parts.
"""

from millpond.releases import Release
from millpond.stores.durability.checking.findings import Finding, Report, Severity, Subject, Tally
from millpond.stores.durability.checking.inspection import read_rows, read_store
from millpond.stores.durability.checking.verification import newest_sound, verify
from millpond.stores.durability.manifests.claim import claim
from millpond.stores.durability.manifests.garbage import collect_garbage
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage

__all__ = [
    "DurabilityPolicy",
    "Finding",
    "Manifest",
    "Release",
    "Report",
    "Severity",
    "Storage",
    "Subject",
    "Tally",
    "TaskState",
    "claim",
    "collect_garbage",
    "newest_sound",
    "read_rows",
    "read_store",
    "verify",
]

"""Durable state: deltas and snapshots in storage that every worker can reach, manifests that name them, local copies.

Callers need only the names that are here; the modules are the parts.
"""

from millpond.stores.durability.checking.findings import Finding, Report, Severity, Subject, Tally
from millpond.stores.durability.checking.verification import newest_sound, verify
from millpond.stores.durability.claim import claim
from millpond.stores.durability.gc import collect_garbage
from millpond.stores.durability.inspection import read_rows, read_store
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.policy import DurabilityPolicy
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage import Storage
from millpond.stores.releases import Release

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

"""Engines as ordered maps of bytes to bytes: the contract, the parts of adapters, and transactions over them.

Authors of backends import the names of the contract from here; the parts of adapters are in ``engine`` and ``options``.
"""

from millpond.stores.backend.contract import (
    CONTRACT,
    Backend,
    BackendSupplier,
    Changes,
    Entries,
    SupportsMemoryBudget,
)

__all__ = [
    "Backend",
    "BackendSupplier",
    "CONTRACT",
    "Changes",
    "Entries",
    "SupportsMemoryBudget",
]

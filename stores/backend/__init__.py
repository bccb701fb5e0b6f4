"""Engines as ordered maps of bytes to bytes: the contract, what they are built from, and transactions over them.

Authors of backends import the names of the contract from here; ``engine`` and ``options`` are what adapters are built
from.
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

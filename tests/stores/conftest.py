"""The parts that tests of typed stores share."""

import pytest

from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction


@pytest.fixture
def transaction() -> Transaction:
    """An empty transaction over an empty backend in memory."""
    return Transaction(MemoryBackend())

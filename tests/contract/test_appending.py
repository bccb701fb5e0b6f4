"""A log that is written from the tutorial alone passes the kit."""

from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.testing import BackendSuite
from tests.contract.appending import LogSupplier
from tests.drawing import tries


class TestLog(BackendSuite):
    examples = tries(15)

    def supplier(self) -> BackendSupplier:
        return LogSupplier()

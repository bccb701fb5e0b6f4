from typing import ClassVar

from millpond_mine import MineSupplier

from millpond.stores.backend import BackendSupplier
from millpond.stores.testing import BackendSuite, Feature


class TestMine(BackendSuite):
    examples = 15
    opt_outs: ClassVar = {Feature.ONE_FILE: "each write makes a new file"}

    def supplier(self) -> BackendSupplier:
        return MineSupplier()

"""Every typed store on the built-in backends passes the kit that is shipped for others."""

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.testing import StoreSuite
from tests.drawing import tries


class TestMemory(StoreSuite):
    def supplier(self) -> BackendSupplier:
        return MemorySupplier()


class TestLmdb(StoreSuite):
    def supplier(self) -> BackendSupplier:
        return LmdbSupplier()


class TestRocksDb(StoreSuite):
    examples = tries(15)

    def supplier(self) -> BackendSupplier:
        return RocksDbSupplier()

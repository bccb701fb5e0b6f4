"""The built-in backends pass the kit that is shipped for others."""

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.stores.backend import BackendSupplier
from millpond.stores.memory import MemorySupplier
from millpond.stores.testing import BackendSuite


class TestMemory(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return MemorySupplier()


class TestLmdb(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return LmdbSupplier()


class TestRocksDb(BackendSuite):
    examples = 15

    def supplier(self) -> BackendSupplier:
        return RocksDbSupplier()

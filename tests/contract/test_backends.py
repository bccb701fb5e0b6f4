"""The built-in backends pass the kit that is shipped for others, with their defaults and under strain."""

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.testing import BackendSuite, Feature
from tests.drawing import tries


class TestMemory(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return MemorySupplier()


class TestLmdb(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return LmdbSupplier()


class TestLmdbWhoseMapGrowsAllTheTime(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return LmdbSupplier(map_size=2**15, sync=True, readahead=False)


class TestRocksDb(BackendSuite):
    examples = tries(15)

    def supplier(self) -> BackendSupplier:
        return RocksDbSupplier()


class TestRocksDbWithoutALogAndWithTinyBuffers(BackendSuite):
    examples = tries(15)
    opt_outs = {Feature.ONE_FILE: "without a log, rows go to many small tables"}  # noqa: RUF012

    def supplier(self) -> BackendSupplier:
        return RocksDbSupplier(
            wal=False, write_buffer_size=2**16, block_cache=2**20, bloom_bits=0, compression="zstd", max_open_files=20
        )

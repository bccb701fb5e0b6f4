"""Rows with checksums: the contract of a backend, and damage that is found at every read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import CorruptStoreError
from millpond.stores.backend.checksums import Checksums, checksummed
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing import StoreSuite
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.machines import MachineSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.drawing import tries


@dataclass(frozen=True)
class WithChecksums(MemorySupplier):
    def open(self, directory: Path) -> Any:
        return Checksums(MemoryBackend(), "tested")


@dataclass(frozen=True)
class LmdbWithChecksums(LmdbSupplier):
    def open(self, directory: Path) -> Any:
        return Checksums(open_backend(LmdbSupplier(), directory), "tested")


@dataclass(frozen=True)
class RocksDbWithChecksums(RocksDbSupplier):
    def open(self, directory: Path) -> Any:
        return Checksums(open_backend(RocksDbSupplier(), directory), "tested")


class TestMemory(
    ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, SupplierSuite, CapabilitySuite, MachineSuite, StoreSuite
):
    examples = tries(20)

    def supplier(self) -> BackendSupplier:
        return WithChecksums()


class TestLmdb(ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, SupplierSuite, CapabilitySuite, MachineSuite):
    def supplier(self) -> BackendSupplier:
        return LmdbWithChecksums()


class TestRocksDb(ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, SupplierSuite, CapabilitySuite, MachineSuite):
    examples = tries(10)

    def supplier(self) -> BackendSupplier:
        return RocksDbWithChecksums()


READS: dict[str, Callable[[Backend], Any]] = {
    "get": lambda backend: backend.get(b"key"),
    "get_many": lambda backend: backend.get_many([b"other", b"key"]),
    "last": lambda backend: backend.last(b"k", b"l"),
    "scan": lambda backend: list(backend.scan()),
    "scan backwards": lambda backend: list(backend.scan(reverse=True)),
}


@pytest.mark.parametrize("read", READS)
@given(value=st.binary(max_size=30), data=st.data())
def test_any_flipped_bit_is_found_by_any_read(read: str, value: bytes, data: st.DataObject) -> None:
    row = bytearray(checksummed(b"key", value))
    row[data.draw(st.integers(0, len(row) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    engine = MemoryBackend()
    engine.write({b"key": bytes(row), b"other": checksummed(b"other", value)})
    with pytest.raises(CorruptStoreError, match="'tested' has a row b'key' that fails its checksum"):
        READS[read](Checksums(engine, "tested"))


@pytest.mark.parametrize("read", READS)
def test_a_row_that_has_lost_its_end_is_found(read: str) -> None:
    for size in range(len(checksummed(b"key", b"value"))):
        engine = MemoryBackend()
        engine.write({b"key": checksummed(b"key", b"value")[:size]})
        with pytest.raises(CorruptStoreError, match="fails its checksum"):
            READS[read](Checksums(engine, "tested"))


@given(st.binary(min_size=1), st.binary(min_size=1), st.binary())
def test_a_row_in_the_place_of_another_is_found(key: bytes, other: bytes, value: bytes) -> None:
    """Also where key and value one after the other are the same bytes."""
    assume(key != other)
    moved = checksummed(key, value)
    shifted = checksummed(key, other + value)[:8] + value
    for place, row in ((other, moved), (key + other, shifted)):
        engine = MemoryBackend()
        engine.write({place: row})
        with pytest.raises(CorruptStoreError):
            Checksums(engine, "tested").get(place)

"""pytest-benchmark cases of the stores: ``pytest bench``. For following one operation from version to version."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from millpond.bench.stores import BATCH, Subject, key_of
from millpond.stores.specs import StoreKind

_CASES = [
    (kind, operation)
    for kind, operations in {
        StoreKind.TIMESTAMPED_KEY_VALUE: ("put", "get", "put_many", "get_many"),
        StoreKind.VERSIONED: ("put", "get latest", "get as of"),
    }.items()
    for operation in operations
]


@pytest.mark.parametrize(("kind", "operation"), _CASES, ids=lambda value: str(getattr(value, "value", value)))
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_throughput(benchmark: BenchmarkFixture, tmp_path: Path, backend: str, kind: StoreKind, operation: str) -> None:
    """``BATCH`` operations a round, on a store of 100,000 keys."""
    subject = Subject(backend, kind, 100_000, tmp_path)
    work = next(op.work for op in subject.operations() if op.name == operation)
    keys = [key_of(number * 7 % 100_000) for number in range(BATCH)]
    benchmark.extra_info["operations"] = BATCH
    try:
        benchmark(work, keys)
    finally:
        subject.close()

"""pytest-benchmark cases of the stores: ``pytest bench``. For following one pattern from version to version."""

from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from millpond.bench.rows import VALUE_SIZE
from millpond.bench.runs.recording import Values, record, same
from millpond.bench.stores.pattern import Kind, Pattern
from millpond.bench.stores.patterns import PATTERNS
from millpond.bench.stores.place import Place
from millpond.bench.stores.sizes import Sizes
from millpond.stores.backend.registry import supplier

ROUNDS = 10
STEPWISE = [pattern for pattern in PATTERNS.values() if isinstance(pattern, Pattern)]
SIZES = Sizes(keys=100_000, records=ROUNDS * 10_000, batch=10_000, warm_up=10_000)


@pytest.mark.parametrize("pattern", STEPWISE, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_throughput(benchmark: BenchmarkFixture, tmp_path: Path, backend: str, pattern: Pattern) -> None:
    """A batch of 10,000 operations a round."""
    plan, values = pattern.plan(SIZES), Values(VALUE_SIZE, SIZES.seed)
    benchmark.extra_info["operations"] = SIZES.batch
    with Place(supplier(backend), tmp_path).opened(pattern.spec) as opened:
        work = {**pattern.work(opened.store, values), Kind.COMMIT: (same, opened.commit)}
        for batch in (*plan.filled, *plan.warm_up):
            record(batch, work)
        batches = iter(plan.batches)
        pedantic: Any = benchmark.pedantic
        pedantic(record, setup=lambda: ((next(batches), work), {}), rounds=ROUNDS)

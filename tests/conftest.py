"""The parts that all tests share: the choice of runs, JVMs that are soon ready, and a SparkSession per process."""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import quick_spark
from tests.drawing import is_drawn, spared, tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.update(quick_spark.environment())

# A machine that is busy fails no test by its time; all but the number of cases is as this release of Hypothesis has it.
settings.register_profile("untimed", settings(), deadline=None, max_examples=tries(settings().max_examples))
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore Ctrl-C, and so would all commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spare drawn runs, of those that are left of each test once others have been deselected."""
    drawn: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.get_closest_marker("long") is None:
            folder = item.path.relative_to(config.rootpath).parts[1]
            asked_for = folder == "golden" and config.getoption("backend", None)
            if not asked_for and is_drawn(folder, item.callspec.params):
                drawn[item.nodeid.partition("[")[0]].append(item.nodeid)
    left = {name for runs in drawn.values() for name in spared(runs)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def pytest_collection_finish() -> None:
    """Keep fifteen thousand tests out of each collection of garbage: of those, benchmarks ask for one a run."""
    gc.collect()
    gc.freeze()


ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A session of two cores whose tasks may fail three times."""
    sql = pytest.importorskip("pyspark.sql")
    quick_spark.remember_classes()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2, 4]")
        .appName("millpond-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "60s")  # on a machine that is busy with other tests
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB_PROVIDER)
        .config(map=quick_spark.configuration())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()

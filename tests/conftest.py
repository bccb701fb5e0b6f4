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
from tests.parts import PARTS, left_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.update(quick_spark.environment())

# A machine that is busy fails no test by its time; all but the number of cases is as this release of Hypothesis has it.
settings.register_profile("untimed", settings(), deadline=None, max_examples=tries(settings().max_examples))
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore Ctrl-C, and so would all commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which make says which tests are meant."""
    parser.addoption("--part", choices=PARTS, help="the tests of make test (first), or of make test-rest")


def pytest_configure(config: pytest.Config) -> None:
    """Take all of what is asked for by its path or by ``-k``; workers hear it from the process that starts them."""
    if not hasattr(config, "workerinput") and (config.args != config.getini("testpaths") or config.option.keyword):
        config.option.part = None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spare drawn runs, of those that are left of each test once others have been deselected; then take one part."""
    drawn: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.get_closest_marker("long") is None:
            folder = item.path.relative_to(config.rootpath).parts[1]
            asked_for = folder == "golden" and config.getoption("backend", None)
            if not asked_for and is_drawn(folder, item.callspec.params):
                drawn[item.nodeid.partition("[")[0]].append(item.nodeid)
    _deselect(config, items, {name for runs in drawn.values() for name in spared(runs)})
    if config.option.part is not None:
        _deselect(config, items, left_out(items, config.option.part))


def _deselect(config: pytest.Config, items: list[pytest.Item], names: set[str]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
    items[:] = [item for item in items if item.nodeid not in names]


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

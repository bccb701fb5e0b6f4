"""One parameter per golden case and backend.

A test module says which cases it runs with a function ``concerns(case) -> bool``. A test that takes ``case`` runs once
for each of them; one that takes ``backend_name`` as well runs once for each on each backend.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.stores.backend.contract import Backend
from millpond.stores.backend.registry import open_backend
from tests.golden.loader import cases

BACKENDS = ("memory", "lmdb", "rocksdb")
ENGINES = ("driver", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("golden")
    group.addoption("--golden-dir", type=Path, help="run the golden files below this directory, not the project's copy")
    group.addoption("--backend", action="append", help="run on this backend only; may be given several times")
    group.addoption(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="run topologies on the driver, and a handful on Spark as well; or only a large sample, on Spark",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore all but topologies with ``--engine spark``, and run these on Spark."""
    other = collection_path.name.startswith("test_") and collection_path.name != "test_spark.py"
    return True if other and config.getoption("engine", None) == "spark" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        found = [
            case for case in cases(metafunc.config.getoption("golden_dir", None)) if metafunc.module.concerns(case)
        ]
        metafunc.parametrize("case", found, ids=[case.id for case in found])
    if "backend_name" in metafunc.fixturenames:
        metafunc.parametrize("backend_name", metafunc.config.getoption("backend", None) or BACKENDS)


@pytest.fixture
def backend(backend_name: str, tmp_path: Path) -> Iterator[Backend]:
    """An empty backend of that name."""
    with open_backend(backend_name, tmp_path / "store") as opened:
        yield opened

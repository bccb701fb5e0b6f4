"""The backend of docs/writing-a-backend.md is the plugin in plugins/millpond-sqlite, which passes the kit.

``make test-plugins`` follows the page's commands, too, from an empty folder to a wheel.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.bench.engines.engine import Use
from millpond.stores.testing import BackendSuite
from tests.bench.engine_checks import check_engine
from tests.drawing import tries

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "millpond-sqlite"
PAGE = (ROOT / "docs" / "writing-a-backend.md").read_text()
BLOCKS = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
[THE_ENGINES_NAME] = re.findall(r'^```toml\n(\[project.entry-points."millpond.bench.*?)^```$', PAGE, re.M | re.DOTALL)

# As long as this process lives: child processes of the kit import the plugin from here.
sys.path[:0] = [str(PLUGIN / "src"), str(PLUGIN / "tests")]

if TYPE_CHECKING:
    FromThePage = BackendSuite
else:
    FromThePage = import_module("test_sqlite").TestSqlite
SUPPLIER, ENGINE = import_module("millpond_sqlite").SqliteSupplier, import_module("millpond_sqlite.engine").SqliteEngine


class TestSqlite(FromThePage):
    examples = tries(15)


def test_the_page_has_the_plugins_files_as_they_are() -> None:
    registered = {"pyproject.toml": f"{BLOCKS['pyproject.toml']}\n{THE_ENGINES_NAME}"}
    assert {path: (PLUGIN / path).read_text() for path in BLOCKS} == BLOCKS | registered
    assert set(BLOCKS) == {"src/millpond_sqlite/__init__.py", "pyproject.toml", "tests/test_sqlite.py"}


def test_the_engine_of_the_plugin_does_what_the_benchmark_measures(tmp_path: Path) -> None:
    for synced in (False, True):
        check_engine(ENGINE(tmp_path / str(synced), Use(SUPPLIER(), synced=synced)))
    new = ENGINE(tmp_path / "loaded", Use(SUPPLIER()))
    new.load([(b"a", b"1"), (b"b", b"2")])
    assert new.scan(b"a", 10) == 2
    new.close()


def test_the_example_is_typed_and_fits_on_a_page() -> None:
    code = BLOCKS["src/millpond_sqlite/__init__.py"]
    assert len(code.splitlines()) < 150
    assert all("->" in line for line in code.splitlines() if line.strip().startswith("def ") and line.endswith(":"))

"""The example of docs/writing-a-backend.md is what it says: a backend that passes the kit."""

import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.bench.engines.engine import Use
from millpond.stores.testing import BackendSuite
from tests.bench.engine_checks import check_engine

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-backend.md"
BLOCKS = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL))

# Held as long as this module: child processes of the kit import the example from here.
_place = tempfile.TemporaryDirectory(prefix="example-backend-")
for _name, _code in BLOCKS.items():
    Path(_place.name, _name).write_text(_code)
sys.path.insert(0, _place.name)

if TYPE_CHECKING:
    FromThePage = BackendSuite
else:
    FromThePage = import_module("test_sqlite_backend").TestSqlite
# Now, because the names of the modules are those of other tests, too.
SUPPLIER, ENGINE = import_module("sqlite_backend").SqliteSupplier, import_module("sqlite_engine").SqliteEngine


class TestSqlite(FromThePage):
    examples = 15


def test_the_page_has_the_backend_its_registration_and_its_test() -> None:
    assert set(BLOCKS) == {"sqlite_backend.py", "pyproject.toml", "test_sqlite_backend.py", "sqlite_engine.py"}


def test_the_engine_of_the_page_does_what_the_benchmark_measures(tmp_path: Path) -> None:
    for synced in (False, True):
        check_engine(ENGINE(tmp_path / str(synced), Use(SUPPLIER(), synced=synced)))
    new = ENGINE(tmp_path / "loaded", Use(SUPPLIER()))
    new.load([(b"a", b"1"), (b"b", b"2")])
    assert new.scan(b"a", 10) == 2
    new.close()


def test_what_the_page_says_installs_and_makes_the_backend_known_by_its_name(tmp_path: Path) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    project.mkdir()
    for name, code in BLOCKS.items():
        (project / name).write_text(code)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(project)],
        check=True,
    )
    assert not (site / "test_sqlite_backend.py").exists()
    code = f"""
import sys
sys.path.insert(0, {str(site)!r})
from pathlib import Path
from millpond.stores.registry import open_backend, supplier
import sqlite_backend
assert sqlite_backend.__file__ == {str(site / "sqlite_backend.py")!r}
assert supplier("sqlite://?page_cache=1MiB") == sqlite_backend.SqliteSupplier(2**20)
with open_backend("sqlite", Path({str(tmp_path / "store")!r})) as backend:
    backend.write({{b"k" * 10_000: b"long"}})
    assert backend.get(b"k" * 10_000) == b"long"
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_the_example_is_typed_and_fits_on_a_page(tmp_path: Path) -> None:
    code = BLOCKS["sqlite_backend.py"]
    assert len(code.splitlines()) < 150
    assert all("->" in line for line in code.splitlines() if line.strip().startswith("def ") and line.endswith(":"))

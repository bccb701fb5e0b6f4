"""The example of docs/writing-a-backend.md is what it says: a backend that passes the kit."""

import re
import sys
import tempfile
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millpond.stores.registry import GROUP, open_backend, supplier
from millpond.stores.testing import BackendSuite

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


class TestSqlite(FromThePage):
    examples = 15


def test_the_page_has_the_backend_its_registration_and_its_test() -> None:
    assert set(BLOCKS) == {"sqlite_backend.py", "pyproject.toml", "test_sqlite_backend.py"}


def test_the_registration_on_the_page_makes_the_backend_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    metadata = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    entries = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries]))
    monkeypatch.syspath_prepend(metadata.parent)
    assert supplier("sqlite://?page_cache=1MiB").name == "sqlite"
    with open_backend("sqlite", tmp_path / "store") as backend:
        backend.write({b"k" * 10_000: b"long"})
        assert backend.get(b"k" * 10_000) == b"long"


def test_the_example_is_typed_and_fits_on_a_page(tmp_path: Path) -> None:
    code = BLOCKS["sqlite_backend.py"]
    assert len(code.splitlines()) < 150
    assert all("->" in line for line in code.splitlines() if line.strip().startswith("def ") and line.endswith(":"))

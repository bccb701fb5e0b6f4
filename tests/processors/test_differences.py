"""The tables of differences from Kafka Streams name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`([\w/]+\.py)::([\w:]+)` \|$", (ROOT / "docs/differences-from-kafka-streams.md").read_text(), re.M)


def _tests(path: Path) -> set[str]:
    """Return the names of a module's tests, as pytest writes them after the file's."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.update(f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
    return found


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_test_of_a_difference_exists(file: str, name: str) -> None:
    assert name in _tests(ROOT / "tests" / file)


def test_every_difference_has_a_test() -> None:
    lines = (ROOT / "docs/differences-from-kafka-streams.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and not re.match(r"\|(---| \*\*| what | option )", line)]
    assert [row for row in rows if "::" not in row] == []
    assert len(rows) == len(NAMED)

"""The page of others' names: what it says is here can be called so, and each cell has a name or a reason."""

import ast
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from millpond import processors
from millpond.adapters import edit, spark
from millpond.processors.verbs import aggregates

PAGE = Path(__file__).resolve().parents[2] / "docs" / "names-elsewhere.md"
ROOMS: tuple[Any, ...] = (spark.Millpond, aggregates, processors, edit, spark)
COLUMNS = {"op", "sequence"}
"""Names on the page that are columns."""


def _rows() -> Iterator[list[str]]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in re.split(r" \| ", line.strip("| "))]


def _tables() -> list[list[list[str]]]:
    tables: list[list[list[str]]] = []
    for row in _rows():
        if row[0] in ("Millpond", "elsewhere"):
            tables.append([])
        tables[-1].append(row)
    return tables


HERE = [name for table in _tables()[:-1] for row in table[1:] for name in re.findall("`([^`]+)`", row[0])]


def _found(name: str) -> Any:
    return next(getattr(room, name) for room in ROOMS if hasattr(room, name))


def _calls(expression: ast.expr) -> Iterator[tuple[str, list[str]]]:
    """Yield the names in an expression, each with the keywords of its call."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, [keyword.arg or "" for keyword in node.keywords]
    if isinstance(expression, ast.Name):
        yield expression.id, []


@pytest.mark.parametrize("written", [name for name in HERE if name not in COLUMNS])
def test_what_is_here_is_called_so(written: str) -> None:
    calls = list(_calls(ast.parse(written, mode="eval").body))
    assert calls
    for name, keywords in calls:
        parameters = signature(_found(name)).parameters if keywords else {}
        assert set(keywords) <= set(parameters), name


def test_no_cell_is_empty() -> None:
    for table in _tables():
        assert {len(row) for row in table} == {len(table[0])}
        assert all(cell for row in table for cell in row)

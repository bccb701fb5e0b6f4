"""The first words of docstrings: a function says what it does, and a class or module what it is, without riddles."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("stores", "processors", "adapters", "src", "bench", "plugins", "tests", "examples", "docs/site")
RIDDLE: Final = re.compile(
    r"(What|Whatever|Whether|Who|Whoever|Whose|How|Where|Which|That|Those|When|Such|Nobody|Nothing|None)\b"
)
"""Beginnings that leave open what is meant."""
NOUN: Final = re.compile(r"(The|A|An)\b")
"""Beginnings that name a thing, where a function should say what it does."""
THINGS: Final = frozenset(("property", "cached_property", "contextmanager", "fixture", "overload", "setter"))
"""Decorators of functions that are used as things, so nouns may name them."""
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("room", ROOMS)
def test_a_docstring_begins_with_what_is_done_or_with_the_name_of_a_thing(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}: {docstring.splitlines()[0]}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in documented(ast.parse(path.read_text()))
        if (docstring := ast.get_docstring(node)) and is_wrong(node, docstring)
    ]
    assert wrong == [], "begin with a verb (Return, Check, Write), or name the thing (The schema of ...)"


def documented(node: ast.AST) -> Iterator[Documented]:
    """Yield what may have a docstring: a module, its classes and functions, and those within them."""
    if isinstance(node, Documented):
        yield node
    for statement in ast.iter_child_nodes(node):
        if isinstance(statement, ast.stmt):
            yield from documented(statement)


def is_wrong(node: Documented, docstring: str) -> bool:
    """Return whether a docstring begins as a riddle, or that of a function as a noun."""
    if RIDDLE.match(docstring):
        return True
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith(("test_", "__")):
        return False
    return NOUN.match(docstring) is not None and THINGS.isdisjoint(map(_name, node.decorator_list))


def _name(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]

"""The errors of Millpond as a list, and what the sources say where they make each of them."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from millpond.errors import Coded

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("adapters", "processors", "stores", "src/millpond", "plugins")

_ANYTHING: Final = "\0"
_WORDS: Final = 3


class Made(NamedTuple):
    """A place where an error is made.

    Attributes:
        where: file and line.
        template: a regular expression of the message; None if it is made elsewhere.
    """

    where: str
    template: str | None


def every_error() -> Iterator[type[Coded]]:
    """Yield all errors and warnings of ``millpond.errors``."""
    seen: set[type[Coded]] = set()
    waiting = list(Coded.__subclasses__())
    while waiting:
        kind = waiting.pop()
        if kind not in seen and kind.__module__ == Coded.__module__:
            seen.add(kind)
            yield kind
            waiting += kind.__subclasses__()


@cache
def made() -> Mapping[str, tuple[Made, ...]]:
    """Return where each error is made, by the name of its class; a warning, where it is given to the user."""
    found: dict[str, list[Made]] = {kind.__name__: [] for kind in every_error()}
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "tests" not in path.parts):
        text = path.read_text()
        if "Error(" not in text and "Warning," not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        for node in nodes:
            error = _made_by(node)
            if isinstance(node, ast.Call) and error in found:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                found[error] += [Made(where, one) for one in _templates(node.args[0], functions)]
    return {error: tuple(places) for error, places in found.items()}


def _made_by(node: ast.AST) -> str:
    """Return the class that a call makes, if its words are there; an empty string, if it is no call."""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "warn" and isinstance(node.args[1], ast.Name):
        return node.args[1].id
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _templates(message: ast.expr, functions: Mapping[str, ast.FunctionDef]) -> Iterator[str | None]:
    """Yield what a message may look like; if a function makes it, the parts that are written there."""
    if isinstance(message, ast.Call) and (function := functions.get(ast.unparse(message.func).removeprefix("self."))):
        yield from filter(None, map(_template, ast.walk(function)))
    else:
        yield _template(message)


def _template(message: ast.AST) -> str | None:
    """Return the template of a message; None if so little of it is written here that it could be any message."""
    if isinstance(message, ast.Constant):
        parts = [str(message.value)]
    elif isinstance(message, ast.JoinedStr):
        parts = [str(one.value) if isinstance(one, ast.Constant) else _ANYTHING for one in message.values]
    else:
        return None
    text = " ".join("".join(parts).split())
    return re.escape(text).replace(_ANYTHING, ".*") if len(re.findall("[a-z]+", text)) >= _WORDS else None

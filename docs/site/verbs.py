"""Writes the tables of arguments into the page of verbs: ``python -m docs.site.verbs``.

Rule of this module: it copies. What an argument does stands in the docstring of the verb; what the page says around a
table is written on the page. A table lies between two comments, of which the first has the name of the verb.
"""

import inspect
import re
import textwrap
from enum import Enum
from typing import Any

from docs.site import pages
from millpond import Pond
from millpond.adapters.spark import Millpond

PAGE = pages.ROOT / "docs" / "verbs.md"
KINDS: tuple[type, ...] = (Millpond, Pond)
"""The classes with verbs; where both have a verb, the docstring of the first is shown: it says more."""

_TABLE = re.compile(r"(<!-- arguments of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ENTRY = re.compile(r"^    ([a-z]\w*(?:, [a-z]\w*)*): ", re.MULTILINE)


def verbs() -> list[str]:
    """Return the names of all that ``Millpond`` and ``Pond`` can do."""
    named = {name for kind in KINDS for name in dir(kind) if inspect.isfunction(getattr(kind, name))}
    return sorted(name for name in named if not name.startswith("_"))


def parameters(kind: type, name: str) -> dict[str, inspect.Parameter]:
    """Return a verb's arguments by name; none if there is no such verb. The class itself goes by its own name."""
    called = kind if name == kind.__name__ else getattr(kind, name, None)
    found = inspect.signature(called).parameters if called is not None else {}
    return {one: parameter for one, parameter in found.items() if one != "self"}


def told(kind: type, name: str) -> dict[str, str]:
    """Return what the docstring of a verb says of its arguments, by an argument's name or by names that share a text.

    Raises:
        ValueError: it leaves an argument out, or has one that does not exist.
    """
    _, *parts = _ENTRY.split(_section(kind, name, "Args"))
    found = {shared: _prose(text) for shared, text in zip(parts[::2], parts[1::2], strict=True)}
    listed = sorted(one for shared in found for one in shared.split(", "))
    if listed != sorted(parameters(kind, name)):
        raise ValueError(f"{kind.__name__}.{name} takes {sorted(parameters(kind, name))}; its docstring has {listed}")
    return found


def table(name: str) -> str:
    """Return the arguments of a verb, as a table of Markdown, and what comes out of it."""
    lines = ["| argument | default | what it says |", "|---|---|---|"]
    shown: set[str] = set()
    for kind in KINDS:
        for shared, text in told(kind, name).items():
            names = [one for one in shared.split(", ") if one not in shown]
            shown.update(names)
            if names:
                called = ", ".join(f"`{one}`" for one in names)
                lines.append(f"| {called} | {_defaults(name, names)} | {text} |")
    returns = next((text for kind in KINDS if (text := _prose(_section(kind, name, "Returns")))), "")
    rows = ["\n".join(lines)] if shown else []
    return "\n\n".join([*rows, *([textwrap.fill(f"*Comes out:* {returns}", 120)] if returns else [])])


def written(text: str) -> str:
    """Return the text of the page with all tables as the docstrings have them now."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def _section(kind: type, name: str, heading: str) -> str:
    documented = kind if name == kind.__name__ else getattr(kind, name, None)
    text = inspect.getdoc(documented) or "" if documented is not None else ""
    found = re.search(rf"^{heading}:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _defaults(name: str, names: list[str]) -> str:
    """Return the defaults of arguments; where only one of the two classes takes them, or they differ, by class."""
    having = {kind: parameters(kind, name) for kind in KINDS if parameters(kind, name)}
    shown = {}
    for kind, found in having.items():
        values = [_value(found[one]) for one in names if one in found]
        if values:
            shown[kind] = values[0] if len(set(values)) == 1 else ", ".join(values)
    if len(shown) == len(having) and len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return "; ".join(f"{values} (`{kind.__name__}`)" for kind, values in shown.items())


def _value(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if default is inspect.Parameter.empty:
        return "needed"
    return f"`{str(default)!r}`" if isinstance(default, Enum) else f"`{default!r}`"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))

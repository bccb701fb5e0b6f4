"""The public names with their signatures, as text, one per line: what others rely on.

``python tests/packaging/public_names.py`` writes them to public_names.txt, where review sees any change.
"""

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, ForwardRef, Union, get_args, get_origin

SNAPSHOT = Path(__file__).with_suffix(".txt")
MODULES = (
    "millpond.adapters.edit",
    "millpond.adapters.inspect",
    "millpond.adapters.kafka_streams",
    "millpond.adapters.spark",
    "millpond.adapters.tables",
    "millpond.processors",
    "millpond.processors.pond",
    "millpond.processors.pond.testing",
    "millpond.processors.verbs",
    "millpond.stores",
    "millpond.stores.durability",
    "millpond.stores.testing",
)


def describe() -> str:
    """Return all public names of ``MODULES``."""
    return "".join(f"{line}\n" for name in MODULES for line in _module(import_module(name)))


def _module(module: ModuleType) -> Iterator[str]:
    yield module.__name__
    for name in sorted(getattr(module, "__all__", getattr(module, "_HOMES", ()))):
        found = getattr(module, name)
        if isinstance(found, type):
            yield f"    class {name}{_construction(found)}"
            yield from (f"        {line}" for line in _members(found))
        elif inspect.isroutine(found):
            yield f"    def {name}{_signature(found)}"
        else:
            yield f"    {name}"


def _construction(cls: type) -> str:
    """Return how users make an object of a class; empty for enumerations, errors and protocols."""
    made = not issubclass(cls, (Enum, Exception)) and not getattr(cls, "_is_protocol", False)
    return _signature(cls) if made else ""


def _members(cls: type) -> Iterator[str]:
    """Yield what a user may name on a class: no tests, and nothing from base classes of Python or other packages."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("millpond"):
            members |= vars(base)
    members |= getattr(cls, "__members__", {})
    for name in sorted(member for member in members if not member.startswith(("_", "test_"))):
        if isinstance(members[name], (staticmethod, classmethod)) or inspect.isfunction(members[name]):
            yield f"def {name}{_signature(getattr(cls, name))}"
        else:
            yield name


def _signature(function: Any) -> str:
    """Return the signature, with types as they are written in the sources, whatever Python's release makes of them."""
    signature = inspect.signature(function)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(_parameter(parameter))
    result = "" if signature.return_annotation is signature.empty else f" -> {_plain(signature.return_annotation)}"
    return f"({', '.join(shown)}){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    kind = "" if parameter.annotation is parameter.empty else f": {_plain(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def _default(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _plain(annotation: Any) -> str:
    """Return a type by its short name, parts and all."""
    if isinstance(annotation, list):
        return f"[{', '.join(map(_plain, annotation))}]"
    if annotation in (None, type(None)):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(_plain, parts))
    if origin is not None:
        return f"{_plain(origin)}[{', '.join(map(_plain, parts))}]"
    return str(getattr(annotation, "__name__", annotation))


if __name__ == "__main__":
    SNAPSHOT.write_text(describe())
